"""The parts of the contract of `Source` that cost next to nothing to check."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from cavity.errors import SourceError
from cavity.rows import countable
from cavity.sources.protocol import Block, RawRows, Source
from cavity.typing import IntArray

MEMBERS = ("n_rows", "n_features", "total_weight", "dtype", "blocks", "batches", "sample")


def check_members(source: Any) -> None:
    """Refuse a source whose members are missing or senseless; reads no row."""
    missing = [name for name in MEMBERS if not hasattr(source, name)]
    require(not missing, f"{type(source).__name__} has no {', '.join(missing)}")
    for name in ("n_rows", "n_features"):
        value = getattr(source, name)
        positive = isinstance(value, (int, np.integer)) and bool(value > 0)
        require(positive, f"{name} is {value!r}, not a positive integer")
    require(
        _is_real(source.dtype),
        f"dtype is {source.dtype!r}, neither float32 nor float64",
    )
    names = getattr(source, "feature_names", None)
    if names is not None:
        good = len(names) == source.n_features and all(isinstance(name, str) for name in names)
        require(good, f"feature_names is {names!r}, not {source.n_features} strings")
    classes = getattr(source, "classes", None)
    if classes is not None:
        require(len(classes) >= 2, f"classes is {classes!r}: fewer than two")
        require(
            np.array_equal(np.unique(classes), classes),
            f"classes is {classes!r}, not sorted and distinct",
        )


def check_total_weight(source: Any) -> None:
    """Refuse a source whose total weight cannot be one; reads no row."""
    total = source.total_weight
    good = isinstance(total, Real) and 0.0 < float(total) < np.inf
    require(good, f"total_weight is {total!r}, not a positive number: the sum of all weights, or n_rows")


def loaded(source: Source, block: Block, where: str) -> tuple[RawRows, IntArray]:
    """The rows of a block, checked, and their numbers; `where` is what errors call them."""
    index = block.index
    numbers: IntArray
    if isinstance(index, slice):
        numbers = np.arange(*index.indices(source.n_rows))
    else:
        numbers = np.asarray(index)
        good = numbers.ndim == 1 and numbers.dtype.kind in "iu"
        require(good, f"{where}: index is neither a slice nor a 1-d integer array")
        good = numbers.size > 0 and numbers.min() >= 0 and numbers.max() < source.n_rows
        require(bool(good), f"{where}: index is empty or outside 0 … n_rows − 1")
    rows = block.load()
    check_rows(source, rows, len(numbers), where)
    return RawRows(*rows), numbers


def check_rows(source: Source, rows: RawRows, n: int, where: str) -> None:
    """Refuse rows that are not n, or have other columns, senseless labels or values."""
    require(
        isinstance(rows, tuple) and len(rows) == 3,
        f"{where}: the rows are a {type(rows).__name__}, not a RawRows(X, labels, weight)",
    )
    X, labels, weight = rows
    require(isinstance(X, np.ndarray), f"{where}: X is a {type(X).__name__}, not a dense array")
    require(X.shape == (n, source.n_features), f"{where}: X is {X.shape}, not {(n, source.n_features)}")
    require(X.dtype.kind in "fiu", f"{where}: X has dtype {X.dtype}, not a real one")
    finite = np.isfinite(X).all(axis=0)
    require(
        bool(finite.all()),
        f"{where}: X has NaN or infinite values in column {np.argmin(finite)}; impute them or drop "
        "their rows",
    )
    labels = np.asarray(labels)
    good = labels.shape == (n,) and labels.dtype.kind in "iu"
    require(good, f"{where}: labels is {labels.dtype}{labels.shape}, not {n} integers")
    classes = getattr(source, "classes", None)
    most = np.inf if classes is None else len(classes) - 1
    low, high = int(labels.min()), int(labels.max())
    wanted = "0, 1, …" if classes is None else f"0 … {most}"
    require(low >= 0 and high <= most, f"{where}: labels has codes {low} … {high}, not {wanted}")
    if weight is not None:
        good = np.shape(weight) == (n,) and bool(countable(weight).all())
        require(good, f"{where}: weight is not {n} finite numbers that are not negative")


def _is_real(dtype: Any) -> bool:
    try:
        return np.dtype(dtype) in (np.float32, np.float64)
    except TypeError:
        return False


def require(condition: bool, message: str) -> None:
    """Raise a `SourceError` unless the condition holds."""
    if not condition:
        raise SourceError(message)
