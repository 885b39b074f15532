"""What a plot varies: the features of an array, or the columns of a data frame of a table classifier."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, TypeGuard, cast

import numpy as np
from sklearn.utils.validation import check_is_fitted

from cavity.data.columns import BOOLEAN, DATE, NUMERIC, CategoricalEncoder, coerced
from cavity.data.frames import as_arrow
from cavity.data.labels import Classes, positive_class, whole_labels
from cavity.data.parts import import_arrow
from cavity.data.preprocess import TablePreprocessor
from cavity.gp.relevance import Relevance
from cavity.inference.fitted import FittedClassifier, names_of_features
from cavity.inference.history import Iteration
from cavity.plot.canvas import dense, n_rows, take_rows
from cavity.text import listed
from cavity.typing import AnyArray, Array, FeatureNames, InputLabels, InputRows, IntArray

if TYPE_CHECKING:
    import pyarrow as pa


class FittedTable(Protocol):
    """What plots ask of a fitted table classifier."""

    classes_: AnyArray
    estimator_: FittedClassifier
    preprocessor_: TablePreprocessor
    labels_: Classes
    n_features_in_: int
    relevance_: Relevance
    history_: list[Iteration]

    def predict_proba(self, X: InputRows) -> Array:
        """Probabilities [n, C] of the classes."""


Plottable: TypeAlias = FittedClassifier | FittedTable
"""A fitted classifier of arrays or of tables."""


class Grid(NamedTuple):
    """Values of a column to predict at."""

    positions: AnyArray
    """[g]: where they are on an axis, numbers or dates."""
    cells: AnyArray | pa.Array
    """[g]: the values, as rows have them."""
    labels: tuple[str, ...] | None = None
    """[g]: names of the values, if they are categories."""

    @property
    def has_values(self) -> bool:
        """Whether there are any: a column may be missing in all rows."""
        return len(self.positions) > 0


class Columns(ABC):
    """Columns of some rows of the user, and the classifier's inputs when some of them are changed."""

    fitted: FittedClassifier
    """The classifier of arrays that predicts."""
    names: list[str]
    n_rows: int
    labels: AnyArray | None
    """[n]: the labels of these rows, if they are known."""

    def position(self, feature: int | str) -> int:
        """The position of a column that is given by number or by name."""
        if isinstance(feature, str):
            if feature not in self.names:
                raise ValueError(f"feature={feature!r} is not one of {self.names}")
            return self.names.index(feature)
        d = len(self.names)
        if not isinstance(feature, Integral) or not -d <= feature < d:
            raise ValueError(
                f"feature={feature!r} is not a column; give a name, or a number from 0 to {d - 1}"
            )
        return int(feature)

    @abstractmethod
    def values(self, j: int) -> AnyArray:
        """Values [n] of column j: numbers, dates or strings; NaN, NaT or None where one is missing."""

    @abstractmethod
    def numbers(self, j: int) -> Array:
        """Values [n] of column j, or a ValueError if they are not numbers."""

    @abstractmethod
    def grid(self, j: int, n_grid: int) -> Grid:
        """Values of column j: all if they are few, else evenly spaced ones."""

    @abstractmethod
    def inputs(self, rows: IntArray | None, changed: Mapping[int, AnyArray | pa.Array]) -> Array:
        """Inputs [k, d] of the classifier at these rows, with columns replaced by other cells [k].

        Without rows: at k copies of a typical row.
        """

    @abstractmethod
    def points(self, j: int) -> Array:
        """Inducing points [m] in the units of column j."""


class ArrayColumns(Columns):
    """The features of an array."""

    def __init__(
        self,
        estimator: FittedClassifier,
        X: InputRows,
        y: InputLabels = None,
        *,
        feature_names: FeatureNames = None,
        max_rows: int = 10_000,
    ) -> None:
        self.fitted = estimator
        self.names = names_of_features(estimator, feature_names)
        chosen = spaced(0 if X is None else n_rows(X), max_rows)
        self.rows = np.empty((0, len(self.names))) if X is None else dense(take_rows(X, chosen))
        self.n_rows = len(self.rows)
        self.labels = None if y is None else np.asarray(y)[chosen]

    def values(self, j: int) -> AnyArray:
        """Values [n] of a feature."""
        return self.numbers(j)

    def numbers(self, j: int) -> Array:
        """Values [n] of a feature."""
        return np.asarray(self.rows[:, j], dtype=np.float64)

    def grid(self, j: int, n_grid: int) -> Grid:
        """Values of a feature."""
        values = grid_of(self.numbers(j), n_grid)
        return Grid(values, values)

    def inputs(self, rows: IntArray | None, changed: Mapping[int, AnyArray | pa.Array]) -> Array:
        """Rows, or medians of the features, with some features replaced."""
        if rows is not None:
            inputs = np.array(self.rows[rows], dtype=np.float64)
        else:
            (k,) = {len(cells) for cells in changed.values()}
            inputs = np.repeat(np.median(self.rows, axis=0)[None].astype(float), k, axis=0)
        for j, cells in changed.items():
            inputs[:, j] = cells
        return inputs

    def points(self, j: int) -> Array:
        """The inducing points in the plane of a feature."""
        return self.fitted.model_.inducing_points[:, j]


