"""Scores of `cavity fit` on rows that took no part in it: `--holdout` and `--cv`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from sklearn.base import clone

from cavity.cli.deciding import decision_of
from cavity.cli.guard import CommandError, say
from cavity.cli.options import Deciding
from cavity.cli.predict import evaluation, scores_of
from cavity.cli.progress import progress_shown
from cavity.data.parts import import_arrow
from cavity.data.sampling import row_hash
from cavity.data.table import Table
from cavity.errors import SourceError
from cavity.estimators.table import TableClassifier
from cavity.gp.metrics import ScoreSums
from cavity.typing import IntArray, JsonObject

if TYPE_CHECKING:
    import pyarrow as pa


class HashedRows(Table):
    """A random part of the rows of a table, always the same ones: those whose hash is in a range.

    >>> from cavity.data.table import open_table
    >>> table = open_table({"age": list(range(1_000))})
    >>> test, train = HashedRows(table, 0, (0.0, 0.2)), HashedRows(table, 0, (0.0, 0.2), inside=False)
    >>> [sum(chunk.num_rows for chunk in part.chunks(["age"])) for part in (test, train)]
    [187, 813]
    """

    def __init__(
        self, table: Table, seed: int, span: tuple[float, float], *, inside: bool = True
    ) -> None:
        self.name, self.columns = table.name, table.columns
        self.typed, self.decimal = table.typed, table.decimal
        self.missing_words = table.missing_words
        self._table, self._seed, self._span, self._inside = table, seed, span, inside

    def chunks(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Record batches of the rows of this part."""
        return (chunk for _, chunk in self.numbered(columns))

    def numbered(self, columns: Sequence[str]) -> Iterator[tuple[IntArray, pa.RecordBatch]]:
        """Record batches of this part, with the numbers [t] of the rows in the whole table."""
        pa, _ = import_arrow()
        found, (low, high) = False, self._span
        for numbers, chunk in self._table.numbered(columns):
            place = row_hash(numbers, self._seed) / 2.0**64
            chosen = ((place >= low) & (place < high)) == self._inside
            if chosen.any():
                found = True
                yield numbers[chosen], chunk.filter(pa.array(chosen))
        if not found:
            raise SourceError(
                f"{self.name} has too few rows to hold a part of them out; give more rows, or leave "
                "--holdout and --cv out"
            )


def holdout_parts(table: Table, share: float, seed: int) -> tuple[Table, Table]:
    """The rows to train on, and the share of the rows to score."""
    if not 0.0 < share < 1.0:
        raise CommandError(f"--holdout {share:g} is not between 0 and 1; give a share such as 0.2")
    span = (0.0, share)
    return HashedRows(table, seed, span, inside=False), HashedRows(table, seed, span)


def cross_validated(model: TableClassifier, table: Table, n_folds: int, seed: int) -> JsonObject:
    """Scores of models like this one, each fitted without one fold of the rows and scored on it.

    The columns and classes of the model have been learned.
    """
    estimator = clone(model.estimator)
    if "checkpoint" in estimator.get_params():  # that of the fit to all rows
        estimator.set_params(checkpoint=None)
    total = ScoreSums(len(model.labels_.values), decision_of(Deciding(), model.labels_))
    losses = []
    for fold in range(n_folds):
        span = (fold / n_folds, (fold + 1) / n_folds)
        part = TableClassifier(**{**model.get_params(deep=False), "estimator": estimator})
        part.fit(HashedRows(table, seed, span, inside=False), model.labels_.target, model.weight_)
        if part.classes_.tolist() != model.labels_.values.tolist():
            raise CommandError(
                f"--cv {n_folds}: a fold lacks one of the classes, so that only the model was written; "
                "use fewer folds"
            )
        rows = HashedRows(table, seed, span)
        sums = evaluation(part, rows, model.weight_, None, total.decision)
        losses.append(sums.nll / float(sums.confusion.sum()))
        total.merge(sums)
        say(f"fold {fold + 1} of {n_folds}: NLL {losses[-1]:.4f}")
    scores = scores_of(model, total)
    error = float(np.std(losses, ddof=1) / np.sqrt(n_folds))
    return {**scores, "folds": n_folds, "nll_of_folds": losses, "nll_standard_error": error}


def held_out_scores(model: TableClassifier, table: Table, weight: str | None, quiet: bool) -> JsonObject:
    """Scores of a model on rows that took no part in its fit."""
    with progress_shown(quiet) as watcher:
        return scores_of(model, evaluation(model, table, weight, watcher))


def in_a_line(scores: JsonObject) -> str:
    """The most important scores.

    >>> scores = {"nll": 0.5, "error": 0.25, "brier": 0.2, "calibration_error": 0.01, "auc": 0.8}
    >>> in_a_line({**scores, "rows": 80, "baseline": {"nll": 0.69}})
    '80 rows: NLL 0.5000 (class frequencies 0.6900), error 25.0%, Brier 0.2000, ECE 0.0100, AUC 0.8000'
    """
    auc = "" if scores["auc"] is None else f", AUC {scores['auc']:.4f}"
    return (
        f"{scores['rows']:,} rows: NLL {scores['nll']:.4f} (class frequencies "
        f"{scores['baseline']['nll']:.4f}), error {scores['error']:.1%}, Brier {scores['brier']:.4f}, "
        f"ECE {scores['calibration_error']:.4f}{auc}"
    )
