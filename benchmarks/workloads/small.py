"""Sets of under 1,000 rows: seconds of a fit, and microseconds of predicting a single row.

The classifiers are at their defaults, with one thread each: that is what a service or a notebook does
thousands of times.
"""

from collections.abc import Sequence
from statistics import median

from benchmarks import losses
from benchmarks.context import Context
from benchmarks.data import UCI, splits
from benchmarks.methods import Contender
from benchmarks.records import Repetition
from benchmarks.registry import benchmark
from benchmarks.tables import MISSING, failures, markdown

SPLITS = 3
CONTENDERS = (
    Contender("SEPClassifier()", "cavity-sep"),
    Contender("SVIClassifier()", "cavity-svi"),
    Contender("scikit-learn GPC", "sklearn-gpc"),
    Contender("logistic regression", "logistic"),
    Contender("HistGradientBoosting", "sklearn-hgb"),
    Contender("LightGBM", "lightgbm"),
)


def table(repetitions: Sequence[Repetition]) -> str:
    """Medians over splits: NLL / seconds / microseconds of a row, by set and method."""
    labels = list(dict.fromkeys(r.label for r in repetitions))
    rows = []
    for dataset in dict.fromkeys(r.dataset for r in repetitions):
        here = [r for r in repetitions if r.dataset == dataset and r.failure is None]
        rows.append([dataset, *(_cell([r for r in here if r.label == label]) for label in labels)])
    done = [r for r in repetitions if r.failure is None]
    rows.append(["median", *(_cell([r for r in done if r.label == label]) for label in labels)])
    return markdown(["NLL / s / µs of", *labels], rows) + failures(repetitions)


def _cell(group: Sequence[Repetition]) -> str:
    seconds = [r.seconds for r in group if r.seconds is not None]
    if not seconds:
        return MISSING
    nll = median(r.metrics["nll"] for r in group)
    row = median(losses.ONE_ROW.of(r) or 0.0 for r in group)
    return f"{nll:.3f} / {median(seconds):.3f} / {row:,.0f}"


@benchmark(
    "small",
    "seven UCI sets, classifiers at their defaults on one thread: a fit and a one-row prediction",
    table=table,
    minutes=20,
    measures=(losses.NLL, losses.SECONDS, losses.ONE_ROW),
)
def run(context: Context) -> None:
    """Every classifier on every split."""
    names, n_splits = ("heart",) if context.quick else UCI, context.repetitions(SPLITS, quick=1)
    context.expect(len(names) * n_splits * len(CONTENDERS))
    for name in names:
        for split in splits(name, n_splits):
            settings = {"seed": split.index, "threads": 1, "one_row": True}
            for contender in CONTENDERS:
                context.measure(contender, split, settings, context.budget)
