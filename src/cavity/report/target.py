"""The classifier that a report is about, the rows that it shows, and what it calls a column."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline

from cavity.data.labels import positive_class
from cavity.data.source import Source
from cavity.data.table import open_table
from cavity.estimators.facts import FitFacts, fit_facts, fitted_classifier
from cavity.estimators.table_input import is_array
from cavity.estimators.table_prediction import LabelledTableRows
from cavity.estimators.validation import validated_rows
from cavity.gp.relevance import Relevance
from cavity.inference.fitted import names_of_features
from cavity.plot.canvas import dense, n_rows, take_rows
from cavity.plot.columns import (
    ArrayColumns,
    Columns,
    Plottable,
    TableColumns,
    class_code,
    frame_of,
    is_table_classifier,
)
from cavity.text import printable, suggestion
from cavity.typing import Array, FeatureNames, InputLabels, InputRows, IntArray

if TYPE_CHECKING:
    from cavity.estimators.base import SparseGPClassifier
    from cavity.estimators.table import TableClassifier


@dataclass(frozen=True)
class ReportTarget:
    """A fitted classifier of cavity, on its own or inside a table classifier or a pipeline."""

    classifier: SparseGPClassifier
    names: list[str]
    """[d]: names of the classifier's inputs."""
    prepare: Callable[[InputRows], Array]
    """Turns rows of the user [n, …] into inputs [n, d]."""
    transforms: bool
    """Whether the inputs differ from the columns of the user's rows."""
    facts: FitFacts
    table: TableClassifier | None = None
    """The table classifier, if it is one."""
    positive: int | None = None
    """Code of the class that thresholds and curves are about; None with more than two classes."""

    @property
    def classes(self) -> list[str]:
        """Names of the classes."""
        return [printable(str(value)) for value in self.classifier.classes_]

    @property
    def positive_label(self) -> object:
        """The class that the report is about, or None."""
        classes = np.asarray(self.classifier.classes_).tolist()
        return None if self.positive is None else classes[self.positive]

    @property
    def relevance(self) -> Relevance:
        """Relevance of the columns of a table, or of the classifier's inputs."""
        return self.classifier.relevance_ if self.table is None else self.table.relevance_

    @property
    def notes(self) -> list[str]:
        """What became of other columns and rows of the training table."""
        return [] if self.table is None else self.table.notes_

    def about(self, pos_label: object, codes: IntArray) -> ReportTarget:
        """The target with its positive class; codes [n]: those of some rows, if they are the best known.

        It is `pos_label`, or the positive one of two classes: see `cavity.data.labels.positive_class`.
        """
        classes = np.asarray(self.classifier.classes_)
        if pos_label is not None:
            return replace(self, positive=class_code(classes, pos_label))
        if len(classes) != 2:
            return self
        counts = np.bincount(codes, minlength=2) if self.table is None else self.table.labels_.counts
        return replace(self, positive=positive_class(classes, counts))

    def codes(self, y: InputLabels) -> IntArray:
        """Positions of labels y [n] among the classes."""
        labels, known = np.asarray(y), np.asarray(self.classifier.classes_)
        if self.table is not None:
            labels = self.table.labels_.spelled(labels)
        codes = np.searchsorted(known, labels).clip(0, len(known) - 1)
        unknown = known[codes] != labels
        if unknown.any():
            raise ValueError(
                f"y has the label {labels[unknown].tolist()[0]!r}, but the classifier knows "
                f"{known.tolist()}; leave such rows out of the report"
            )
        return codes


def report_target(estimator: BaseEstimator, feature_names: FeatureNames = None) -> ReportTarget:
    """Find the classifier in an estimator, a scikit-learn pipeline or a table classifier."""
    classifier, facts = fitted_classifier(estimator), fit_facts(estimator)
    if classifier is estimator:
        names = [printable(name) for name in names_of_features(classifier, feature_names)]

        def validated(X: InputRows) -> Array:
            return dense(validated_rows(classifier, X))

        return ReportTarget(classifier, names, validated, False, facts)
    before = estimator[:-1] if isinstance(estimator, Pipeline) else estimator
    if feature_names is None and hasattr(before, "get_feature_names_out"):
        feature_names = before.get_feature_names_out()
    names = [printable(name) for name in names_of_features(classifier, feature_names)]
    table = cast("TableClassifier", estimator) if is_table_classifier(estimator) else None
    return ReportTarget(classifier, names, lambda X: dense(before.transform(X)), True, facts, table)


