"""The interface of a source of rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np

from cavity.typing import Array, IntArray


class RawRows(NamedTuple):
    """Some rows as the source has them."""

    X: Any
    """[t, d], any real dtype; dense."""
    labels: IntArray
    """[t]: class codes 0, 1, …"""
    weight: Array | None
    """[t], or None if every row counts once."""


class Block(Protocol):
    """A promise of some rows: cheap to make, read where and when it is needed."""

    @property
    def index(self) -> slice | IntArray:
        """Which rows of the source these are."""
        ...

    def load(self) -> RawRows:
        """Read them."""
        ...


class Source(Protocol):
    """A table of labelled rows that may be larger than memory."""

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

    def batches(self, size: int, rng: np.random.Generator) -> Iterator[Block]:
        """All rows once in random order, in minibatches of about `size`."""
        ...

    def sample(self, size: int, rng: np.random.Generator) -> RawRows:
        """At most `size` rows drawn at random without replacement."""
        ...