class TableColumns(Columns):
    """The columns of a data frame, as a table classifier knows them."""

    def __init__(
        self, model: FittedTable, X: InputRows, y: InputLabels = None, *, max_rows: int = 10_000
    ) -> None:
        self.fitted, self.preprocessor = model.estimator_, model.preprocessor_
        self.encoders = self.preprocessor.encoders_
        self.names = self.preprocessor.columns_
        table = frame_of({name: [] for name in self.names} if X is None else X)
        self.preprocessor.check_columns(table.schema.names, "the data frame")
        chosen = spaced(table.num_rows, max_rows)
        self.table = self._as_learned(table.select(self.names).take(chosen).combine_chunks())
        self.n_rows = len(chosen)
        labels = label_values(table, y, model.labels_)
        self.labels = None if labels is None else labels[chosen]

    def values(self, j: int) -> AnyArray:
        """Values [n] of a column as what it holds: numbers, dates (in microseconds) or strings."""
        kind = self.encoders[j].kind
        if kind == NUMERIC:
            return self._numbers(j)
        cells = self._coerced(j)
        if kind == DATE:
            return np.asarray(cells.to_numpy(zero_copy_only=False), dtype="datetime64[us]")
        words = [None if value is None else str(value) for value in cells.to_pylist()]
        return np.array(words, dtype=object)

    def numbers(self, j: int) -> Array:
        """Values [n] of a numeric column, NaN where they are missing."""
        if self.encoders[j].kind != NUMERIC:
            numeric = [encoder.column for encoder in self.encoders if encoder.kind == NUMERIC]
            raise ValueError(
                f"features has {self.names[j]!r}, which is {self.encoders[j].kind}; a plane needs two "
                f"numeric columns, and those are {listed(numeric)}"
            )
        return self._numbers(j)

    def _numbers(self, j: int) -> Array:
        return np.asarray(self._coerced(j).to_numpy(zero_copy_only=False), dtype=np.float64)

    def _coerced(self, j: int) -> pa.Array:
        pa, _ = import_arrow()
        column = self.table.column(j)
        whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        return coerced(whole, self.encoders[j].kind, self.names[j])

    def grid(self, j: int, n_grid: int) -> Grid:
        """Numbers, dates, or all levels of a column of categories."""
        pa, _ = import_arrow()
        encoder = self.encoders[j]
        if encoder.kind == BOOLEAN:
            return Grid(np.arange(2), pa.array([False, True]), ("False", "True"))
        if isinstance(encoder, CategoricalEncoder):
            levels: list[str | None] = list(encoder.levels)
            levels += [None] if encoder.marks_missing else []
            words = tuple("(missing)" if level is None else level for level in levels)
            return Grid(np.arange(len(levels)), pa.array(levels, pa.string()), words)
        values = self._coerced(j).drop_null()
        if encoder.kind == DATE:
            moments = grid_of(values.cast(pa.int64()).to_numpy().astype(np.float64), n_grid)
            dates = moments.astype(np.int64).astype("datetime64[us]")
            return Grid(dates, pa.array(dates))
        numbers = values.to_numpy(zero_copy_only=False).astype(np.float64)
        found = grid_of(numbers[np.isfinite(numbers)], n_grid)
        return Grid(found, pa.array(found))

    def inputs(self, rows: IntArray | None, changed: Mapping[int, AnyArray | pa.Array]) -> Array:
        """Features of rows, or of the commonest values, with some columns replaced."""
        pa, _ = import_arrow()
        if rows is not None:
            table = self.table.take(rows)
        else:
            (k,) = {len(cells) for cells in changed.values()}
            table = self._typical().take(np.zeros(k, dtype=np.int64))
        for j, cells in changed.items():
            table = table.set_column(j, self.names[j], [pa.array(cells)])
        return self.preprocessor.transform(table)

    def _as_learned(self, table: pa.Table) -> pa.Table:
        """Text as the numbers and dates that the model has learned to read in it."""
        pa, _ = import_arrow()
        batches = [self.preprocessor.typed(batch) for batch in table.to_batches()]
        return pa.Table.from_batches(batches) if batches else table

    def _typical(self) -> pa.Table:
        """A single row: medians of numbers and dates, and the commonest of other values."""
        pa, pc = import_arrow()
        cells = []
        for j, encoder in enumerate(self.encoders):
            values = self._coerced(j)
            if encoder.kind == NUMERIC:
                numbers = self._numbers(j)
                known = numbers[np.isfinite(numbers)]
                cells.append(pa.array([float(np.median(known)) if len(known) else None], pa.float64()))
            elif encoder.kind == DATE:
                middle = values.drop_null().sort()
                cells.append(middle.slice(len(middle) // 2, 1) if len(middle) else values.slice(0, 1))
            else:
                counts = pc.value_counts(values)
                cells.append(counts.field("values").take([int(np.argmax(counts.field("counts")))]))
        return pa.Table.from_arrays(cells, names=self.names)

    def points(self, j: int) -> Array:
        """The inducing points at the feature that has the numbers of a column."""
        before = sum(len(encoder.features) for encoder in self.encoders[:j])
        return self.fitted.model_.inducing_points[:, before]


def columns_of(
    estimator: Plottable,
    X: InputRows,
    y: InputLabels = None,
    *,
    feature_names: FeatureNames = None,
    max_rows: int = 10_000,
) -> Columns:
    """Columns of up to `max_rows` evenly spaced rows X, with their labels y."""
    check_is_fitted(estimator)
    if is_table_classifier(estimator):
        return TableColumns(estimator, X, y, max_rows=max_rows)
    fitted = cast(FittedClassifier, estimator)
    return ArrayColumns(fitted, X, y, feature_names=feature_names, max_rows=max_rows)


def positive_label(estimator: Plottable, pos_label: object = None) -> object:
    """The class that plots are about: `pos_label`, or the positive one of two classes.

    A table classifier knows how often each class occurred, so that the rarer one may be the positive
    one; see `cavity.data.labels.positive_class`. None with more classes and no label.
    """
    classes = np.asarray(estimator.classes_)
    if pos_label is not None or len(classes) != 2:
        return pos_label
    counts = estimator.labels_.counts if is_table_classifier(estimator) else np.ones(2)
    return classes.tolist()[positive_class(classes, counts)]


def class_code(classes: AnyArray, pos_label: object) -> int:
    """Position of a label among the classes [C].

    >>> class_code(np.array(["a", "b"]), "b")
    1
    """
    found = [code for code, value in enumerate(classes.tolist()) if value == pos_label]
    if len(found) != 1:
        raise ValueError(f"pos_label={pos_label!r} is not one of the classes {classes.tolist()}")
    return found[0]


def is_table_classifier(estimator: Plottable) -> TypeGuard[FittedTable]:
    """Whether an estimator is a fitted table classifier."""
    return isinstance(vars(estimator).get("preprocessor_"), TablePreprocessor)


def frame_of(X: InputRows) -> pa.Table:
    """The Arrow table of a data frame, or of an array, whose columns are x0, x1, …"""
    if isinstance(X, np.ndarray):
        return as_arrow({f"x{j}": X[:, j] for j in range(X.shape[1])})
    return as_arrow(X)


def label_values(table: pa.Table, y: InputLabels, classes: Classes | None = None) -> AnyArray | None:
    """Labels [n]: those given, or those of the column that y names, as the classes are spelled."""
    if isinstance(y, str):
        if y not in table.schema.names:
            raise ValueError(f"y={y!r} is not a column of the data frame; it has {table.schema.names}")
        y = table.column(y).to_pylist()
    if y is None:
        return None
    labels = np.asarray(whole_labels(y))
    return labels if classes is None else classes.spelled(labels)


def spaced(n: int, size: int) -> IntArray:
    """Numbers of up to `size` of n rows, evenly spaced."""
    return np.unique(np.linspace(0, max(n - 1, 0), min(n, size)).astype(int))


def grid_of(values: Array, n_grid: int) -> Array:
    """Grid of values of a feature: its distinct values if they are few, else evenly spaced ones.

    >>> grid_of(np.array([3.0, 1.0, 3.0]), 10).tolist()
    [1.0, 3.0]
    """
    few = np.unique(values)
    if len(few) <= n_grid:
        return few
    low, high = np.quantile(values, [0.02, 0.98])
    return np.linspace(low, high, n_grid) if high > low else few[[0, -1]]


def two_positions(columns: Columns, features: Sequence[int | str]) -> tuple[int, int]:
    """Positions of two columns that are given by number or by name.

    >>> from types import SimpleNamespace
    >>> columns = SimpleNamespace(names=["distance", "age"])
    >>> two_positions(columns, ("age", 0))
    (1, 0)
    """
    names, found = columns.names, []
    for feature in features:
        if isinstance(feature, str):
            if feature not in names:
                raise ValueError(f"features has {feature!r}, which is not one of {names}")
            found.append(names.index(feature))
        elif 0 <= int(feature) < len(names):
            found.append(int(feature))
        else:
            raise ValueError(
                f"features has the column {feature}; columns are counted from 0 to {len(names) - 1}"
            )
    if len(found) != 2 or found[0] == found[1]:
        raise ValueError(f"features={features!r} is not valid; give two different columns")
    return found[0], found[1]
