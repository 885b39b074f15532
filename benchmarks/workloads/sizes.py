"""Does a larger m pay at equal seconds, and are the automatic settings near the best?"""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from statistics import fmean

from benchmarks import tables
from benchmarks.context import Context
from benchmarks.data import Split, holdout, redrawn
from benchmarks.methods import Contender
from benchmarks.records import Repetition
from benchmarks.registry import benchmark

SIZES = (50, 100, 200, 500, 1000)
SECONDS = 60.0
SETS: Mapping[str, tuple[tuple[int, ...], Callable[[int], Split]]] = {
    "airline": ((0, 1), lambda seed: holdout("airline", 10_000)),
    "mnist": ((0, 1, 2, 3), lambda seed: redrawn("mnist", seed)),
    "covtype": ((0, 1), lambda seed: holdout("covtype", 100_000)),
}
"""The seeds, and the split of a seed.

The start and the minibatches are random and change the NLL too, so a single seed would mostly find the
luckiest setting. MNIST has few test rows, and most of them are certain; therefore each seed has other
ones. Covertype has enough to tell fits a percent apart."""
NEAR = 0.01
AUTO = Contender("auto", "cavity-sep")
ALTERNATIVES = tuple(
    Contender(f"{factor}m, rate {rate}", "cavity-sep", {"factor": factor, "rate": rate})
    for factor, rate in ((2, 0.02), (10, 0.02), (5, 0.01), (5, 0.05))
)
"""Minibatch and rate, one at a time smaller and larger than the automatic ones (5m, .02).

With many rows or few points the automatic minibatches are larger, and a run of few steps takes longer
ones."""


def table(repetitions: Sequence[Repetition]) -> str:
    """Means over the seeds; the range over the seeds says how much of a difference may be chance."""
    losses: dict[tuple[str, int], dict[str, list[float]]] = {}
    for r in repetitions:
        if r.failure is None:
            cell = losses.setdefault((r.dataset, r.settings["m"]), {})
            cell.setdefault(r.label, []).append(r.metrics["nll"])
    rows, near = [], 0
    for (dataset, m), cell in losses.items():
        if AUTO.label not in cell:
            continue
        auto = cell[AUTO.label]
        mean = {label: fmean(values) for label, values in cell.items() if len(values) == len(auto)}
        best = min(mean, key=mean.__getitem__)
        excess = mean[AUTO.label] / mean[best] - 1.0
        near += excess <= NEAR
        rows.append(
            [
                dataset,
                str(m),
                f"{mean[AUTO.label]:.4f}",
                f"{mean[best]:.4f}",
                best,
                f"{100 * excess:.1f} %",
                f"{100 * (max(auto) - min(auto)) / mean[AUTO.label]:.1f} %",
            ]
        )
    header = ["set", "m", "auto NLL", "best NLL", "best setting", "auto is worse by", "auto's own range"]
    verdict = f"\n\nauto is within {100 * NEAR:.0f} % of the best on {near} of {len(rows)}."
    return tables.markdown(header, rows) + verdict + tables.failures(repetitions)


@benchmark(
    "sizes",
    "m = 50 … 1000 at equal seconds on airline, MNIST and covertype; auto settings",
    table=table,
)
def run(context: Context) -> None:
    """The automatic minibatch and rate at every m, and other choices beside them."""
    seconds = context.seconds(SECONDS, quick=3.0)
    sizes = SIZES[:2] if context.quick else SIZES
    contenders = (AUTO,) if context.quick else (AUTO, *ALTERNATIVES)
    runs = [(seed, drawn) for seeds, drawn in SETS.values() for seed in seeds]
    runs = runs[:1] if context.quick else runs
    context.expect(len(runs) * len(sizes) * len(contenders))
    for seed, drawn in runs:
        split = drawn(seed)
        for m, contender in product(sizes, contenders):
            parameters: dict[str, object] = {}
            if contender is not AUTO:
                parameters["batch_size"] = contender.settings["factor"] * m
                parameters["optimizer"] = {"learning_rate": contender.settings["rate"]}
            settings = {"m": m, "seed": seed, "parameters": parameters}
            context.measure(contender, split, settings, seconds)
