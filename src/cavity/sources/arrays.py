"""Rows from an array in memory or on disk (memmap), or from a SciPy sparse matrix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from cavity.sources.protocol import RawRows
from cavity.typing import Array, IntArray


def tile_precision(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The precision that does justice to values of `dtype`: float32 for what fits in it exactly.

    >>> tile_precision(np.dtype(np.uint8)), tile_precision(np.dtype(np.int64))
    (dtype('float32'), dtype('float64'))
    """
    return np.dtype(np.float32 if np.can_cast(dtype, np.float32, "safe") else np.float64)


@dataclass(frozen=True)
class ArrayBlock:
    """Some rows of an array."""

    source: ArraySource
    index: slice | IntArray

    def load(self) -> RawRows:
        """Read the rows; sparse rows become dense here, a block at a time."""
        X = self.source.X[self.index]
        if sparse.issparse(X):
            X = X.toarray()
        weight = self.source.weight
        return RawRows(
            np.asarray(X),
            self.source.labels[self.index],
            None if weight is None else weight[self.index],
        )


class ArraySource:
    """X [n, d], label codes [n] and optional weights [n]."""

    def __init__(self, X: Any, labels: IntArray, weight: Array | None = None) -> None:
        self.X = X
        self.labels = labels
        self.weight = weight
        self.n_rows: int = X.shape[0]
        self.total_weight = float(self.n_rows if weight is None else weight.sum())
        self.n_features: int = X.shape[1]
        self.dtype = tile_precision(X.dtype)

    def blocks(self, size: int) -> list[ArrayBlock]:
        """All rows in order."""
        n = self.n_rows
        return [ArrayBlock(self, slice(i, min(i + size, n))) for i in range(0, n, size)]

    def batches(self, size: int, rng: np.random.Generator) -> Iterator[ArrayBlock]:
        """All rows once, shuffled; the sizes of the minibatches differ by one at most."""
        order = rng.permutation(self.n_rows)
        n_batches = max(1, round(self.n_rows / size))
        for index in np.array_split(order, n_batches):
            # Sorted row numbers read a memmap forwards; the set of rows stays random.
            yield ArrayBlock(self, np.sort(index))

    def sample(self, size: int, rng: np.random.Generator) -> RawRows:
        """Rows drawn at random without replacement."""
        index = rng.choice(self.n_rows, size=min(size, self.n_rows), replace=False)
        return ArrayBlock(self, np.sort(index)).load()
