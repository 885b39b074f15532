"""From what a user passes to partitions: lazy pieces of a table that a worker makes into arrays."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, NamedTuple

import dask
import dask.array
import dask.dataframe
import numpy as np
from numpy.typing import NDArray

from cavity.errors import SourceError
from cavity.sources.blocks import tile_precision


class Partition(NamedTuple):
    """Some rows of a table, checked, as arrays."""

    X: NDArray[Any]
    y: NDArray[Any]


class Census(NamedTuple):
    """What the driver needs to know of a partition."""

    n_rows: int
    n_features: int
    classes: NDArray[Any]
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class LazyTable:
    """A table in partitions that have not been read."""

    partitions: list[Any]
    """Delayed `Partition`s."""
    feature_names: NDArray[Any] | None


def lazy_table(X: Any, y: Any) -> LazyTable:
    """The table that X and y mean, before any work."""
    if isinstance(X, (str, os.PathLike)):
        X, y = _parquet(os.fspath(X), y)
    if isinstance(X, dask.dataframe.DataFrame):
        return _from_frame(X, y)
    if isinstance(X, dask.array.Array):
        return _from_array(X, y)
    raise TypeError(
        f"X is a {type(X).__name__}; this classifier takes a Dask array or DataFrame, or the path or "
        "URL of Parquet files with y the name of the target column. Use cavity.SEPClassifier or "
        "cavity.SVIClassifier for other data, or dask.array.from_array(X, chunks=...)"
    )


def census(partition: Partition) -> Census:
    """Sizes and classes of a partition; runs on a worker."""
    X, y = partition
    return Census(X.shape[0], X.shape[1], np.unique(y), X.dtype)


def _parquet(path: str, y: Any) -> tuple[Any, Any]:
    if not isinstance(y, str):
        what = repr(y) if y is None else f"<{type(y).__name__}>"
        raise SourceError(
            f"y={what}: for the Parquet data in {path}, y is the name of the target column"
        )
    try:
        table = dask.dataframe.read_parquet(path)
    except FileNotFoundError as error:
        raise SourceError(f"{path}: there is no such file or folder of Parquet files") from error
    if y not in table.columns:
        raise SourceError(f"{path}: has no target column {y!r}; it has {list(table.columns)}")
    return table.drop(columns=[y]), table[y]


def _from_frame(X: Any, y: Any) -> LazyTable:
    dtype = _frame_precision(X)
    if isinstance(y, str):
        raise SourceError(f"y={y!r}: with a Dask DataFrame, y is a Series, for instance frame[{y!r}]")
    names = np.array(list(X.columns), dtype=object)
    named = all(isinstance(name, str) for name in names)
    # Not optimised: Dask would read fewer columns in fewer and larger partitions, for y and X apart.
    blocks = X.to_delayed(optimize_graph=False)
    return LazyTable(_partitions(blocks, _label_blocks(y), dtype, list(names)), names if named else None)


def _from_array(X: Any, y: Any) -> LazyTable:
    if X.ndim != 2:
        raise ValueError(f"X has {X.ndim} dimensions; it must have two, [n, d]")
    if X.dtype.kind not in "biuf":
        raise ValueError(f"X has dtype {X.dtype}; convert it to numbers first")
    X = X.rechunk({1: -1})
    if (
        isinstance(y, dask.array.Array)
        and not np.isnan(X.shape[0])
        and not np.isnan(y.shape[0])
        and X.shape[0] == y.shape[0]
        and y.chunks[0] != X.chunks[0]
    ):
        y = y.rechunk((X.chunks[0],))
    return LazyTable(_partitions(X.to_delayed().ravel(), _label_blocks(y), None, None), None)


def _label_blocks(y: Any) -> Any:
    if isinstance(y, dask.dataframe.Series):
        return y.to_delayed(optimize_graph=False)
    if isinstance(y, dask.array.Array):
        if y.ndim != 1:
            raise ValueError(f"y has {y.ndim} dimensions; it must have one, [n]")
        return y.to_delayed().ravel()
    raise TypeError(
        f"y is a {type(y).__name__}; with Dask rows it must be a Dask array or Series, partitioned "
        "as X is"
    )


def _partitions(X: Any, y: Any, dtype: np.dtype[Any] | None, names: list[Any] | None) -> list[Any]:
    if len(X) != len(y):
        raise ValueError(
            f"X has {len(X)} partitions and y has {len(y)}; partition both in the same way, for "
            "instance by taking both from one frame, or with rechunk or repartition"
        )
    prepare = dask.delayed(_prepared)
    return [prepare(x, labels, i, dtype, names) for i, (x, labels) in enumerate(zip(X, y, strict=True))]


def _prepared(
    X: Any, y: Any, number: int, dtype: np.dtype[Any] | None, names: list[Any] | None
) -> Partition:
    """Blocks as arrays, checked; runs on a worker."""
    if dtype is not None:
        X = X.to_numpy(dtype=dtype, na_value=np.nan)
    elif hasattr(X, "toarray"):
        X = X.toarray()
    X = np.ascontiguousarray(X)
    X = X.view(np.uint8) if X.dtype.kind == "b" else X
    labels = np.asarray(y)
    if len(X) != len(labels):
        raise ValueError(f"partition {number} of X has {len(X)} rows, of y {len(labels)}")
    if X.dtype.kind == "f" and not np.isfinite(X).all():
        row, column = np.argwhere(~np.isfinite(X))[0]
        which = column if names is None else repr(names[column])
        raise ValueError(
            f"X has NaN or infinite values: {X[row, column]} in partition {number}, row {row}, column "
            f"{which}; impute such values or drop their rows"
        )
    return Partition(X, _checked_labels(labels, number))


def _checked_labels(labels: NDArray[Any], number: int) -> NDArray[Any]:
    missing = labels != labels if labels.dtype.kind == "f" else np.zeros(0, bool)
    if labels.dtype.kind == "O":
        missing = np.array([value is None or value != value for value in labels], dtype=bool)
    if missing.any():
        raise ValueError(f"y has missing values in partition {number}; drop their rows")
    if labels.dtype.kind == "O" and len(labels):
        labels = np.array(labels.tolist())
    return labels


def _frame_precision(X: Any) -> np.dtype[Any]:
    dtypes, refused = [], []
    for name, kind in zip(X.columns, X.dtypes, strict=True):
        plain = getattr(kind, "numpy_dtype", kind)
        if isinstance(plain, np.dtype) and plain.kind in "biuf":
            dtypes.append(np.dtype(np.uint8) if plain.kind == "b" else plain)
        else:
            refused.append(f"{name!r} ({kind})")
    if refused:
        raise ValueError(
            f"X has columns that are not numeric: {', '.join(refused)}; encode them as numbers, or "
            "leave them out"
        )
    if not dtypes:
        raise ValueError("X has no columns")
    return tile_precision(np.result_type(*dtypes))
