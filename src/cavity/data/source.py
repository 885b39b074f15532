"""What a source of rows is: labelled rows in blocks, so that they need not fit in memory.

`Source` is the base class of cavity's own sources. A user's source needs its main members only and need
not inherit from anything: `cavity.data.contract.GuardedSource` wraps it.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cavity.typing import AnyArray, AnyDtype, Array, ArrayOrSparse, Dtype, IntArray

NO_SETS: Mapping[str, int] = {}
"""The sets of features of a source whose features are all used."""


class RawRows(NamedTuple):
    """Some rows as the source has them."""

    X: AnyArray
    """[t, d], any real dtype; dense and finite."""
    labels: IntArray
    """[t]: class codes 0, 1, …"""
    weight: Array | None
    """[t], not negative, or None if every row counts once."""

    def take(self, positions: slice | IntArray | NDArray[np.bool_]) -> RawRows:
        """The rows at some positions, or where a mask is true."""
        weight = None if self.weight is None else self.weight[positions]
        return RawRows(self.X[positions], self.labels[positions], weight)

    def with_class_factors(self, factors: Array | None) -> RawRows:
        """The rows with the weight of each multiplied by the factor of its class [C]."""
        if factors is None:
            return self
        return self._replace(weight=weights_by_class(self.weight, self.labels, factors))


def weights_by_class(weight: Array | None, labels: IntArray, factors: Array) -> Array:
    """Weights [t] of rows with class codes [t], multiplied by the factors [C] of their classes.

    >>> weights_by_class(None, np.array([0, 1, 1]), np.array([1.0, 5.0]))
    array([1., 5., 5.])
    """
    return factors[labels] if weight is None else factors[labels] * weight


class Block(Protocol):
    """Some rows that are read when `load` is called; cheap to make."""

    @property
    def index(self) -> slice | IntArray:
        """Which rows of the source these are: row numbers from 0 to n_rows − 1."""
        ...

    def load(self) -> RawRows:
        """Read the rows, in the order of `index`; may be called in any thread."""
        ...


class RowSource(ABC):
    """Labelled rows, wherever they are: in memory, in files, or on the workers of a cluster."""

    n_rows: int
    """Number of rows."""
    n_features: int
    """Number of columns of X."""
    total_weight: float
    """Sum of the weights of all rows; their number, if the rows have no weights."""
    dtype: Dtype
    """float32 or float64: the precision in which X loses nothing."""

    @abstractmethod
    def take(self, numbers: IntArray) -> RawRows:
        """The rows with these numbers [k], in this order."""

    def sample(self, size: int, rng: np.random.Generator) -> RawRows:
        """At most `size` rows drawn at random without replacement."""
        return self.take(np.sort(rng.choice(self.n_rows, size=min(size, self.n_rows), replace=False)))

    # Optional members, with defaults.

    classes: AnyArray | None = None
    """Class values [C] in sorted order, whose positions are the label codes; None if unknown."""
    feature_names: AnyArray | None = None
    """Names [d] of the columns of X; None if they have none."""
    labels: IntArray | None = None
    """Class codes [n] of all rows, if they are in memory."""
    weight: Array | None = None
    """Weights [n] of all rows, if they are in memory."""
    offset: Array | None = None
    """Latent offsets [n, L] of all rows, in memory: what is added to the Gaussian process; None is 0."""
    leaf: IntArray | None = None
    """The leaf [n] that each row falls into, if leaves have inducing points of their own."""
    rows_of_a_leaf: int | None = None
    """About how many rows of one leaf a minibatch has; None means that it has one leaf, if possible."""

    feature_sets: Mapping[str, int] = NO_SETS
    """Sets of features to choose from, by name: each has this many of the first columns of X."""
    reserved: IntArray | None = None
    """Sorted numbers of the rows to hold out, if the features of the others do not know their labels."""

    def leading(self, n_features: int) -> RowSource:
        """The same rows with the first columns of X alone; needed if there are sets of features."""
        raise NotImplementedError(f"{type(self).__name__} has no sets of features")

    @property
    def class_totals(self) -> Array | None:
        """Total weight of each class [C], if it is known without reading the rows."""
        return None

    @property
    def arrangement(self) -> str:
        """What the order of minibatches depends on, besides seed, size and number of rows."""
        return type(self).__name__

    def label_digests(self) -> list[str] | None:
        """Digests of the labels, if they are held by other machines."""
        return None

    def expanded_to_input_rows(self, values: Array) -> Array:
        """Values [k], one a row, as values of all rows that the user passed; NaN for rows left out."""
        return values


def with_feature_set(source: RowSource, name: str | None) -> RowSource:
    """The rows of a source with the features of one of its sets; all features, if it has none."""
    if name is None or not source.feature_sets:
        return source
    if name not in source.feature_sets:
        sets = " and ".join(map(repr, source.feature_sets))
        raise ValueError(f"feature_set={name!r}, but the rows have {sets}; leave it out")
    size = source.feature_sets[name]
    return source if size == source.n_features else source.leading(size)


class Source(RowSource):
    """A table of labelled rows that may be larger than memory.

    A source has the sizes n_rows, n_features, total_weight and dtype and the methods `blocks` and
    `batches`. The other members are optional: they have defaults that suit every source.
    """

    is_checked: bool = False
    """Whether the rows are known to keep the contract, so that they need not be checked again."""

    @abstractmethod
    def blocks(self, size: int) -> Iterable[Block]:
        """All rows in order, in blocks of at most `size`."""

    @abstractmethod
    def batches(self, size: int, rng: np.random.Generator, skip: int = 0) -> Iterator[Block]:
        """All rows once in random order, in minibatches of about `size` with an array as `index`.

        The first `skip` minibatches are left out without being read, and the others are the same as
        with skip=0: a fit that was interrupted continues inside an epoch in this way. The order depends
        on the state of `rng`, on `size` and on the source alone. It is iterated in a thread of its own.
        """

    def with_class_factors(self, factors: Array, totals: Array) -> Source:
        """The same rows with the weight of each multiplied by the factor of its class [C].

        totals: [C], total weight of each class before.
        """
        return ClassWeightedSource(self, factors, totals)

    def take(self, numbers: IntArray) -> RawRows:
        """The rows with these numbers [k], in this order; by default in one pass over the blocks."""
        wanted, places = np.unique(numbers, return_inverse=True)
        parts = []
        for block in self.blocks(rows_to_look_at(self.n_features)):
            index = block.index
            found = np.arange(*index.indices(self.n_rows)) if isinstance(index, slice) else index
            inside = np.flatnonzero(np.isin(found, wanted))
            if len(inside):
                parts.append(block.load().take(inside))
        return joined(parts).take(places)


SomeSource = TypeVar("SomeSource", bound=RowSource)


MEMBERS = ("n_rows", "n_features", "total_weight", "dtype", "blocks", "batches")
"""What an object must have to be a source; the other members of `Source` are optional."""


def missing_members(source: object) -> list[str]:
    """Names of the members of a source that an object lacks."""
    return [name for name in MEMBERS if not hasattr(source, name)]


def with_offset(source: SomeSource, offset: Array) -> SomeSource:
    """The same rows with latent offsets [n, L]; the source itself is not changed.

    >>> from cavity.data import ArraySource
    >>> source = ArraySource(np.eye(3), np.array([0, 1, 1]))
    >>> with_offset(source, np.ones((3, 1))).offset.shape, source.offset
    ((3, 1), None)
    """
    copied = copy.copy(source)
    copied.offset = offset
    return copied


@dataclass(frozen=True)
class LoadedBlock:
    """Rows that have been read already."""

    index: slice | IntArray
    rows: RawRows
    importance_weight: Array | None = None
    """[t]: how many rows each row represents, if others like it were left out; None is one each."""
    share: float | None = None
    """The share of all rows that a minibatch stands for; None is that of its number of rows."""

    def load(self) -> RawRows:
        """Return the rows."""
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


def booleans_as_integers(X: ArrayOrSparse) -> ArrayOrSparse:
    """X, with truth values as 0 and 1; an array is not copied.

    >>> booleans_as_integers(np.array([[True, False]]))
    array([[1, 0]], dtype=uint8)
    """
    if X.dtype.kind != "b":
        return X
    return X.astype(np.uint8) if sparse.issparse(X) else X.view(np.uint8)


def tile_precision(dtype: AnyDtype) -> Dtype:
    """The precision that holds values of `dtype`: float32 if it holds them exactly, else float64.

    >>> tile_precision(np.dtype(np.uint8)), tile_precision(np.dtype(np.int64))
    (dtype('float32'), dtype('float64'))
    """
    return np.dtype(np.float32 if np.can_cast(dtype, np.float32, "safe") else np.float64)


_BYTES_TO_LOOK_AT = 16_000_000
"""Bytes of float64 that the features of a block may take that is read for its labels alone."""
_FEWEST_ROWS_TO_LOOK_AT = 256
"""Rows of such a block, at least, however wide they are."""
_MOST_ROWS_TO_LOOK_AT = 65_536
"""Rows of such a block, at most, however narrow they are."""


def rows_to_look_at(n_features: int) -> int:
    """Number of rows of a block that is read for its labels alone: fewer if rows are wide.

    >>> rows_to_look_at(8), rows_to_look_at(50_000)
    (65536, 256)
    """
    fitting = _BYTES_TO_LOOK_AT // (8 * n_features)
    return int(np.clip(fitting, _FEWEST_ROWS_TO_LOOK_AT, _MOST_ROWS_TO_LOOK_AT))


def row_number_type(n_rows: int) -> np.dtype[np.signedinteger]:
    """The smaller integer type that can number that many rows.

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
_FEWEST_TILE_ROWS = 256
"""Rows of a tile, at least, even if they take more bytes, with very many inducing points or features."""
_MOST_TILE_ROWS = 3_072
"""Rows of a tile, at most, however small the model is, so that several threads have tiles."""


