"""Checks of a user's own source: cheap ones while it is read, and `check_source` for all of them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, fields
from itertools import zip_longest
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from cavity.data.shuffle import BATCHES_AHEAD, read_ahead
from cavity.data.source import Block, LoadedBlock, RawRows, Source, joined, missing_members
from cavity.data.weights import is_weight
from cavity.errors import SourceError
from cavity.typing import AnyArray, Array, IntArray

UserSource: TypeAlias = Any
"""An object with the members of a `Source`, which need not inherit from it."""


@dataclass(frozen=True)
class _OptionalMembers:
    """What a source may have besides the members that it must have; None for what it lacks."""

    classes: AnyArray | None
    feature_names: AnyArray | None
    labels: AnyArray | None
    weight: AnyArray | None
    arrangement: str | None
    label_digests: Callable[[], list[str] | None] | None
    expanded_to_input_rows: Callable[[Array], Array] | None
    sample: Callable[[int, np.random.Generator], RawRows] | None

    @classmethod
    def of(cls, source: UserSource) -> _OptionalMembers:
        return cls(**{field.name: getattr(source, field.name, None) for field in fields(cls)})


def check_members(source: UserSource) -> None:
    """Raise if members of a source are missing or wrong; reads no row."""
    missing = missing_members(source)
    require(not missing, f"{type(source).__name__} has no {', '.join(missing)}")
    for name, value in (("n_rows", source.n_rows), ("n_features", source.n_features)):
        positive = isinstance(value, (int, np.integer)) and bool(value > 0)
        require(positive, f"{name} is {value!r}, not a positive integer")
    require(
        _is_real(source.dtype),
        f"dtype is {source.dtype!r}, neither float32 nor float64",
    )
    own = _OptionalMembers.of(source)
    names, classes = own.feature_names, own.classes
    if names is not None:
        good = len(names) == source.n_features and all(isinstance(name, str) for name in names)
        require(good, f"feature_names is {names!r}, not {source.n_features} strings")
    if classes is not None:
        require(len(classes) >= 2, f"classes is {classes!r}: fewer than two")
        require(
            np.array_equal(np.unique(classes), classes),
            f"classes is {classes!r}, not sorted and distinct",
        )


def check_declared_weight(source: UserSource) -> None:
    """Raise if the total weight of a source is not a positive number; reads no row."""
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
    """Raise unless there are n rows with the right columns, finite values, labels and weights."""
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
    classes = source.classes
    most = np.inf if classes is None else len(classes) - 1
    low, high = int(labels.min()), int(labels.max())
    wanted = "0, 1, …" if classes is None else f"0 … {most}"
    require(low >= 0 and high <= most, f"{where}: labels has codes {low} … {high}, not {wanted}")
    if weight is not None:
        good = np.shape(weight) == (n,) and bool(is_weight(weight).all())
        require(good, f"{where}: weight is not {n} finite numbers that are not negative")


def _is_real(dtype: DTypeLike) -> bool:
    try:
        return np.dtype(dtype) in (np.float32, np.float64)
    except TypeError:
        return False


def require(condition: bool, message: str) -> None:
    """Raise a `SourceError` unless the condition holds."""
    if not condition:
        raise SourceError(message)


@dataclass(frozen=True)
class _Checked:
    """A block whose rows are checked when they are read."""

    source: Source
    block: Block
    where: str

    @property
    def index(self) -> slice | IntArray:
        return self.block.index

    def load(self) -> RawRows:
        return loaded(self.source, self.block, self.where)[0]


class GuardedSource(Source):
    """A user's source, whose rows are checked as they are read.

    The source need not inherit from `Source`; its optional members may be missing. Only cheap checks
    are made here. `check_source` checks the whole contract.

    >>> from cavity.data import ArraySource
    >>> source = GuardedSource(ArraySource(np.eye(3), np.array([0, 1, -1])))
    >>> next(source.batches(3, np.random.default_rng(0)))
    Traceback (most recent call last):
    cavity.errors.SourceError: ArraySource.batches: labels has codes -1 … 1, not 0, 1, …
    """

    is_checked = True

    def __init__(self, source: UserSource) -> None:
        check_members(source)
        check_declared_weight(source)
        self.source = source
        self.n_rows = int(source.n_rows)
        self.n_features = int(source.n_features)
        self.total_weight = float(source.total_weight)
        self.dtype = np.dtype(source.dtype)
        self.own = _OptionalMembers.of(source)
        self.classes, self.feature_names = self.own.classes, self.own.feature_names
        self.labels = self._of_each_row(self.own.labels, "iu")
        self.weight = self._of_each_row(self.own.weight, "fiu")
        self._name = type(source).__name__

    def _of_each_row(self, values: AnyArray | None, kinds: str) -> AnyArray | None:
        """Values of the source, if they are an array [n] of some kinds; None for anything else."""
        if not isinstance(values, np.ndarray) or values.shape != (self.n_rows,):
            return None
        return values if values.dtype.kind in kinds else None

    @property
    def class_totals(self) -> Array | None:
        """Total weight of each class [C], if the source knows it."""
        totals: Array | None = getattr(self.source, "class_totals", None)
        return totals

    @property
    def arrangement(self) -> str:
        """What the order of minibatches depends on, besides seed, size and number of rows."""
        return self.own.arrangement or self._name

    def label_digests(self) -> list[str] | None:
        """Digests of the labels, if the source offers them."""
        own = self.own.label_digests
        return None if own is None else own()

    def expanded_to_input_rows(self, values: Array) -> Array:
        """Values of all rows that the user passed, if the source has left some out."""
        own = self.own.expanded_to_input_rows
        return values if own is None else np.asarray(own(values))

    def blocks(self, size: int) -> Generator[Block, None, None]:
        """All rows in order."""
        n_rows = 0
        for block in self.source.blocks(size):
            index = block.index
            n_rows += len(range(*index.indices(self.n_rows)) if isinstance(index, slice) else index)
            yield _Checked(self, block, f"{self._name}.blocks")
        require(n_rows == self.n_rows, f"{self._name}.blocks has {n_rows} rows, n_rows is {self.n_rows}")

    def batches(self, size: int, rng: np.random.Generator, skip: int = 0) -> Iterator[Block]:
        """All rows once, shuffled; the next minibatches are read while this one is used."""
        return read_ahead(self._loaded(size, rng, skip), BATCHES_AHEAD)

    def _loaded(self, size: int, rng: np.random.Generator, skip: int) -> Generator[Block, None, None]:
        n_rows = 0
        for batch in self.source.batches(size, rng, skip):
            rows, index = loaded(self, batch, f"{self._name}.batches")
            n_rows += len(index)
            yield LoadedBlock(index, rows)
        if n_rows and not skip:  # training has its own error for a source without minibatches
            words = f"{self._name}.batches has {n_rows} rows, n_rows is {self.n_rows}"
            require(n_rows == self.n_rows, words)

    def sample(self, size: int, rng: np.random.Generator) -> RawRows:
        """Rows drawn at random without replacement, by the source itself if it can."""
        if self.own.sample is None:
            return super().sample(size, rng)
        rows = self.own.sample(size, rng)
        check_rows(self, rows, min(size, self.n_rows), f"{self._name}.sample")
        return RawRows(*rows)


_PROBES = 500
"""Rows that are compared between a pass in order and a shuffled one."""


def check_source(source: Source, size: int | None = None) -> None:
    """Check that an object keeps the contract of `Source`, in a few passes over its rows.

    Parameters
    ----------
    source
        Any object with the members of a `Source`.
    size
        Size of the blocks and minibatches to ask for; by default a seventh of the rows, 1,000 at most.

    Raises
    ------
    SourceError
        Naming the member that is wrong, and how.

    Examples
    --------
    >>> from cavity.data import ArraySource
    >>> check_source(ArraySource(np.eye(10), np.arange(10) % 2))
    """
    guard = GuardedSource(source)
    size = size or int(np.clip(guard.n_rows // 7, 1, 1_000))
    probes = np.unique(np.linspace(0, guard.n_rows - 1, _PROBES).astype(np.int64))
    values = _check_blocks(guard, size, probes)
    _check_batches(guard, size, probes, values)
    _check_skip(source, size)
    if guard.own.sample is not None:
        _check_sample(guard)


def _check_blocks(guard: GuardedSource, size: int, probes: IntArray) -> RawRows:
    """Check that blocks have all rows once and in order; return the rows with the numbers `probes`."""
    expected = 0
    total = 0.0
    parts = []
    for block in guard.source.blocks(size):
        rows, index = loaded(guard, block, "blocks")
        require(
            0 < len(index) <= size, f"blocks({size}) has a block of {len(index)} rows, not 1 to {size}"
        )
        in_order = np.array_equal(index, np.arange(expected, expected + len(index)))
        require(in_order, f"blocks({size}) is not in order, or has gaps, at row {expected}")
        expected += len(index)
        total += len(index) if rows.weight is None else float(np.sum(rows.weight))
        parts.append(rows.take(probes[(probes >= index[0]) & (probes <= index[-1])] - index[0]))
    require(expected == guard.n_rows, f"blocks has {expected} rows, n_rows is {guard.n_rows}")
    require(
        bool(np.isclose(total, guard.total_weight, rtol=1e-4)),
        f"total_weight is {guard.total_weight}, the weights sum to {total}",
    )
    return joined(parts)


def _check_batches(guard: GuardedSource, size: int, probes: IntArray, values: RawRows) -> None:
    """Check that minibatches are a permutation of the rows of blocks that depends on the seed alone."""
    count = np.zeros(guard.n_rows, dtype=np.int8)
    order = []
    pairs = zip_longest(guard.source.batches(size, _rng(0)), guard.source.batches(size, _rng(0)))
    for block, again in pairs:
        require(
            None not in (block, again), "batches has different lengths for generators of equal state"
        )
        rows, index = loaded(guard, block, "batches")
        require(isinstance(block.index, np.ndarray), "batches: index is not an array of row numbers")
        same, _ = loaded(guard, again, "batches")
        require(
            np.array_equal(index, np.asarray(again.index)) and _equal(rows, same),
            "batches is not the same for generators of equal state",
        )
        count[index] += 1
        order.append(index)
        here = np.flatnonzero(np.isin(index, probes))
        require(
            _equal(rows.take(here), values.take(np.searchsorted(probes, index[here]))),
            "batches: the rows of a block are not those that blocks has under the same row numbers",
        )
    require(
        bool((count == 1).all()),
        f"batches leaves out {np.sum(count == 0)} rows and repeats {np.sum(count > 1)}",
    )
    if guard.n_rows >= 20 and len(order) > 1:
        other = np.concatenate(
            [np.asarray(block.index) for block in guard.source.batches(size, _rng(1))]
        )
        first = np.concatenate(order)
        require(
            not np.array_equal(first, other),
            "batches ignores its generator: the order is always the same",
        )
        require(not np.array_equal(first, np.sort(first)), "batches is not shuffled")


def _check_skip(source: Source, size: int) -> None:
    whole = [np.asarray(block.index) for block in source.batches(size, _rng(2))]
    for skip in {0, 1, len(whole) // 2, len(whole) - 1, len(whole), len(whole) + 3}:
        rest = [np.asarray(block.index) for block in source.batches(size, _rng(2), skip=skip)]
        same = len(rest) == len(whole[skip:]) and all(map(np.array_equal, rest, whole[skip:]))
        require(same, f"batches with skip={skip} is not batches without its first {skip} minibatches")


def _check_sample(guard: GuardedSource) -> None:
    for size in (1, guard.n_rows + 5):
        guard.sample(size, _rng(3))  # which checks the rows
    half = max(1, min(guard.n_rows // 2, 1_000))
    same = _equal(guard.sample(half, _rng(4)), guard.sample(half, _rng(4)))
    require(same, "sample is not the same for generators of equal state")


def _equal(a: RawRows, b: RawRows) -> bool:
    """Whether rows are the same; those without weights count once."""
    weights = [np.ones(len(rows.labels)) if rows.weight is None else rows.weight for rows in (a, b)]
    return all(map(np.array_equal, (a.X, a.labels, weights[0]), (b.X, b.labels, weights[1])))


def _rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)
