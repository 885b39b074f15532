"""Which rows take part in training: rows held out for validation, and rows left out of minibatches.

Two kinds of rows are left out of minibatches.

* Calibration rows are a small share of the rows, always the same ones. Inducing points and
  kernel fit the rows that they were trained on better than others, which leave-one-out probabilities
  do not show: these leave a row out of q, but not out of the inducing points. A hash of a row's number
  decides, so that there is nothing to store or to send.
* Importance subsampling leaves out most of the rows whose label was almost certain when they were last
  visited. Their sites and gradients are close to zero, so a few of them, each with a larger weight,
  are enough for a step and cost much less.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.data.arrays import ArrayBlock
from cavity.data.source import Block, LoadedBlock, RawRows, joined
from cavity.typing import Array, IntArray

_DOUBTFUL = 0.05
"""Rows are always kept if the other classes had at least this probability together."""


class HeldOut(NamedTuple):
    """Validation rows, which take no part in training."""

    numbers: IntArray
    """Their sorted numbers."""
    rows: RawRows
    """The rows themselves."""

    @property
    def weight(self) -> float:
        """Their total weight."""
        return float(len(self.numbers) if self.rows.weight is None else self.rows.weight.sum())

    def mask(self, n_rows: int) -> NDArray[np.bool_]:
        """Which of all rows they are [n_rows]."""
        mask = np.zeros(n_rows, dtype=bool)
        mask[self.numbers] = True
        return mask


@dataclass(frozen=True)
class RowSampler:
    """Which rows of a minibatch take part in a pass; without arguments, all of them do."""

    subsample: float = 1.0
    """Smallest probability with which a row takes part (importance subsampling)."""
    calibration_share: float = 0.0
    """Share of the rows that are left to calibration."""

    def take(self, batch: Block, log_predictive: Array, first_row: int = 0) -> Block:
        """The rows of a minibatch that take part.

        log_predictive: [n], that of all rows of the source; first_row: number of the first of them, if
        the source is a part of a larger one.
        """
        if isinstance(batch.index, slice):  # rows in order, as a stream reads them
            return batch
        part = training_part(batch, self.calibration_share, first_row)
        # A minibatch of all rows would be subsampled in the same way in every epoch.
        whole = len(batch.index) == len(log_predictive)
        return part if whole else subsampled(part, log_predictive, self.subsample)


EVERY_ROW = RowSampler()
"""The sampler that takes all rows."""


def is_calibration_row(numbers: IntArray, share: float) -> NDArray[np.bool_]:
    """Which rows, given their numbers [t], are calibration rows: about `share` of them.

    >>> 450 < int(is_calibration_row(np.arange(10_000), 0.05).sum()) < 550
    True
    """
    return np.asarray(hashed(numbers) < np.uint64(share * 2**32))


def hashed(numbers: IntArray) -> NDArray[np.uint64]:
    """Numbers from 0 to 2³² − 1 that look random, one for each of the given numbers [t]."""
    # Multiplications and shifts spread every bit over all others, so that neighbours are independent.
    mixed = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(factor)
    return mixed >> np.uint64(32)


def training_part(batch: Block, share: float, first_row: int = 0) -> Block:
    """A minibatch without its calibration rows; see `RowSampler.take`."""
    return _part(batch, share, first_row, calibration=False)


def calibration_part(batch: Block, share: float, first_row: int = 0) -> Block:
    """The calibration rows of a minibatch."""
    return _part(batch, share, first_row, calibration=True)


def _part(batch: Block, share: float, first_row: int, *, calibration: bool) -> Block:
    """One of the two parts of a minibatch; if it is empty, one row of weight 0."""
    index = batch.index
    if share == 0.0 or isinstance(index, slice):
        return batch
    kept = np.flatnonzero(is_calibration_row(index.astype(np.int64) + first_row, share) == calibration)
    if len(kept) == len(index):
        return batch
    if isinstance(batch, ArrayBlock) and len(kept):
        return replace(batch, index=index[kept])
    rows = batch.load()
    if len(kept) == 0:
        return LoadedBlock(index[:1], rows.take(slice(1))._replace(weight=np.zeros(1)))
    return LoadedBlock(index[kept], rows.take(kept))


def calibration_rows(batches: Iterable[Block], share: float, size: int) -> LoadedBlock:
    """Calibration rows, from one minibatch after the other until they are `size`."""
    numbers: list[IntArray] = []
    parts: list[RawRows] = []
    for batch in batches:
        part = calibration_part(batch, share)
        parts.append(part.load())
        numbers.append(np.r_[part.index])
        if sum(len(rows.labels) for rows in parts) >= size:
            break
    return LoadedBlock(np.concatenate(numbers), joined(parts))


def subsampled(batch: Block, log_predictive: Array, least: float) -> Block:
    """A minibatch without most of its rows whose labels are almost certain.

    log_predictive: [n], that of all rows of the source; least: smallest probability to be kept.
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
    """Positions of the rows to keep, and how many rows each of them stands for.

    log_predictive: [t], log probability of each label when its row was last visited, NaN for never;
    least: smallest probability to be kept; offset: a number from 0 to 1; weight: [t], weights of the
    rows. The probability p of a row to be kept is proportional to its weight and to the probability of
    the other classes, between `least` and 1. A row that is kept counts 1/p times, so that sums are those
    of all rows on average over the offsets. Sampling is systematic: the probabilities are added up along
    the rows, beginning with the offset, and a row is kept where the sum reaches the next whole number.

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
    """A number from 0 to 1 that depends on the rows alone, as good as random: no state is needed."""
    return int(index.sum(dtype=np.int64)) * 2_654_435_761 % 2**32 / 2**32