def tile_rows(m: int, d: int, dtype: Dtype, n_latents: int = 1) -> int:
    """Rows of one tile, for m inducing points and d features; the same for any number of threads."""
    fitting = _TILE_BYTES // (np.dtype(dtype).itemsize * ((3 + n_latents) * m + d // 2))
    return min(max(fitting, _FEWEST_TILE_ROWS), _MOST_TILE_ROWS)


def even_parts(n: int, count: int) -> list[slice]:
    """n rows in `count` parts whose sizes differ by one at most.

    >>> even_parts(7, 3)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 7, None)]
    """
    return [slice(n * i // count, n * (i + 1) // count) for i in range(count)]


def class_totals(source: Source, n_classes: int = 0) -> Array:
    """Total weight of each class [C]: as the source knows it, or else from one pass.

    n_classes: C, or fewer if it is not known.

    >>> from cavity.data import ArraySource
    >>> class_totals(ArraySource(np.eye(3), np.array([0, 1, 1]), np.array([1.0, 2.0, 0.5])), 2)
    array([1. , 2.5])
    """
    if source.class_totals is not None:
        return np.asarray(source.class_totals, dtype=np.float64)
    totals = np.zeros(n_classes)
    for block in source.blocks(rows_to_look_at(source.n_features)):
        _, labels, weight = block.load()
        found = np.bincount(labels, weight, minlength=len(totals))
        totals = np.pad(totals, (0, len(found) - len(totals))) + found
    return totals


@dataclass(frozen=True)
class _WeightedBlock:
    """A block whose rows are multiplied by the factors of their classes."""

    block: Block
    factors: Array

    @property
    def index(self) -> slice | IntArray:
        return self.block.index

    def load(self) -> RawRows:
        return self.block.load().with_class_factors(self.factors)


class ClassWeightedSource(Source):
    """Another source, with the weight of each row multiplied by the factor of its class [C]."""

    def __init__(self, source: Source, factors: Array, totals: Array) -> None:
        """totals: [C], total weight of each class before."""
        self.source = source
        self.factors = factors
        self.totals = totals * factors
        self.total_weight = float(totals @ factors)
        self.n_rows = source.n_rows
        self.n_features = source.n_features
        self.dtype = source.dtype
        self.feature_names = source.feature_names
        self.is_checked = source.is_checked
        self.labels, self.weight = source.labels, source.weight
        if self.weight is not None and self.labels is not None:
            self.weight = weights_by_class(self.weight, self.labels, factors)
        self.feature_sets, self.reserved = source.feature_sets, source.reserved

    @property
    def class_totals(self) -> Array:
        """Total weight of each class [C]."""
        return self.totals

    @property
    def arrangement(self) -> str:
        """What the order of minibatches depends on in the other source."""
        return self.source.arrangement

    def label_digests(self) -> list[str] | None:
        """Digests of the labels, if the other source offers them."""
        return self.source.label_digests()

    def expanded_to_input_rows(self, values: Array) -> Array:
        """Values of all rows that the user passed, as the other source gives them."""
        return self.source.expanded_to_input_rows(values)

    def blocks(self, size: int) -> Iterable[Block]:
        """All rows in order."""
        return (_WeightedBlock(block, self.factors) for block in self.source.blocks(size))

    def batches(self, size: int, rng: np.random.Generator, skip: int = 0) -> Iterator[Block]:
        """All rows once, shuffled."""
        return (_WeightedBlock(block, self.factors) for block in self.source.batches(size, rng, skip))

    def leading(self, n_features: int) -> ClassWeightedSource:
        """The same rows with the first columns of X alone."""
        leading = copy.copy(self)
        source = self.source.leading(n_features)
        assert isinstance(source, Source)
        leading.source, leading.n_features = source, n_features
        leading.feature_names, leading.feature_sets = source.feature_names, source.feature_sets
        return leading

    def sample(self, size: int, rng: np.random.Generator) -> RawRows:
        """Rows drawn at random without replacement, each with the same probability."""
        return self.source.sample(size, rng).with_class_factors(self.factors)

    def take(self, numbers: IntArray) -> RawRows:
        """The rows with these numbers [k]."""
        return self.source.take(numbers).with_class_factors(self.factors)
