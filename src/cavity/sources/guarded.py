"""A source that a user has written: its rows are checked as they are read, and read ahead."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from cavity.sources.blocks import LoadedBlock
from cavity.sources.contract import check_members, check_rows, check_total_weight, loaded, require
from cavity.sources.protocol import Block, RawRows, Source
from cavity.sources.readahead import read_ahead
from cavity.typing import IntArray

_BATCHES_AHEAD = 2


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


class GuardedSource:
    """Another source, whose rows are refused where they break the contract, before they do harm.

    Only what costs next to nothing is checked; `check_source` checks the whole contract.

    >>> from cavity.sources import ArraySource
    >>> source = GuardedSource(ArraySource(np.eye(3), np.array([0, 1, -1])))
    >>> next(source.batches(3, np.random.default_rng(0)))
    Traceback (most recent call last):
    cavity.errors.SourceError: ArraySource.batches: labels has codes -1 … 1, not 0, 1, …
    """

    def __init__(self, source: Source) -> None:
        check_members(source)
        check_total_weight(source)
        self.source = source
        self.n_rows = int(source.n_rows)
        self.n_features = int(source.n_features)
        self.total_weight = float(source.total_weight)
        self.dtype: np.dtype[Any] = np.dtype(source.dtype)
        self._name = type(source).__name__

    def __getattr__(self, name: str) -> Any:
        """What else the source offers: classes, names of features, weights."""
        if name == "source" or name.startswith("__"):  # of a copy that is being made
            raise AttributeError(name)
        return getattr(self.source, name)

    @property
    def arrangement(self) -> str:
        """On what the order of minibatches depends, besides seed, size and number of rows."""
        return str(getattr(self.source, "arrangement", self._name))

    def blocks(self, size: int) -> Generator[Block, None, None]:
        """All rows in order."""
        n_rows = 0
        for block in self.source.blocks(size):
            index = block.index
            n_rows += len(range(*index.indices(self.n_rows)) if isinstance(index, slice) else index)
            yield _Checked(self.source, block, f"{self._name}.blocks")
        require(n_rows == self.n_rows, f"{self._name}.blocks has {n_rows} rows, n_rows is {self.n_rows}")

    def batches(self, size: int, rng: np.random.Generator, skip: int = 0) -> Iterator[Block]:
        """All rows once, shuffled; the next minibatches are read while this one is used."""
        return read_ahead(self._loaded(size, rng, skip), _BATCHES_AHEAD)

    def _loaded(self, size: int, rng: np.random.Generator, skip: int) -> Generator[Block, None, None]:
        n_rows = 0
        for batch in self.source.batches(size, rng, skip):
            rows, index = loaded(self.source, batch, f"{self._name}.batches")
            n_rows += len(index)
            yield LoadedBlock(index, rows)
        if n_rows and not skip:  # of none the schedule has more to say
            words = f"{self._name}.batches has {n_rows} rows, n_rows is {self.n_rows}"
            require(n_rows == self.n_rows, words)

    def sample(self, size: int, rng: np.random.Generator) -> RawRows:
        """Rows drawn at random without replacement."""
        rows = self.source.sample(size, rng)
        check_rows(self.source, rows, min(size, self.n_rows), f"{self._name}.sample")
        return RawRows(*rows)
