"""What all sources share: blocks that have been read, and how rows are divided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.errors import SourceError
from cavity.sources.protocol import RawRows
from cavity.typing import Array, IntArray


@dataclass(frozen=True)
class LoadedBlock:
    """Rows that have been read already."""

    index: slice | IntArray
    rows: RawRows
    stands_for: Array | None = None
    """[t]: how many rows each stands for, if others like it were left out; None is itself alone."""

    def load(self) -> RawRows:
        """The rows."""
        return self.rows


def joined(parts: list[RawRows]) -> RawRows:
    """Rows one after the other; where some have weights, those without count once."""
    weighted = any(part.weight is not None for part in parts)
    weights = [np.ones(len(part.labels)) if part.weight is None else part.weight for part in parts]
    return RawRows(
        np.concatenate([part.X for part in parts]),
        np.concatenate([part.labels for part in parts]),
        np.concatenate(weights) if weighted else None,
    )


def tile_precision(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The precision that does justice to values of `dtype`: float32 for what fits in it exactly.

    >>> tile_precision(np.dtype(np.uint8)), tile_precision(np.dtype(np.int64))
    (dtype('float32'), dtype('float64'))
    """
    return np.dtype(np.float32 if np.can_cast(dtype, np.float32, "safe") else np.float64)


def rows_to_look_at(n_features: int) -> int:
    """Rows of a block that is read for its labels or values alone: many, but of wide rows fewer.

    >>> rows_to_look_at(8), rows_to_look_at(50_000)
    (65536, 256)
    """
    return int(np.clip(16_000_000 // (8 * n_features), 256, 65_536))


def row_number_type(n_rows: int) -> np.dtype[Any]:
    """The smaller integer type that can number that many rows: an order of them is held in memory.

    >>> row_number_type(10_000_000), row_number_type(3_000_000_000)
    (dtype('int32'), dtype('int64'))
    """
    return np.dtype(np.int32 if n_rows < 2**31 else np.int64)


def shuffled(n: int, rng: np.random.Generator) -> IntArray:
    """The numbers 0 … n − 1 in random order, in the smaller integer type."""
    order = np.arange(n, dtype=row_number_type(n))
    rng.shuffle(order)
    return order


def batch_count(n: int, size: int) -> int:
    """Into how many minibatches of about `size` to divide n rows."""
    if size < 1:
        raise ValueError(f"size={size}; a minibatch has at least one row")
    return max(1, round(n / size))


def even_parts(n: int, count: int) -> list[slice]:
    """n rows in `count` parts whose sizes differ by one at most.

    >>> even_parts(7, 3)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 7, None)]
    """
    return [slice(n * i // count, n * (i + 1) // count) for i in range(count)]


def encode_labels(y: Any) -> tuple[NDArray[Any], IntArray]:
    """Class values, sorted, and the codes [n] of labels y [n], in a small integer type.

    >>> encode_labels(["b", "a", "b"])
    (array(['a', 'b'], dtype='<U1'), array([1, 0, 1], dtype=int8))
    """
    y = np.asarray(y)
    require_one_kind(y)
    classes, codes = np.unique(y, return_inverse=True)
    return classes, codes.astype(code_type(len(classes)))


def code_type(n_classes: int) -> np.dtype[Any]:
    """The type of label codes: a byte a row, if that can tell the classes apart.

    >>> code_type(128), code_type(129)
    (dtype('int8'), dtype('int32'))
    """
    return np.dtype(np.int8 if n_classes <= 128 else np.int32)


def require_one_kind(y: NDArray[Any], name: str = "y") -> None:
    """Refuse labels y [n] that are missing, or cannot be put in order, such as numbers among strings.

    >>> require_one_kind(np.array(["b", None], dtype=object))
    Traceback (most recent call last):
    cavity.errors.SourceError: y has labels of the kinds NoneType and str; classes are all of one \
kind: drop the rows without a label, or convert the others, for instance with y.astype(str)
    """
    if y.dtype.kind == "c":
        raise SourceError(f"{name} has dtype {y.dtype}; classes are whole numbers, strings or booleans")
    if _any_missing(y):
        raise SourceError(f"{name} has labels that are missing (NaN or NaT); drop their rows")
    if y.dtype.kind != "O":
        return
    examples = {type(label): label for label in y.ravel().tolist()}
    try:
        sorted(examples.values())
    except TypeError as error:
        kinds = sorted(kind.__name__ for kind in examples)
        raise SourceError(
            f"{name} has labels of the kinds {' and '.join(kinds)}; classes are all of one kind: drop "
            "the rows without a label, or convert the others, for instance with y.astype(str)"
        ) from error


def _any_missing(y: NDArray[Any]) -> bool:
    """Whether one of the labels y [n] is NaN or NaT."""
    if y.dtype.kind in "Mm":
        return bool(np.isnat(y).any())
    if y.dtype.kind == "f":
        return bool(np.isnan(y).any())
    if y.dtype.kind != "O":
        return False
    labels = y.ravel().tolist()
    # They are not even equal to themselves.
    return any(isinstance(label, (float, np.generic)) and label != label for label in labels)
