"""The paper's three systems on its seven sets at m = 15, 25 and 50 %: time and test NLL."""

from collections.abc import Sequence

import numpy as np

from benchmarks.context import Context
from benchmarks.data import UCI, splits
from benchmarks.methods import Contender
from benchmarks.records import Repetition
from benchmarks.registry import benchmark

FRACTIONS = (0.15, 0.25, 0.5)
GRADIENT = {"posterior_update": "gradient", "max_iter": 250, "tol": 1e-9}

CONTENDERS = (
    Contender("SEP", "cavity-sep"),
    Contender("SVI, natural", "cavity-svi"),
    Contender("SVI, L-BFGS", "cavity-svi", {"parameters": GRADIENT}),
    Contender("GFITC", "cavity-gfitc"),
)


def _table(rows: Sequence[Repetition]) -> str:
    lines = ["| m | method | mean NLL | seconds a fit | times SEP | failed |", "|---" * 6 + "|"]
    for fraction in sorted({r.settings["fraction"] for r in rows}):
        here = [r for r in rows if r.settings["fraction"] == fraction]
        seconds = {}
        for contender in CONTENDERS:
            group = [r for r in here if r.label == contender.label]
            done = [r for r in group if r.failure is None]
            seconds[contender.label] = np.mean([r.seconds for r in done])
            nll = np.mean([r.metrics["nll"] for r in done])
            lines.append(
                f"| {fraction:.0%} | {contender.label} | {nll:.3f} "
                f"| {seconds[contender.label]:.2f} | {seconds[contender.label] / seconds['SEP']:.1f} "
                f"| {len(group) - len(done)} |"
            )
    return "\n".join(lines)


@benchmark(
    "rivals",
    "SEP, SVI and GFITC on the seven UCI sets, m = 15/25/50 %: seconds a fit, NLL",
    table=_table,
)
def run(context: Context) -> None:
    """One split of every set: the times differ by far more than from split to split."""
    names, fractions = (("heart",), FRACTIONS[:1]) if context.quick else (UCI, FRACTIONS)
    context.expect(len(names) * len(fractions) * len(CONTENDERS))
    for name in names:
        (split,) = splits(name, 1)
        n = len(split.train.y) + len(split.test.y)
        for fraction in fractions:
            settings = {"m": round(fraction * n), "fraction": fraction, "seed": 0, "threads": 1}
            for contender in CONTENDERS:
                context.measure(contender, split, settings)
