"""Which rows take part in training: rows that are held out, and rows left out of minibatches.

* Held-out rows are a small share of the rows, always the same ones. They score states and
  configurations, and calibrate the predictions: inducing points and kernel fit the rows that they were
  trained on better than others. A hash of a row's number decides, so that it does not matter where the
  rows are.
* Importance subsampling leaves out most of the rows whose label was almost certain when they were last
  visited. Their sites and gradients are close to zero, so a few of them, each with a larger weight,
  are enough for a step and cost much less.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.data.arrays import ArrayBlock
from cavity.data.source import Block, LoadedBlock, RawRows
from cavity.typing import Array, IntArray

MOST_HELD_OUT = 20_000
"""Most rows that are held out."""
MOST_VALUES_HELD_OUT = 20_000_000
"""Most of their values: they are kept in memory. A thousand rows are held out in any case."""
_DOUBTFUL = 0.05
"""Rows are always kept if the other classes had at least this probability together."""


class HeldOut(NamedTuple):
    """Rows that take no part in training: some of the source's, or rows that come with it."""

    numbers: IntArray
    """Their sorted numbers; none if they are not rows of the source."""
    rows: RawRows
    """The rows themselves."""
    offset: Array | None = None
    """[k, L]: their latent offsets."""
    judging_weight: Array | None = None
    """[k]: what each counts when a score is computed or a prediction calibrated; None is its weight."""

    @property
    def counts(self) -> Array:
        """[k]: what each counts when a score is computed or a prediction calibrated."""
        if self.judging_weight is not None:
            return self.judging_weight
        return np.ones(len(self.rows.labels)) if self.rows.weight is None else self.rows.weight

    @property
    def weight(self) -> float:
        """Their total weight."""
        return float(len(self.rows.labels) if self.rows.weight is None else self.rows.weight.sum())

    @property
    def missing_weight(self) -> float:
        """The weight that the source's own rows have less in training, because of them."""
        return self.weight if len(self.numbers) else 0.0

    def leading(self, n_features: int) -> HeldOut:
        """The same rows with the first columns of X alone."""
        return self._replace(rows=self.rows._replace(X=self.rows.X[:, :n_features]))

    def mask(self, n_rows: int) -> NDArray[np.bool_]:
        """Which of all rows they are [n_rows]."""
        mask = np.zeros(n_rows, dtype=bool)
        mask[self.numbers] = True
        return mask


def with_class_shares(rows: RawRows, totals: Array) -> Array:
    """Weights [k] of sampled rows that give each class its share of the total weights [C] of all rows.

    Their sum is that of the rows' own weights. Chance gives a sample too many rows of some classes; with
    these weights (post-stratification) that changes neither a score nor a calibration.

    >>> rows = RawRows(np.zeros((4, 1)), np.array([0, 0, 1, 1]), None)
    >>> with_class_shares(rows, np.array([75.0, 25.0]))
    array([1.5, 1.5, 0.5, 0.5])
    """
    weight = np.ones(len(rows.labels)) if rows.weight is None else rows.weight
    found = np.bincount(rows.labels, weight, len(totals))
    wanted = np.where(found > 0.0, totals, 0.0)
    if not wanted.sum() > 0.0:
        return weight
    factors = np.divide(wanted, found, out=np.zeros(len(totals)), where=found > 0.0)
    return np.asarray(factors[rows.labels] * weight * (found.sum() / wanted.sum()))


@dataclass(frozen=True)
class RowSampler:
    """Which rows of a minibatch take part in a pass; without arguments, all of them do."""

    subsample: float = 1.0
    """Smallest probability with which a row takes part (importance subsampling)."""

    def take(
        self, batch: Block, log_predictive: Array, held_out: NDArray[np.bool_] | None = None
    ) -> Block:
        """The rows of a minibatch that take part.

        log_predictive: [n], that of all rows of the source; held_out: [n], which rows are held out.
        """
        if isinstance(batch.index, slice):  # rows in order, as a stream reads them
            return batch
        part = batch if held_out is None else _without_rows(batch, held_out[batch.index])
        # A minibatch of all rows would be subsampled in the same way in every epoch.
        whole = len(batch.index) == len(log_predictive)
        return part if whole else subsampled(part, log_predictive, self.subsample)


EVERY_ROW = RowSampler()
"""The sampler that takes all rows."""


def row_hash(numbers: IntArray, seed: int = 0) -> NDArray[np.uint64]:
    """Hashes [t] of row numbers [t]: as good as random, and the same wherever the rows are."""
    # Multiplications and shifts spread every bit over all others, so that neighbours are independent.
    mixed = numbers.astype(np.uint64) + np.uint64((seed + 1) * 0x9E3779B97F4A7C15 % 2**64)
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        mixed = (mixed ^ (mixed >> np.uint64(33))) * np.uint64(factor)
    return np.asarray(mixed ^ (mixed >> np.uint64(33)))


