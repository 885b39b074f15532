"""How many minibatch steps a second, at m = |minibatch| = 200 and d = 8."""

from collections.abc import Sequence
from statistics import median

import numpy as np

from benchmarks import losses, tables
from benchmarks.context import Context
from benchmarks.data import Dataset, Split
from benchmarks.methods import Contender
from benchmarks.records import Repetition
from benchmarks.registry import benchmark

ROWS, DIMENSIONS = 100_000, 8
ROUNDS = 4
COMPARED = ("GPflow Adam, float64", "GPflow NatGrad, float64")
"""The peers that our rates are compared with, in GPflow's own precision and with its best number of
threads. The first moves all of q by gradients, as SVI by gradients does; the second replaces a share of
q, as SEP and SVI by natural gradients do."""
_STEP = {"m": 200, "minibatch": 200, "seed": 0, "curve": False}

CONTENDERS = tuple(
    Contender(
        f"{label}, {dtype}, {threads or 'all'} thread{'s' * (threads != 1)}",
        method,
        {**settings, "dtype": dtype, "threads": threads},
    )
    for label, method, settings, dtypes in (
        ("cavity SEP", "cavity-step-sep", {}, ("float32",)),
        ("cavity SVI, natural", "cavity-step-svi", {}, ("float32",)),
        ("cavity SVI, gradient", "cavity-step-svi-gradient", {}, ("float32",)),
        ("GPflow Adam", "gpflow-adam", {}, ("float64", "float32")),
        ("GPflow NatGrad", "gpflow-natgrad", {"gamma": 0.02}, ("float64", "float32")),
        ("GPyTorch Adam", "gpytorch-adam", {}, ("float32",)),
        ("GPyTorch NGD", "gpytorch-ngd", {"gamma": 0.02}, ("float32",)),
    )
    for dtype in dtypes
    for threads in (1, None)
)


def smooth_labels(n: int, seed: int) -> Dataset:
    """Rows whose label is the noisy sign of a smooth function, so that steps are as on real data."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, DIMENSIONS)).astype(np.float32)
    f = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * rng.standard_normal(n)
    return Dataset(X, np.where(f > 0, 1, -1).astype(np.int8), "smooth")


def table(repetitions: Sequence[Repetition]) -> str:
    """The fastest and the median round of each, and its rate as a multiple of the compared peers'."""
    rates: dict[str, list[float]] = {}
    for r in repetitions:
        if r.failure is None:
            rates.setdefault(r.label, []).append(r.extra["steps_per_second"])
    fastest, middle = ({name: of(v) for name, v in rates.items()} for of in (max, median))
    compared = {
        peer: max(of_peer)
        for peer in COMPARED
        if (of_peer := [rate for label, rate in fastest.items() if label.startswith(peer)])
    }
    rows = [
        [
            label,
            f"{fastest[label]:.0f}",
            f"{middle[label]:.0f}",
            *(f"{fastest[label] / rate:.2f}" for rate in compared.values()),
        ]
        for label in rates
    ]
    header = ["method", "steps/s, best round", "median", *(f"best against {peer}" for peer in compared)]
    return tables.markdown(header, rows) + tables.failures(repetitions)


@benchmark(
    "step-rate",
    "minibatch steps a second after warm-up, m = |M| = 200, d = 8: the best of some rounds",
    table=table,
    minutes=12,
    measures=(losses.STEPS,),
)
def run(context: Context) -> None:
    """A few seconds of each contender in turn; the first steps (tracing, caches) do not count.

    Other work on the machine can only make a round slower, so the fastest round is shown.
    """
    train, test = smooth_labels(ROWS, 0), smooth_labels(1000, 1)
    budget = context.seconds(5.0, quick=2.0)
    contenders = [c for c in CONTENDERS if not context.quick or c.settings["threads"] is None]
    rounds = context.repetitions(ROUNDS, quick=1)
    context.expect(rounds * len(contenders))
    for index in range(rounds):
        for contender in contenders:
            context.measure(contender, Split(train, test, index), _STEP, budget)
