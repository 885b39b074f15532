"""`SEPClassifier()` without any option: NLL, error and calibration, beside the yardsticks."""

import numpy as np

from benchmarks.context import Context
from benchmarks.data import UCI, Split, fixed, holdout, splits
from benchmarks.methods import Contender
from benchmarks.records import Repetition
from benchmarks.registry import benchmark

SMALL = (*UCI, "banana", "image")
LARGE = ("adult", "covtype", "electricity", "airline", "mnist", "skin", "nycflights13")
SPLITS, TEST_ROWS = 5, 10_000
SECONDS = 60.0
"""Budget of the peers on the large sets; ours takes what its defaults take."""
POINTS = 100
"""Inducing points of GPflow: those of our default."""

OURS = Contender("SEPClassifier()", "cavity-sep")
LOGISTIC = Contender("logistic regression", "logistic")
TREES = Contender("LightGBM", "lightgbm")
GPFLOW_SMALL = Contender("GPflow SVGP", "gpflow-lbfgs", {"steps": 250})
GPFLOW_LARGE = Contender("GPflow SVGP", "gpflow-natgrad", {"minibatch": 1000, "gamma": 0.02})


@benchmark(
    "defaults", "SEPClassifier() without options against logistic regression, LightGBM and GPflow"
)
def run(context: Context) -> None:
    """Five splits of each small set, one of each large one."""
    for name in ("heart",) if context.quick else SMALL:
        for split in splits(name, 1 if context.quick else SPLITS):
            plain = {"seed": split.index, "threads": 1}
            for contender in (OURS, LOGISTIC, TREES):
                context.measure(contender, split, plain)
            points = {**plain, "m": min(POINTS, len(split.train.y))}
            context.measure(GPFLOW_SMALL, split, points)
    for name in () if context.quick else LARGE:
        split: Split = fixed(name) if name == "mnist" else holdout(name, TEST_ROWS)
        context.measure(OURS, split, {"seed": 0})
        for contender in (LOGISTIC, TREES):
            context.measure(contender, split, {"seed": 0}, context.seconds(SECONDS, quick=SECONDS))
        budget = context.seconds(SECONDS, quick=SECONDS)
        context.measure(GPFLOW_LARGE, split, {"seed": 0, "m": POINTS}, budget)
    print(_table(context.recorded()))


def _table(recorded: list[Repetition]) -> str:
    labels = [OURS.label, LOGISTIC.label, TREES.label, GPFLOW_SMALL.label]
    heads = [f"{label}: NLL / error % / ECE" for label in labels]
    lines = [
        f"| set | {' | '.join(heads)} | ours − logistic | ours, s |",
        "|---" * (len(labels) + 3) + "|",
    ]
    for dataset in dict.fromkeys(r.dataset for r in recorded):
        here = [r for r in recorded if r.dataset == dataset and r.failure is None]
        means = {label: _means([r for r in here if r.label == label]) for label in labels}
        cells = [
            "–" if mean is None else f"{mean['nll']:.4f} / {100 * mean['error']:.2f} / {mean['ece']:.4f}"
            for mean in means.values()
        ]
        ours, linear = means[OURS.label], means[LOGISTIC.label]
        gap = "–" if ours is None or linear is None else f"{ours['nll'] - linear['nll']:+.4f}"
        seconds = "–" if ours is None else f"{ours['seconds']:.1f}"
        lines.append(f"| {dataset} | {' | '.join(cells)} | {gap} | {seconds} |")
    return "\n".join(lines)


def _means(group: list[Repetition]) -> dict[str, float] | None:
    if not group:
        return None
    names = ("nll", "error", "ece")
    means = {name: float(np.mean([r.metrics[name] for r in group])) for name in names}
    return {**means, "seconds": float(np.mean([r.seconds for r in group if r.seconds is not None]))}
