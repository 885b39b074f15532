"""Rows that training never sees, so that they can judge what it has come to.

Inducing points and kernel fit the rows that they have been trained on better than others, which the
cavities cannot know of: they leave a row out of q, not out of the inducing points. So minibatches may
spare a few rows, always the same ones. Which they are is a function of their numbers: there is nothing
to keep, nor to send anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cavity.sources.arrays import ArrayBlock
from cavity.sources.blocks import LoadedBlock, joined
from cavity.sources.protocol import Block, RawRows
from cavity.typing import IntArray


def is_spared(numbers: IntArray, share: float) -> NDArray[np.bool_]:
    """Which rows, by their numbers [t], are spared: about `share` of any many of them.

    >>> 450 < int(is_spared(np.arange(10_000), 0.05).sum()) < 550
    True
    """
    # Multiplications and shifts spread every bit over all others: neighbours have nothing in common.
    mixed = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(factor)
    return np.asarray((mixed >> np.uint64(32)) < np.uint64(share * 2**32))


def spared_batch(batch: Block, share: float, *, only: bool, first: int = 0) -> Block:
    """A minibatch without the spared rows, or with those alone; of none, one row that counts nothing.

    first: number of the first row of the source among all rows.
    """
    index = batch.index
    if share == 0.0 or isinstance(index, slice):
        return batch
    kept = np.flatnonzero(is_spared(index.astype(np.int64) + first, share) == only)
    if len(kept) == len(index):
        return batch
    if isinstance(batch, ArrayBlock) and len(kept):
        return replace(batch, index=index[kept])
    rows = batch.load()
    if len(kept) == 0:
        return LoadedBlock(index[:1], rows.take(slice(1))._replace(weight=np.zeros(1)))
    return LoadedBlock(index[kept], rows.take(kept))


def spared_rows(batches: Iterable[Block], share: float, most: int) -> LoadedBlock:
    """Only spared rows of minibatches, read one after the other until there are at least `most`."""
    numbers: list[IntArray] = []
    parts: list[RawRows] = []
    for batch in batches:
        part = spared_batch(batch, share, only=True)
        parts.append(part.load())
        numbers.append(np.r_[part.index])
        if sum(len(rows.labels) for rows in parts) >= most:
            break
    return LoadedBlock(np.concatenate(numbers), joined(parts))