def hashed_folds(numbers: IntArray, n: int, seed: int) -> IntArray:
    """The fold [t], from 0 to n − 1, of rows with these numbers [t], by a hash of the number.

    >>> hashed_folds(np.arange(8), 5, seed=0x5EED).tolist()
    [4, 2, 2, 4, 1, 1, 3, 1]
    """
    return np.asarray(row_hash(numbers, seed) % np.uint64(n), dtype=np.int64)


_ROWS_AT_ONCE = 1_000_000
"""Row numbers that are hashed at once, so that memory does not grow with the number of rows."""


def hashed_rows(n_rows: int, size: int, seed: int = 0) -> IntArray:
    """Sorted numbers of `size` of the rows, those with the smallest hashes.

    >>> len(hashed_rows(10_000, 500)), hashed_rows(10, 3).tolist()
    (500, [6, 7, 9])
    """
    # Most rows have a hash beyond this bound; with it, large numbers of rows need little memory.
    bound = np.uint64(min(2**64 - 1, int((size + 6.0 * size**0.5 + 20.0) / n_rows * 2**64)))
    numbers, hashes = [], []
    for start in range(0, n_rows, _ROWS_AT_ONCE):
        some = np.arange(start, min(start + _ROWS_AT_ONCE, n_rows))
        values = row_hash(some, seed)
        low = values <= bound
        numbers.append(some[low])
        hashes.append(values[low])
    chosen = np.argsort(np.concatenate(hashes), kind="stable")[:size]
    return np.asarray(np.sort(np.concatenate(numbers)[chosen]))


def held_out_numbers(n_rows: int, n_features: int, fraction: float, seed: int) -> IntArray:
    """Sorted numbers of a share of the rows, chosen by a hash, and at most 20,000."""
    most = max(1_000, MOST_VALUES_HELD_OUT // n_features)
    size = min(round(fraction * n_rows), MOST_HELD_OUT, most, n_rows - 1)
    return hashed_rows(n_rows, max(1, size), seed)


def _without_rows(batch: Block, left_out: NDArray[np.bool_]) -> Block:
    """A minibatch without some of its rows [t]; if nothing remains, one row of weight 0."""
    index, kept = batch.index, np.flatnonzero(~left_out)
    assert not isinstance(index, slice)
    if len(kept) == len(index):
        return batch
    if isinstance(batch, ArrayBlock) and len(kept):
        return replace(batch, index=index[kept])
    rows = batch.load()
    if len(kept) == 0:
        return LoadedBlock(index[:1], rows.take(slice(1))._replace(weight=np.zeros(1)))
    return LoadedBlock(index[kept], rows.take(kept))


def subsampled(batch: Block, log_predictive: Array, least: float) -> Block:
    """A minibatch without most of its rows whose labels are almost certain.

    log_predictive: [n], that of all rows of the source; least: smallest probability to be kept.
    """
    index = batch.index
    if least >= 1.0 or isinstance(index, slice):
        return batch
    if least * len(index) < 1.0:  # so few that none of them might be kept
        return batch
    last, offset = log_predictive[index], _hashed_offset(index)
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
    of all rows on average over the offsets. Sampling is systematic: the probabilities below 1 are added
    up along the rows, beginning with the offset, and a row is kept where the sum reaches the next whole
    number. Those of 1 would not change its fraction, but round it.

    >>> last = np.log([0.9, 1.0, 1.0, 1.0, 1.0, 0.5, np.nan])
    >>> kept, importance_weight = systematic_subsample(last, 0.25, 0.5)
    >>> kept.tolist(), importance_weight.tolist()
    ([0, 2, 5, 6], [1.0, 4.0, 1.0, 1.0])
    """
    doubt = -np.expm1(np.nan_to_num(log_predictive, nan=-np.inf))
    if weight is not None:
        doubt = doubt * weight
    probability = np.clip(doubt / _DOUBTFUL, least, 1.0).astype(np.float64)
    certain = probability == 1.0
    reached = np.floor(offset + np.cumsum(np.where(certain, 0.0, probability)))
    kept = np.flatnonzero((np.diff(reached, prepend=0.0) > 0.0) | certain)
    return kept, 1.0 / probability[kept]


def _hashed_offset(index: IntArray) -> float:
    """A number from 0 to 1 that depends on the rows alone, as good as random: no state is needed."""
    return int(index.sum(dtype=np.int64)) * 2_654_435_761 % 2**32 / 2**32
