"""Minibatches without most of the rows that have nothing to say.

A row whose label was as good as certain when it was last visited, itself left out, moves neither q nor
the parameters: its site and its gradient are in proportion to the doubt that is left. Of such rows a
few, each standing for several, tell a step what all of them would, at a fraction of the cost.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cavity.sources.arrays import ArrayBlock
from cavity.sources.blocks import LoadedBlock
from cavity.sources.protocol import Block
from cavity.typing import Array, IntArray

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
        kept, stands_for = doubtful_rows(last, least, offset, None if every is None else every[index])
        return LoadedBlock(index[kept], replace(batch, index=index[kept]).load(), stands_for)
    rows = batch.load()
    kept, stands_for = doubtful_rows(last, least, offset, rows.weight)
    return LoadedBlock(index[kept], rows.take(kept), stands_for)


def doubtful_rows(
    log_predictive: Array, least: float, offset: float, weight: Array | None = None
) -> tuple[IntArray, Array]:
    """Positions of the rows to keep, and for how many rows each of them stands.

    log_predictive: [t], log probability of each label when its row was last visited, NaN for never;
    least: smallest probability to be kept; offset: any number from 0 to 1; weight: [t], how often each
    row counts. A row is kept with a probability in proportion to its doubt and its weight, and stands
    for as many rows as the inverse of that, so that sums are those of all rows on average over the
    offsets. The probabilities are added up along the rows, from the offset on, and whoever reaches the
    next whole number is kept: as many as expected.

    >>> kept, stands_for = doubtful_rows(np.log([0.9, 1.0, 1.0, 1.0, 1.0, 0.5, np.nan]), 0.25, 0.5)
    >>> kept.tolist(), stands_for.tolist()
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