@dataclass(frozen=True)
class GivenRows:
    """Rows of the user."""

    target: ReportTarget
    X: InputRows
    """[n, …]: an array, a data frame, or what has a length and `take`, which returns a frame."""
    y: InputLabels
    """[n]"""
    ids: tuple[str, ...] = ()
    """Columns that name the rows."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return n_rows(self.X)


def given_rows(
    target: ReportTarget, X: InputRows, y: InputLabels, ids: Sequence[str] | None
) -> GivenRows:
    """Rows as `write_report` takes them: X, y and the names of columns that name the rows."""
    table = target.table
    if isinstance(X, (str, os.PathLike)):
        if table is None:
            raise TypeError(
                f"X={str(X)!r} is a path; pass rows, since only table classifiers read files"
            )
        X = LabelledTableRows(table, open_table(os.fspath(X)), ids=ids)
        y = X.labels
    elif table is not None and not isinstance(X, LabelledTableRows):
        X = frame_of(np.asarray(X)) if is_array(X) else X if hasattr(X, "columns") else frame_of(X)
        if y is None or isinstance(y, str):
            X, y = _labelled(table, X, table.target_ if y is None else y)
    there = X.ids if isinstance(X, LabelledTableRows) else column_names(X)
    if ids is None:
        ids = [] if table is None else [n for n in table.preprocessor_.identifiers_ if n in there]
    for name in ids:
        if name not in there:
            raise ValueError(f"ids has {name!r}, which X does not have{suggestion(name, there)}")
    return GivenRows(target, X, y, tuple(ids))


def _labelled(table: TableClassifier, X: InputRows, column: str | None) -> tuple[InputRows, InputLabels]:
    """The rows of a data frame that have a label in a column, and their labels."""
    frame = frame_of(X)
    if column is None or column not in frame.schema.names:
        raise ValueError(f"y={column!r} is not a column of X; pass the labels [n] as y, or its name")
    codes = table.labels_.codes(frame.column(column).combine_chunks())
    known = codes >= 0
    return take_rows(X, np.flatnonzero(known)), table.classes_[codes[known]]


@dataclass(frozen=True)
class ReportRows:
    """Some labelled rows, as the classifier sees them and as the user knows them."""

    index: IntArray
    """[k]: their numbers, counted from 0."""
    X: Array
    """[k, d]: inputs of the classifier."""
    codes: IntArray
    """[k]: positions of their labels among the classes."""
    frame: InputRows | None = None
    """The same rows as a data frame of the user, if the inputs were made from its columns."""
    ids: tuple[str, ...] = ()
    """Columns of the frame that name the rows."""

    def at(self, positions: IntArray) -> ReportRows:
        """Select rows by their positions among these."""
        frame = None if self.frame is None else take_rows(self.frame, positions)
        return replace(
            self,
            index=self.index[positions],
            X=self.X[positions],
            codes=self.codes[positions],
            frame=frame,
        )

    def numbered(self, numbers: IntArray) -> ReportRows:
        """Select rows by their numbers."""
        return self.at(np.flatnonzero(np.isin(self.index, numbers)))


def rows_at(rows: GivenRows | Source, numbers: IntArray) -> ReportRows:
    """Fetch rows by number, sorted and without repeats; a source in files is read through once.

    >>> from cavity.data import ArraySource
    >>> source = ArraySource(np.eye(4), np.array([0, 1, 1, 0]))
    >>> rows_at(source, np.array([2, 0])).codes.tolist()
    [0, 1]
    """
    wanted: IntArray = np.unique(numbers)
    if isinstance(rows, GivenRows):
        target, X = rows.target, take_rows(rows.X, wanted)
        known = (target.transforms or rows.ids) and column_names(X)
        return ReportRows(
            wanted,
            target.prepare(without_columns(X, rows.ids) if target.table is None else X),
            target.codes(take_rows(rows.y, wanted)),
            X if known else None,
            rows.ids,
        )
    found = rows.take(wanted)
    return ReportRows(wanted, found.X, found.labels)


def without_columns(frame: InputRows, names: Sequence[str]) -> InputRows:
    """A data frame without some columns, which only name its rows."""
    return frame[[name for name in column_names(frame) if name not in names]] if names else frame


def column_names(frame: InputRows) -> list[str]:
    """Names of the columns of a data frame or Arrow table; none of an array."""
    names = getattr(frame, "column_names", None)
    return list(getattr(frame, "columns", []) if names is None else names)


def column_cells(frame: InputRows, name: str) -> list[object]:
    """Values of a column of a data frame or Arrow table."""
    column = frame[name]
    return list(column.to_list() if hasattr(column, "to_list") else column.to_pylist())


def sample_index(n: int, size: int, seed: int) -> IntArray:
    """Draw up to `size` of n row numbers at random, sorted."""
    if n <= size:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, size, replace=False))


class View(NamedTuple):
    """Rows by what the reader knows as columns: those of a table, or the inputs of the classifier."""

    estimator: Plottable
    X: InputRows
    """[n, …]: a data frame for a table classifier, else an array."""
    columns: Columns
    names: list[str]
    """Names of the columns, for print."""
    order: IntArray
    """Positions of the columns, the most relevant first."""


def view_of(target: ReportTarget, rows: ReportRows) -> View:
    """Rows by the columns of the user's table, or by the inputs of the classifier if it has none."""
    columns: Columns
    if target.table is not None and rows.frame is not None:
        columns = TableColumns(target.table, rows.frame, max_rows=len(rows.index))
        estimator: Plottable = target.table
        X, relevance = rows.frame, target.table.relevance_
    else:
        estimator, X, relevance = target.classifier, rows.X, target.classifier.relevance_
        columns = ArrayColumns(estimator, X, feature_names=target.names, max_rows=len(rows.index))
    order: IntArray = np.argsort(-relevance.value, kind="stable")
    return View(estimator, X, columns, [printable(name) for name in columns.names], order)
