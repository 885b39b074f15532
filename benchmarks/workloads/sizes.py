"""Does a larger m pay at equal seconds, and are the automatic settings near the best?"""

from collections.abc import Sequence

import numpy as np

from benchmarks.context import Context
from benchmarks.data import Split, fixed, holdout
from benchmarks.methods import Contender
from benchmarks.records import Repetition
from benchmarks.registry import benchmark

SIZES = (50, 100, 200, 500, 1000)
SECONDS = 60.0
AUTO = Contender("auto", "cavity-sep")
ALTERNATIVES = tuple(
    Contender(f"{factor}m, rate {rate}", "cavity-sep", {"factor": factor, "rate": rate})
    for factor, rate in ((2, 0.02), (10, 0.02), (5, 0.01), (5, 0.05))
)
"""Minibatch and rate, one at a time smaller and larger than the automatic ones (5m, .02).

Of many rows, or with few points, the automatic minibatches are larger, and few steps are longer."""


def _sets(quick: bool) -> list[Split]:
    sets = [holdout("airline", 10_000), fixed("mnist"), holdout("covtype", 10_000)]
    return sets[:1] if quick else sets


def _table(repetitions: Sequence[Repetition]) -> str:
    rows = [r for r in repetitions if r.failure is None]
    lines = ["| set | m | auto NLL | best NLL | best setting | auto is worse by |", "|---" * 6 + "|"]
    for dataset in dict.fromkeys(r.dataset for r in rows):
        for m in sorted({r.settings["m"] for r in rows}):
            here = [r for r in rows if r.dataset == dataset and r.settings["m"] == m]
            auto = [r.metrics["nll"] for r in here if r.label == AUTO.label]
            if not auto:
                continue
            best = min(here, key=lambda r: r.metrics["nll"])
            ratio = np.mean(auto) / best.metrics["nll"] - 1.0
            lines.append(
                f"| {dataset} | {m} | {np.mean(auto):.4f} | {best.metrics['nll']:.4f} "
                f"| {best.label} | {100 * ratio:.1f} % |"
            )
    return "\n".join(lines)


@benchmark(
    "sizes",
    "m = 50 … 1000 at equal seconds on airline, MNIST and covertype; auto settings",
    table=_table,
)
def run(context: Context) -> None:
    """The automatic minibatch and rate at every m, and other choices beside them."""
    seconds = context.seconds(SECONDS, quick=3.0)
    sets, sizes = _sets(context.quick), SIZES[:2] if context.quick else SIZES
    contenders = (AUTO,) if context.quick else (AUTO, *ALTERNATIVES)
    context.expect(len(sets) * len(sizes) * len(contenders))
    for split in sets:
        for m in sizes:
            for contender in contenders:
                parameters = {}
                if contender is not AUTO:
                    parameters["batch_size"] = contender.settings["factor"] * m
                    parameters["learning_rate"] = contender.settings["rate"]
                settings = {"m": m, "seed": 0, "parameters": parameters}
                context.measure(contender, split, settings, seconds)
