"""Rows that training never sees, so that they can judge what it has come to.

Inducing points and kernel fit the rows that they have been trained on better than others, which the
cavities cannot know of: they leave a row out of q, not out of the inducing points. So minibatches may
spare a few rows, always the same ones. Which they are is a function of their numbers: there is nothing
to keep, nor to send anywhere.

Minibatches without most of the rows that have nothing to say.

A row whose label was as good as certain when it was last visited, itself left out, moves neither q nor
the parameters: its site and its gradient are in proportion to the doubt that is left. Of such rows a
few, each standing for several, tell a step what all of them would, at a fraction of the cost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cavity.data.arrays import ArrayBlock
from cavity.data.source import Block, LoadedBlock, RawRows, joined
from cavity.typing import Array, IntArray


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


_DOUBTFUL = 0.05
"""Probability of the other classes from which on a row is always kept."""


def thinned_batch(batch: Block, log_predictive: Array, least: float) -> Block:
    """A minibatch without most of its rows of no doubt; `log_predictive` [n] is that of all rows.

    On a cluster it is a shard's part of the minibatch, and [n] are the rows of the shard.
    """
    index = batch.index
    if least >= 1.0 or isinstance(index, slice):
        return batch
    if least * len(index) < 1.0:  # so few that none of them might be kept
        return batch
    last, offset = log_predictive[index], _offset(index)
    if isinstance(batch, ArrayBlock):  # the rows that are left out need not be copied
        every = batch.source.weight
        kept, importance_weight = systematic_subsample(
            last, least, offset, None if every is None else every[index]
        )
        return LoadedBlock(index[kept], replace(batch, index=index[kept]).load(), importance_weight)
    rows = batch.load()
    kept, importance_weight = systematic_subsample(last, least, offset, rows.weight)
    return LoadedBlock(index[kept], rows.take(kept), importance_weight)


def systematic_subsample(
    log_predictive: Array, least: float, offset: float, weight: Array | None = None
) -> tuple[IntArray, Array]:
    """Positions of the rows to keep, and for how many rows each of them stands.

    log_predictive: [t], log probability of each label when its row was last visited, NaN for never;
    least: smallest probability to be kept; offset: any number from 0 to 1; weight: [t], how often each
    row counts. A row is kept with a probability in proportion to its doubt and its weight, and stands
    for as many rows as the inverse of that, so that sums are those of all rows on average over the
    offsets. The probabilities are added up along the rows, from the offset on, and whoever reaches the
    next whole number is kept: as many as expected.

    >>> last = np.log([0.9, 1.0, 1.0, 1.0, 1.0, 0.5, np.nan])
    >>> kept, importance_weight = systematic_subsample(last, 0.25, 0.5)
    >>> kept.tolist(), importance_weight.tolist()
    ([0, 2, 5, 6], [1.0, 4.0, 1.0, 1.0])
    """
    doubt = -np.expm1(np.nan_to_num(log_predictive, nan=-np.inf))
    if weight is not None:
        doubt = doubt * weight
    probability = np.clip(doubt / _DOUBTFUL, least, 1.0).astype(np.float64)
    reached = np.floor(offset + np.cumsum(probability))
    kept = np.flatnonzero((np.diff(reached, prepend=0.0) > 0.0) | (probability == 1.0))
    return kept, 1.0 / probability[kept]


def _offset(index: IntArray) -> float:
    """As good as random, and the same for the same rows: no state to be kept, nor sent anywhere."""
    return int(index.sum(dtype=np.int64)) * 2_654_435_761 % 2**32 / 2**32
