"""The interface of a source of rows: what a table must offer to be trained on.

Anything with these few members is a source; nothing needs to be inherited from. `check_source` tells
whether an object keeps the contract.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np

from cavity.typing import Array, IntArray


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
