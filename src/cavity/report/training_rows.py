"""Rows of the training source, fetched by number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cavity.sources.arrays import ArrayBlock, ArraySource
from cavity.sources.protocol import Source
from cavity.typing import Array, IntArray

_BLOCK = 8_192


@dataclass(frozen=True)
class KnownRows:
    """Some labelled rows."""

    index: IntArray
    """[k]: their numbers."""
    X: Array
    """[k, d]: inputs of the classifier."""
    codes: IntArray
    """[k]"""


def rows_at(source: Source, index: IntArray) -> KnownRows:
    """The rows with these numbers, sorted; a source in files is read through once.

    >>> source = ArraySource(np.eye(4), np.array([0, 1, 1, 0]))
    >>> rows_at(source, np.array([2, 0])).codes.tolist()
    [0, 1]
    """
    wanted: IntArray = np.unique(index)
    if isinstance(source, ArraySource):
        rows = ArrayBlock(source, wanted).load()
        return KnownRows(wanted, rows.X, rows.labels)
    parts: list[tuple[Any, Any]] = []
    for block in source.blocks(_BLOCK):
        at = block.index
        numbers = np.arange(at.start, at.stop) if isinstance(at, slice) else at
        inside = np.isin(numbers, wanted)
        if inside.any():
            rows = block.load()
            parts.append((rows.X[inside], rows.labels[inside]))
    return KnownRows(
        wanted, np.concatenate([X for X, _ in parts]), np.concatenate([codes for _, codes in parts])
    )


def sample_index(n: int, size: int, seed: int) -> IntArray:
    """Up to `size` of n row numbers, at random, sorted."""
    if n <= size:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, size, replace=False))
