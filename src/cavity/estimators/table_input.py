"""What users pass to a table classifier as a table: frames, arrays, files, Dask data frames."""

from __future__ import annotations

import os
from collections.abc import Mapping
from copy import copy
from numbers import Integral
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

import numpy as np
from scipy import sparse
from sklearn.utils import check_array, column_or_1d

from cavity.data.frames import as_arrow
from cavity.data.labelled import numbers_of_labelled_rows
from cavity.data.labels import Classes, whole_labels
from cavity.data.parts import import_arrow
from cavity.data.preprocess import TablePreprocessor
from cavity.data.table import FrameTable, Table, open_table
from cavity.data.weights import WEIGHTS
from cavity.errors import SourceError
from cavity.estimators.base import SparseGPClassifier
from cavity.estimators.parameters import routes
from cavity.text import listed
from cavity.typing import InputLabels, InputRows, InputWeights

if TYPE_CHECKING:
    import pyarrow as pa
    from distributed import Client

    from cavity.estimators.dask import DaskClassifier

LABELS = "(target)"
"""Name of the column that labels get which were passed as an array."""


class ArrayTable(FrameTable):
    """An array as a table. Its numbers keep their precision, as in the other classifiers."""

    def __init__(self, table: pa.Table, precision: str) -> None:
        super().__init__(table, "the array")
        self.precision = precision


def as_table(X: InputRows, client: Client | None = None) -> Table:
    """The table that X means: a data frame, rows, an array, paths or URLs of files, a Dask data frame.

    The columns of an array are x0, x1, … client: the cluster of a Dask data frame; None is the default.

    >>> as_table(np.eye(2)).columns
    ['x0', 'x1']
    """
    if isinstance(X, Table):
        return X
    if is_dask(X):
        from cavity.engines.dask.tables import DaskTable  # Dask is an extra

        return DaskTable(X, client)
    return _array_table(X) if is_array(X) else open_table(X)


def is_dask(X: InputRows) -> bool:
    """Whether X is a lazy collection of Dask."""
    return hasattr(X, "__dask_graph__")


def fits_on_cluster(estimator: SparseGPClassifier | None) -> TypeGuard[DaskClassifier]:
    """Whether a classifier is one of Dask, found out without importing Dask."""
    return isinstance(estimator, SparseGPClassifier) and estimator._on_cluster


def check_place(estimator: SparseGPClassifier | None, X: InputRows) -> None:
    """Raise for a Dask data frame and a classifier of one machine."""
    if is_dask(X) and not fits_on_cluster(estimator):
        raise TypeError(
            f"X is a {type(X).__name__} of Dask; to fit on its cluster, wrap a classifier of Dask, as "
            "in TableClassifier(DaskSEPClassifier(client=client)); to fit here, pass X.compute()"
        )


def is_array(X: InputRows) -> bool:
    """Whether X has no names of columns: an array, a sparse matrix, lists, a numbered frame."""
    if isinstance(X, (list, tuple)):
        return not X or not isinstance(X[0], (str, os.PathLike, Mapping))
    if sparse.issparse(X):
        return True
    if hasattr(X, "columns"):  # pandas numbers columns without names
        return len(X.columns) > 0 and all(isinstance(name, Integral) for name in X.columns)
    if type(X).__name__ == "Series":  # which as_arrow explains
        return False
    return hasattr(X, "__array__") and not hasattr(X, "__arrow_c_stream__")


def _array_table(X: InputRows) -> ArrayTable:
    pa, _ = import_arrow()
    # Missing and infinite cells are what tables have; the columns deal with them.
    values = check_array(X, dtype=None, ensure_all_finite=False)
    try:
        columns = [
            pa.array(column.tolist() if values.dtype.kind in "OUS" else column, from_pandas=True)
            for column in np.ascontiguousarray(values.T)
        ]
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise TypeError(
            f"X has cells that cannot be read ({error}); every argument must be a string or a number, "
            "and those of a column alike: pass a data frame"
        ) from error
    precision = "float32" if values.dtype == np.float32 else "float64"
    names = [f"x{j}" for j in range(len(columns))]
    return ArrayTable(pa.Table.from_arrays(columns, names=names), precision)


