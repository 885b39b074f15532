"""How many minibatch steps a second, at m = |minibatch| = 200 and d = 8."""

import numpy as np

from benchmarks import tables
from benchmarks.context import Context
from benchmarks.data import Dataset, Split
from benchmarks.methods import Contender
from benchmarks.registry import benchmark

ROWS, DIMENSIONS = 100_000, 8
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
    """Rows whose label is the noisy sign of a smooth function: steps as on real data."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, DIMENSIONS)).astype(np.float32)
    f = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * rng.standard_normal(n)
    return Dataset(X, np.where(f > 0, 1, -1).astype(np.int8), "smooth")


@benchmark(
    "step-rate",
    "minibatch steps a second after warm-up, m = |M| = 200, d = 8",
    table=tables.by_method,
)
def run(context: Context) -> None:
    """A few seconds of each contender; the first steps (tracing, caches) do not count."""
    split = Split(smooth_labels(ROWS, 0), smooth_labels(1000, 1), 0)
    budget = context.seconds(10.0, quick=2.0)
    contenders = [c for c in CONTENDERS if not context.quick or c.settings["threads"] is None]
    context.expect(len(contenders))
    for contender in contenders:
        context.measure(contender, split, _STEP, budget)
