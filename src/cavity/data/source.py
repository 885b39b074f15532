"""The interface of a source of rows: what a table must offer to be trained on.

Anything with these few members is a source; nothing needs to be inherited from. `check_source` tells
whether an object keeps the contract.

What all sources share: blocks that have been read, and how rows are divided.

A source whose classes weigh more or less than their rows say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cavity.errors import SourceError
from cavity.typing import Array, Dtype, IntArray


class RawRows(NamedTuple):
    """Some rows as the source has them."""

    X: Any
    """[t, d], any real dtype; dense and finite."""
    labels: IntArray
    """[t]: class codes 0, 1, …"""
    weight: Array | None
    """[t], not negative, or None if every row counts once."""

    def take(self, some: Any) -> RawRows:
        """Those at some positions, or where a mask is true."""
        weight = None if self.weight is None else self.weight[some]
        return RawRows(self.X[some], self.labels[some], weight)


class Block(Protocol):
    """A promise of some rows: cheap to make, read where and when it is needed."""

    @property
    def index(self) -> slice | IntArray:
        """Which rows of the source these are: row numbers from 0 to n_rows − 1."""
        ...

    def load(self) -> RawRows:
        """Read them, in the order of `index`; may be called in any thread."""
        ...


class Source(Protocol):
    """A table of labelled rows that may be larger than memory.

    A source that knows them has two more attributes: `classes`, the class values in sorted order whose
    positions are the label codes, and `feature_names`, an array of d strings or None.
    """

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        ...

    @property
    def total_weight(self) -> float:
        """Sum of the weights of all rows: their number, if unweighted."""
        ...

    @property
    def n_features(self) -> int:
        """Number of columns of X."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 or float64: the precision that does X justice."""
        ...

    def blocks(self, size: int) -> Iterable[Block]:
        """All rows in order, in blocks of at most `size`."""
        ...

    def batches(self, size: int, rng: np.random.Generator, skip: int = 0) -> Iterator[Block]:
        """All rows once in random order, in minibatches of about `size` with an array as `index`.

        The first `skip` minibatches are left out, cheaply, and the others are what they would have been:
        this is how a fit that was interrupted goes on inside an epoch. The order depends on nothing but
        the state of `rng`, `size` and the source. Iterated in a thread of its own, which reads ahead.
        """
        ...

    def sample(self, size: int, rng: np.random.Generator) -> RawRows:
        """At most `size` rows drawn at random without replacement."""
        ...


@dataclass(frozen=True)
class LoadedBlock:
    """Rows that have been read already."""

    index: slice | IntArray
    rows: RawRows
    importance_weight: Array | None = None
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


_TILE_BYTES = 16_000_000
"""Bytes that the arrays of one tile may take: products run best on a thousand rows or more, and the
passes between them best on arrays that are not much larger than the caches."""


def tile_rows(m: int, d: int, dtype: Dtype, n_latents: int = 1) -> int:
    """Rows of one tile, for m inducing points and d features; the same for any number of threads."""
    fitting = _TILE_BYTES // (np.dtype(dtype).itemsize * ((3 + n_latents) * m + d // 2))
    return min(max(fitting, 256), 3072)


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


def class_totals(source: Source, n_classes: int) -> Array:
    """Total weight of each class [C]: the source's own `class_totals`, or else by a pass.

    >>> from cavity.data import ArraySource
    >>> class_totals(ArraySource(np.eye(3), np.array([0, 1, 1]), np.array([1.0, 2.0, 0.5])), 2)
    array([1. , 2.5])
    """
    known = getattr(source, "class_totals", None)
    if known is not None:
        return np.asarray(known, dtype=np.float64)
    totals = np.zeros(n_classes)
    for block in source.blocks(rows_to_look_at(source.n_features)):
        _, labels, weight = block.load()
        totals += np.bincount(labels, weight, minlength=n_classes)
    return totals


@dataclass(frozen=True)
class _Weighted:
    """A block with its classes' factors."""

    block: Block
    factors: Array

    @property
    def index(self) -> slice | IntArray:
        return self.block.index

    def load(self) -> RawRows:
        return _multiplied(self.block.load(), self.factors)


class ClassWeightedSource:
    """Another source, with the weight of each row multiplied by the factor of its class [C]."""

    def __init__(self, source: Source, factors: Array, total_weight: float) -> None:
        self.source = source
        self.factors = factors
        self.total_weight = total_weight
        self.n_rows = source.n_rows
        self.n_features = source.n_features
        self.dtype: np.dtype[Any] = source.dtype

    def of_all_rows(self, values: Array) -> Array:
        """Values [k], one a row, as values [n] of all rows, if the other source left some out."""
        spread = getattr(self.source, "of_all_rows", None)
        return values if spread is None else np.asarray(spread(values))

    def blocks(self, size: int) -> Iterable[Block]:
        """All rows in order."""
        return (_Weighted(block, self.factors) for block in self.source.blocks(size))

    def batches(self, size: int, rng: np.random.Generator, skip: int = 0) -> Iterator[Block]:
        """All rows once, shuffled."""
        return (_Weighted(block, self.factors) for block in self.source.batches(size, rng, skip))

    def sample(self, size: int, rng: np.random.Generator) -> RawRows:
        """Rows drawn at random without replacement: all rows alike, whatever they weigh."""
        return _multiplied(self.source.sample(size, rng), self.factors)


def _multiplied(rows: RawRows, factors: Array) -> RawRows:
    weight = factors[rows.labels]
    return rows._replace(weight=weight if rows.weight is None else weight * rows.weight)


def countable(weight: Array) -> NDArray[np.bool_]:
    """Which weights [n] can be a number of copies of a row: those that are finite and not negative.

    >>> countable(np.array([2.0, 0.0, 0.5, -1.0, np.nan]))
    array([ True,  True,  True, False, False])
    """
    return np.isfinite(weight) & (weight >= 0.0)