def check_width(preprocessor: TablePreprocessor, table: Table) -> None:
    """Raise for an array that has not as many columns as that of the fit."""
    if not isinstance(table, ArrayTable):
        return
    seen = {*preprocessor.columns_, *preprocessor.ignored_} - {LABELS, WEIGHTS}
    found = set(table.columns) - {LABELS, WEIGHTS}
    if len(found) != len(seen):
        raise SourceError(
            f"X has {len(found)} features, but TableClassifier is expecting {len(seen)} features "
            "as input"
        )


def take_leaves(
    classifier: SparseGPClassifier, table: Table, classes: Classes, weight: str | None
) -> None:
    """Leave rows without a target or a weight out of `leaves` too, if it is an array of all rows."""
    leaves = classifier._router
    if leaves is None or routes(leaves):
        return
    given = np.asarray(leaves)
    numbers, n_rows = numbers_of_labelled_rows(table, classes, weight)
    if given.shape != (n_rows,):
        raise ValueError(
            f"leaves is an array of shape {given.shape}, and {table.name} has {n_rows:,} rows; pass a "
            "leaf number for each row, how many leaves there are, or an estimator with apply or predict"
        )
    classifier.set_params(leaves=given[numbers])


class LabelledTable(NamedTuple):
    """A table with labels."""

    table: Table
    target: str
    """Name of the column of labels."""
    weight: str | None
    """Name of the column of weights, if there is one."""

    def check_columns(self) -> None:
        """Raise if the table lacks one of these columns."""
        self.table.require(self.target, "target column")
        if self.weight is not None:
            self.table.require(self.weight, "weight column")


def training_table(
    X: InputRows, y: InputLabels, sample_weight: InputWeights, client: Client | None = None
) -> LabelledTable:
    """The table that X means with labels and weights as columns, and the names of these columns."""
    table, target = _with_column(as_table(X, client), y, "y", LABELS)
    if sample_weight is None:
        return LabelledTable(table, target, None)
    table, weight = _with_column(table, sample_weight, "sample_weight", WEIGHTS)
    return LabelledTable(table, target, weight)


def validation_table(
    X: InputRows,
    y: InputLabels,
    sample_weight: InputWeights,
    target: InputLabels,
    client: Client | None = None,
) -> LabelledTable | None:
    """The table of the user's own validation rows, if there are any.

    target: the labels of the training rows; if they are a column, that of the same name is the default.
    """
    if X is None:
        given = [
            name for name, v in (("y_val", y), ("sample_weight_val", sample_weight)) if v is not None
        ]
        if given:
            raise ValueError(f"{' and '.join(given)} without X_val; pass it, or leave both out")
        return None
    if y is None:
        if not isinstance(target, str):
            raise ValueError("X_val without y_val; pass both, or neither")
        y = target
    try:
        validation = training_table(X, y, sample_weight, client)
        validation.check_columns()
    except (SourceError, TypeError) as error:
        raise type(error)(f"X_val: {error}") from error
    return validation


def _with_column(
    table: Table, values: InputLabels | InputWeights, what: str, name: str
) -> tuple[Table, str]:
    """The table with labels or weights as a column, and that column's name."""
    if isinstance(values, str):
        return table, values
    if values is None and what == "y":
        raise SourceError(
            "TableClassifier requires y to be passed, but the target y is None; it is the name of the "
            "target column, or an array of labels"
        )
    if not isinstance(table, FrameTable):
        role = "target" if what == "y" else "column of weights"
        raise SourceError(
            f"{what} is a {type(values).__name__}; for {table.name}, it is the name of the {role}"
        )
    array = np.asarray(whole_labels(values))
    if array.ndim == 2 and array.shape[1] == 1:
        array = column_or_1d(array, warn=True)
    if array.ndim == 0:
        raise SourceError(
            f"{what}={values!r} is neither the name of a column nor an array with a value for each row; "
            f"{table.name} has the columns {listed(table.columns)}"
        )
    if array.shape != (table.n_rows,):
        raise SourceError(
            f"{what} has shape {array.shape}, but {table.name} has {table.n_rows} rows; pass one value "
            "a row"
        )
    if name in table.columns:
        raise SourceError(f"{table.name} has a column named {name!r}; rename it")
    column = as_arrow({name: array.tolist()}).column(0)
    wider = copy(table)
    wider.table = table.table.append_column(name, column)
    wider.columns = [*table.columns, name]
    return wider, name
