"""A source whose classes weigh more or less than their rows say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from cavity.sources.blocks import rows_to_look_at
from cavity.sources.protocol import Block, RawRows, Source
from cavity.typing import Array, IntArray


def class_totals(source: Source, n_classes: int) -> Array:
    """Total weight of each class [C]: the source's own `class_totals`, or else by a pass.

    >>> from cavity.sources import ArraySource
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
