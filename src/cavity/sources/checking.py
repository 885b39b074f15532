"""A checker of any source against the contract of `Source`."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import numpy as np

from cavity.sources.contract import check_members, check_rows, loaded, require
from cavity.sources.protocol import RawRows, Source
from cavity.typing import Array, IntArray

_PROBES = 500
"""Rows that are compared between a pass in order and a shuffled one."""


def check_source(source: Source, size: int | None = None) -> None:
    """Check that an object keeps the contract of `Source`, in a few passes over its rows.

    Parameters
    ----------
    source
        Any object, such as one of your own.
    size
        Of the blocks and minibatches to ask for; by default a seventh of the rows, 1,000 at most.

    Raises
    ------
    SourceError
        Naming the member that is wrong, and how.

    Examples
    --------
    >>> from cavity.sources import ArraySource
    >>> check_source(ArraySource(np.eye(10), np.arange(10) % 2))
    """
    check_members(source)
    size = size or int(np.clip(source.n_rows // 7, 1, 1_000))
    probes = np.unique(np.linspace(0, source.n_rows - 1, _PROBES).astype(np.int64))
    values = _check_blocks(source, size, probes)
    _check_batches(source, size, probes, values)
    _check_skip(source, size)
    _check_sample(source)


def _check_blocks(source: Source, size: int, probes: IntArray) -> RawRows:
    """All rows once and in order; returns the rows with the numbers `probes`."""
    expected = 0
    total = 0.0
    parts = []
    for block in source.blocks(size):
        rows, index = loaded(source, block, "blocks")
        require(
            0 < len(index) <= size, f"blocks({size}) has a block of {len(index)} rows, not 1 to {size}"
        )
        in_order = np.array_equal(index, np.arange(expected, expected + len(index)))
        require(in_order, f"blocks({size}) is not in order, or has gaps, at row {expected}")
        expected += len(index)
        total += len(index) if rows.weight is None else float(np.sum(rows.weight))
        parts.append(_pick(rows, probes[(probes >= index[0]) & (probes <= index[-1])] - index[0]))
    require(expected == source.n_rows, f"blocks has {expected} rows, n_rows is {source.n_rows}")
    require(
        bool(np.isclose(total, source.total_weight, rtol=1e-4)),
        f"total_weight is {source.total_weight}, the weights sum to {total}",
    )
    weights = [part.weight for part in parts if part.weight is not None]
    return RawRows(
        np.concatenate([part.X for part in parts]),
        np.concatenate([part.labels for part in parts]),
        np.concatenate(weights) if weights else None,
    )


def _check_batches(source: Source, size: int, probes: IntArray, values: RawRows) -> None:
    """A permutation, the same for equal seeds and another for others, of the rows that blocks has."""
    count = np.zeros(source.n_rows, dtype=np.int8)
    order = []
    twins = zip_longest(source.batches(size, _rng(0)), source.batches(size, _rng(0)))
    for block, twin in twins:
        require(None not in (block, twin), "batches has different lengths for generators of equal state")
        rows, index = loaded(source, block, "batches")
        require(isinstance(block.index, np.ndarray), "batches: index is not an array of row numbers")
        same, _ = loaded(source, twin, "batches")
        require(
            np.array_equal(index, np.asarray(twin.index)) and _equal(rows, same),
            "batches is not the same for generators of equal state",
        )
        count[index] += 1
        order.append(index)
        here = np.flatnonzero(np.isin(index, probes))
        require(
            _equal(_pick(rows, here), _pick(values, np.searchsorted(probes, index[here]))),
            "batches: the rows of a block are not those that blocks has under the same row numbers",
        )
    require(
        bool((count == 1).all()),
        f"batches leaves out {np.sum(count == 0)} rows and repeats {np.sum(count > 1)}",
    )
    if source.n_rows >= 20 and len(order) > 1:
        other = np.concatenate([np.asarray(block.index) for block in source.batches(size, _rng(1))])
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


def _check_sample(source: Source) -> None:
    for size in (1, source.n_rows + 5):
        rows = source.sample(size, _rng(3))
        n = min(size, source.n_rows)
        require(np.shape(rows.X)[0] == n, f"sample({size}) has {np.shape(rows.X)[0]} rows, not {n}")
        check_rows(source, rows, n, f"sample({size})")
    half = max(1, min(source.n_rows // 2, 1_000))
    same = _equal(source.sample(half, _rng(4)), source.sample(half, _rng(4)))
    require(same, "sample is not the same for generators of equal state")


def _pick(rows: RawRows, positions: Any) -> RawRows:
    weight: Array | None = None if rows.weight is None else rows.weight[positions]
    return RawRows(rows.X[positions], rows.labels[positions], weight)


def _equal(a: RawRows, b: RawRows) -> bool:
    if (a.weight is None) != (b.weight is None):
        return False
    return all(np.array_equal(x, z) for x, z in zip(a, b, strict=True) if x is not None)


def _rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)
