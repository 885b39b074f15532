"""Dask collections as partitions: pieces of rows that workers read and check."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import dask
import dask.array
import dask.dataframe
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cavity.data.labels import any_missing, encode_labels
from cavity.data.opening import target_name, weight_name
from cavity.data.source import booleans_as_integers, tile_precision
from cavity.data.weights import check_weights
from cavity.errors import SourceError
from cavity.typing import AnyArray, AnyDtype, InputLabels, InputRows, InputWeights, IntArray

if TYPE_CHECKING:
    import pandas as pd
    from dask.delayed import Delayed

DaskColumn: TypeAlias = "dask.array.Array | dask.dataframe.Series"
"""Labels or weights, in the partitions of X."""

PartitionRows: TypeAlias = Any
"""Rows of one partition as the worker has them: a pandas DataFrame, an array or a sparse matrix."""

_ALIKE = (
    "partition both in the same way, for instance by taking both from one frame, or with rechunk or "
    "repartition"
)
"""The way out of X, y and weights that are not partitioned alike."""


class Partition(NamedTuple):
    """Some rows of a table, checked, as arrays."""

    X: AnyArray
    y: AnyArray
    weight: NDArray[np.float64] | None = None


class PartitionSummary(NamedTuple):
    """Sizes and classes of a partition, for the driver."""

    n_rows: int
    n_features: int
    classes: AnyArray
    totals: NDArray[np.float64]
    """Weight of each of the classes."""
    dtype: AnyDtype


@dataclass(frozen=True)
class LazyTable:
    """A table in partitions that have not been read."""

    partitions: list[Delayed]
    """Delayed `Partition`s."""
    feature_names: AnyArray | None
    feature_sets: Mapping[str, int] = field(default_factory=dict)
    """Sets of features to choose from; see `RowSource.feature_sets`."""
    reserved: IntArray | None = None
    """Sorted numbers of the rows to hold out; see `RowSource.reserved`."""


def lazy_table(X: InputRows, y: InputLabels, sample_weight: InputWeights = None) -> LazyTable:
    """The partitions of X, y and their weights; reads no rows."""
    if isinstance(X, LazyTable):
        return X
    if isinstance(X, (str, os.PathLike)):
        X, y, sample_weight = _parquet(os.fspath(X), y, sample_weight)
    if isinstance(X, dask.dataframe.DataFrame):
        return _from_frame(X, y, sample_weight)
    if isinstance(X, dask.array.Array):
        return _from_array(X, y, sample_weight)
    raise TypeError(
        f"X is a {type(X).__name__}; this classifier takes a Dask array or DataFrame, or the path or "
        "URL of Parquet files with y the name of the target column. Use cavity.SEPClassifier or "
        "cavity.SVIClassifier for other data, or dask.array.from_array(X, chunks=...)"
    )


def summarise(partition: Partition) -> PartitionSummary:
    """Sizes and classes of a partition; runs on a worker."""
    X, y, weight = partition
    classes, codes = encode_labels(y)
    totals = np.bincount(codes, weight, len(classes)).astype(np.float64)
    return PartitionSummary(X.shape[0], X.shape[1], classes, totals, X.dtype)


def _parquet(
    path: str, y: InputLabels, sample_weight: InputWeights
) -> tuple[dask.dataframe.DataFrame, dask.dataframe.Series, dask.dataframe.Series | None]:
    what = f"the Parquet data in {path}"
    target, weight = target_name(y, what), weight_name(sample_weight, what)
    try:
        table = dask.dataframe.read_parquet(path)
    except FileNotFoundError as error:
        raise SourceError(f"{path}: there is no such file or folder of Parquet files") from error
    if target not in table.columns:
        raise SourceError(f"{path}: has no target column {target!r}; it has {list(table.columns)}")
    if weight is None:
        return table.drop(columns=[target]), table[target], None
    if weight not in table.columns or weight == target:
        raise SourceError(
            f"sample_weight={weight!r}: for {what} it is the name of a column other than the target; "
            f"they are {[name for name in table.columns if name != target]}"
        )
    return table.drop(columns=[target, weight]), table[target], table[weight]


def _from_frame(X: dask.dataframe.DataFrame, y: InputLabels, sample_weight: InputWeights) -> LazyTable:
    dtype = _frame_precision(X)
    if isinstance(y, str):
        raise SourceError(f"y={y!r}: with a Dask DataFrame, y is a Series, for instance frame[{y!r}]")
    names = np.array(list(X.columns), dtype=object)
    named = all(isinstance(name, str) for name in names)
    # Not optimised: Dask would read fewer columns in fewer and larger partitions, for y and X apart.
    blocks = X.to_delayed(optimize_graph=False)
    columns = _columns_of(y, sample_weight)
    return LazyTable(_partitions(blocks, *columns, dtype, list(names)), names if named else None)


def _from_array(X: dask.array.Array, y: InputLabels, sample_weight: InputWeights) -> LazyTable:
    if X.ndim != 2:
        raise ValueError(f"X has {X.ndim} dimensions; it must have two, [n, d]")
    if X.dtype.kind not in "biuf":
        raise ValueError(f"X has dtype {X.dtype}; convert it to numbers first")
    X = X.rechunk({1: -1})
    columns = _columns_of(_chunked_like(X, y), _chunked_like(X, sample_weight))
    return LazyTable(_partitions(X.to_delayed().ravel(), *columns, None, None), None)


def _chunked_like(X: dask.array.Array, column: DaskColumn) -> DaskColumn:
    if (
        isinstance(column, dask.array.Array)
        and not np.isnan(X.shape[0])
        and not np.isnan(column.shape[0])
        and X.shape[0] == column.shape[0]
        and column.chunks[0] != X.chunks[0]
    ):
        return column.rechunk((X.chunks[0],))
    return column


def _columns_of(
    y: DaskColumn, sample_weight: DaskColumn | None
) -> tuple[Sequence[Delayed], Sequence[Delayed] | None]:
    weight = None if sample_weight is None else _column_blocks(sample_weight, "sample_weight")
    return _column_blocks(y, "y"), weight


def _column_blocks(column: DaskColumn, name: str) -> list[Delayed]:
    if isinstance(column, dask.dataframe.Series):
        return list(column.to_delayed(optimize_graph=False))
    if isinstance(column, dask.array.Array):
        if column.ndim != 1:
            raise ValueError(f"{name} has {column.ndim} dimensions; it must have one, [n]")
        return list(column.to_delayed().ravel())
    raise TypeError(
        f"{name} is a {type(column).__name__}; with Dask rows it must be a Dask array or Series, "
        "partitioned as X is"
    )


def _partitions(
    X: Sequence[Delayed],
    y: Sequence[Delayed],
    weight: Sequence[Delayed] | None,
    dtype: AnyDtype | None,
    names: list[str] | None,
) -> list[Delayed]:
    for name, column in (("y", y), ("sample_weight", weight)):
        if column is not None and len(X) != len(column):
            raise ValueError(f"X has {len(X)} partitions and {name} has {len(column)}; {_ALIKE}")
    prepare = dask.delayed(_checked_partition)
    weights = [None] * len(X) if weight is None else weight
    blocks = zip(X, y, weights, strict=True)
    return [prepare(x, labels, w, i, dtype, names) for i, (x, labels, w) in enumerate(blocks)]


def _checked_partition(
    X: PartitionRows,
    y: pd.Series | AnyArray,
    weight: pd.Series | AnyArray | None,
    number: int,
    dtype: AnyDtype | None,
    names: list[str] | None,
) -> Partition:
    """Check blocks of X, y and weights, and make arrays of them; runs on a worker."""
    if dtype is not None:
        X = X.to_numpy(dtype=dtype, na_value=np.nan)
    elif sparse.issparse(X):
        X = X.toarray()
    X = booleans_as_integers(np.ascontiguousarray(X))
    labels = np.asarray(y)
    if len(X) != len(labels):
        raise ValueError(f"partition {number} of X has {len(X)} rows, of y {len(labels)}; {_ALIKE}")
    if X.dtype.kind == "f" and not np.isfinite(X).all():
        row, column = np.argwhere(~np.isfinite(X))[0]
        which = column if names is None else repr(names[column])
        raise ValueError(
            f"X has NaN or infinite values: {X[row, column]} in partition {number}, row {row}, column "
            f"{which}; impute such values or drop their rows"
        )
    return Partition(X, _checked_labels(labels, number), _checked_weight(weight, len(X), number))


def _checked_weight(
    weight: pd.Series | AnyArray | None, n_rows: int, number: int
) -> NDArray[np.float64] | None:
    if weight is None:
        return None
    values: NDArray[np.float64] = np.asarray(weight, dtype=np.float64)
    if len(values) != n_rows:
        raise ValueError(
            f"partition {number} of X has {n_rows} rows, of sample_weight {len(values)}; {_ALIKE}"
        )
    check_weights(values, place=f"partition {number}")
    return values


def _checked_labels(labels: AnyArray, number: int) -> AnyArray:
    is_object = labels.dtype.kind == "O"
    if any_missing(labels) or (is_object and any(value is None for value in labels)):
        raise ValueError(f"y has missing values in partition {number}; drop their rows")
    if is_object and len(labels):
        labels = np.array(labels.tolist())
    return labels


def plain_dtypes(frame: dask.dataframe.DataFrame | pd.DataFrame) -> list[AnyDtype]:
    """The types of the columns of a data frame, those of pandas as NumPy's where there is one."""
    return [getattr(kind, "numpy_dtype", kind) for kind in frame.dtypes]


def _frame_precision(X: dask.dataframe.DataFrame) -> AnyDtype:
    dtypes, refused = [], []
    for name, kind, plain in zip(X.columns, X.dtypes, plain_dtypes(X), strict=True):
        if isinstance(plain, np.dtype) and plain.kind in "biuf":
            dtypes.append(np.dtype(np.uint8) if plain.kind == "b" else plain)
        else:
            refused.append(f"{name!r} ({kind})")
    if refused:
        raise ValueError(
            f"X has columns that are not numeric: {', '.join(refused)}; use TableClassifier with this "
            "classifier as its estimator, encode them as numbers, or leave them out"
        )
    if not dtypes:
        raise ValueError("X has no columns")
    return tile_precision(np.result_type(*dtypes))
