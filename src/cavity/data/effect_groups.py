"""Which groups of columns have effects: pairs and triples whose values say more together than apart.

A group is judged by what its effects gain over those of its parts: its columns for a pair, a pair and
one more column for a triple. The values of a group that occur together are its cells. There may be
nearly as many as rows, so that a sample of the rows would hardly meet a cell twice, though all rows do.
So the sample is one of cells, by a hash: all rows of some cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.data.columns import CATEGORICAL, NUMERIC
from cavity.data.effect_counts import Sample
from cavity.data.effects import N_FOLDS, Gain, base_rates, concentration, gain
from cavity.data.parts import import_arrow
from cavity.data.values import ValueIndex, Values
from cavity.typing import Array, IntArray

GROUP_COLUMNS = 20
"""Columns whose pairs are compared: those whose values say most about the label."""
BINS = 16
"""Bins of a smooth column in a group, and of the third column of a triple."""
FINALISTS = 24
"""Pairs that are compared with the sum of the effects of their columns."""
EXTENDED, THIRDS = 4, 8
"""Pairs that are tried with a third column, and columns that are tried as the third."""
MOST_GROUPS = 8
_SAMPLE_NUMBERS = 60_000
"""Rows of a group's sample, times the number of classes, at least."""
_SAMPLE_CELLS = 4_096
"""Cells of a group's sample, at least, if there are as many."""
_SAME_ROWS = 10_000
"""Rows on which columns that say the same in other words are found."""
_MIXER = 0x9E3779B97F4A7C15
"""2⁶⁴ over the golden ratio, for Fibonacci hashing."""
_MOST_CELLS = 2**53
"""Groups that could have more cells are left out: their numbers must fit into 64 bits."""

_ALL = slice(None)


class CountedColumn(NamedTuple):
    """A column that may be part of a group."""

    index: ValueIndex
    weights: Array
    """[K]: total weight of the rows with each value."""
    is_exact: bool
    """Whether its values say more than bins of neighbours do."""


class FoundGroup(NamedTuple):
    """A group of columns whose effects say more than those of its parts."""

    indices: tuple[ValueIndex, ...]
    gain: Gain


def binned(index: ValueIndex, weights: Array) -> ValueIndex:
    """An index of a column of numbers by bins of about equal weight; that of few values as it is."""
    if index.values.kind == CATEGORICAL or index.n_values <= 2 * BINS:
        return index
    middle = (np.cumsum(weights) - 0.5 * weights) / weights.sum()
    starts = np.flatnonzero(np.diff(np.floor(BINS * middle))) + 1
    return ValueIndex(index.values, index.keys[starts], is_binned=True)


def best_groups(columns: Sequence[CountedColumn], sample: Sample, n_classes: int) -> list[FoundGroup]:
    """The pairs and triples whose effects say most beyond the effects of their parts, best first.

    columns: those whose values say most about the label first.
    """
    rows = _Rows(sample, n_classes)
    coded = _without_copies([rows.coded(c) for c in _with_differences(columns[:GROUP_COLUMNS], sample)])
    pairs = _best_pairs(coded, rows)
    found = [FoundGroup((a.index, b.index), pair.gain(rows)) for a, b, pair in pairs]
    ranked = sorted(zip(found, pairs, strict=True), key=lambda one: -one[0].gain.mean)
    found = [one for one in found if one.gain.exceeds(3.0)]  # the best of many is good by chance, too
    for one, (a, b, pair) in ranked[:EXTENDED]:
        if one.gain.exceeds(3.0):
            thirds = [c for c in coded if c is not a and c is not b][:THIRDS]
            found += _triples(one, pair, thirds, rows)
    different = {frozenset(map(id, one.indices)): one for one in sorted(found, key=_mean_gain)}
    return sorted(different.values(), key=_mean_gain, reverse=True)[:MOST_GROUPS]


def _mean_gain(one: FoundGroup) -> float:
    return one.gain.mean


def _with_differences(columns: Sequence[CountedColumn], sample: Sample) -> Iterator[CountedColumn]:
    """Columns, and the differences of those that seem to have the same unit.

    These are whole numbers with effects of their own, such as the minutes of a departure and of an
    arrival, that have more values in common than not.
    """
    yield from columns
    many = [
        column
        for column in columns
        if column.is_exact
        and column.index.values.kind == NUMERIC
        and column.index.n_values > 2 * BINS
        and (np.floor(column.index.keys) == column.index.keys).all()
    ]
    for a, b in combinations(many, 2):
        common = len(np.intersect1d(a.index.keys, b.index.keys, assume_unique=True))
        if 2 * common > a.index.n_values + b.index.n_values - common:
            values = Values(a.index.values.column, NUMERIC, minus=b.index.values.column)
            cells = [values.of(batch).to_numpy(zero_copy_only=False) for batch in sample.batches]
            numbers = np.concatenate(cells)
            keys, counts = np.unique(numbers[np.isfinite(numbers)], return_counts=True)
            if len(keys) > 2 and 2 * len(keys) <= len(numbers):
                yield CountedColumn(ValueIndex(values, keys), counts.astype(np.float64), True)


@dataclass(frozen=True, eq=False)
class _Coded:
    """The codes of a column."""

    index: ValueIndex
    coarse: ValueIndex
    """The column in bins, if it has many values."""
    codes: NDArray[np.int32]
    """[s]"""
    log_proba: Array
    """[K + 2, F, C]: what the value alone tells the rows of each fold."""


class _Rows:
    """The rows on which groups are judged."""

    def __init__(self, sample: Sample, n_classes: int) -> None:
        self._sample, self.n_classes = sample, n_classes
        totals = np.bincount(sample.codes, sample.weight, n_classes)
        self.base = base_rates(totals.astype(np.float64))
        self._least_share = _SAMPLE_NUMBERS / n_classes / max(1, len(sample.codes))
        self._bins: dict[int, _Coded] = {}

    def coded(self, column: CountedColumn) -> _Coded:
        """A column as it takes part in pairs."""
        coarse = binned(column.index, column.weights)
        return self._of(column.index if column.is_exact else coarse, coarse)

    def in_bins(self, column: _Coded) -> _Coded:
        """A column as the third one of a triple."""
        if column.index is column.coarse:
            return column
        if id(column) not in self._bins:
            self._bins[id(column)] = self._of(column.coarse, column.coarse)
        return self._bins[id(column)]

    def _of(self, index: ValueIndex, coarse: ValueIndex) -> _Coded:
        codes = np.concatenate([index.codes(batch) for batch in self._sample.batches])
        log_proba = self.cross_fitted(self.counts(codes, index.n_codes))
        return _Coded(index, coarse, codes.astype(np.int32), log_proba)

    def of_some_cells(self, a: _Coded, b: _Coded) -> IntArray | slice:
        """Positions of all rows of some cells of a pair, or all rows."""
        n_cells = a.index.n_codes * b.index.n_codes
        share = max(self._least_share, _SAMPLE_CELLS / n_cells)
        if share >= 1.0:
            return _ALL
        joint = a.codes.astype(np.uint64)
        joint *= np.uint64(b.index.n_codes)
        joint += b.codes.view(np.uint32)
        joint *= np.uint64(_MIXER)  # the highest bits depend on all bits
        return np.flatnonzero(joint < np.uint64(share * 2.0**64))

    def counts(self, cells: IntArray, n_cells: int, rows: IntArray | slice = _ALL) -> Array:
        """Total weight [K, F, C] of the rows with these cells [r], by fold and class."""
        folds, codes, weight = (part[rows] for part in self._sample[1:])
        place = (cells.astype(np.int64) * N_FOLDS + folds) * self.n_classes + codes
        size = n_cells * N_FOLDS * self.n_classes
        return np.bincount(place, weight, size).reshape(n_cells, N_FOLDS, self.n_classes)

    def cross_fitted(self, counts: Array) -> Array:
        """Log probabilities [K, F, C] of the classes at each cell, for the rows of each fold."""
        n_cells, n_folds, n_classes = counts.shape
        totals = counts.reshape(n_cells, -1) @ np.tile(np.eye(n_classes), (n_folds, 1))
        prior = concentration(totals, self.base) * self.base
        others = totals[:, None] - counts
        np.maximum(others, 0.0, out=others)
        others += prior
        others /= (others @ np.ones(n_classes))[:, :, None]
        return np.log(others, out=others)


@dataclass(frozen=True, eq=False)
class _Group:
    """Some cells of two parts together: columns, or a pair and a column."""

    rows: IntArray | slice
    """Positions of the rows in these cells."""
    cells: IntArray
    """[r]: the cell of each row."""
    counts: Array
    """[K, F, C]"""
    parts: tuple[Array, Array]
    """[K, F, C]: log probabilities by each part alone."""
    log_proba: Array
    """[K, F, C]: those by both together."""

    @classmethod
    def of(
        cls, left: IntArray, left_log_proba: Array, right: _Coded, at: IntArray | slice, rows: _Rows
    ) -> _Group:
        """The cells of a part with codes [r] and log probabilities, and of a column, at some rows."""
        joint = left.astype(np.int64) * right.index.n_codes + right.codes[at]
        encoded = import_arrow()[0].array(joint).dictionary_encode()  # quicker than to sort them
        cells = encoded.indices.to_numpy()
        first, second = np.divmod(encoded.dictionary.to_numpy(), right.index.n_codes)
        counts = rows.counts(cells, len(first), at)
        parts = left_log_proba[first], right.log_proba[second]
        return cls(at, cells, counts, parts, rows.cross_fitted(counts))

    def screened(self) -> float:
        """The gain over the better part, in total, which is quick."""
        better = max(float((self.counts * part).sum()) for part in self.parts)
        return (float((self.counts * self.log_proba).sum()) - better) / float(self.counts.sum())

    def gain(self, rows: _Rows) -> Gain:
        """The gain over the sum of the effects of both parts."""
        cell, fold, code = np.nonzero(self.counts)
        weight = self.counts[cell, fold, code]
        each = np.stack([part[cell, fold].T for part in (*self.parts, self.log_proba)], axis=1)
        effects = each - np.log(rows.base)[:, None, None]
        with_group = combined(effects, rows.base, code, weight)
        return gain(weight, with_group, combined(effects[:, :2], rows.base, code, weight))


def _best_pairs(coded: Sequence[_Coded], rows: _Rows) -> list[tuple[_Coded, _Coded, _Group]]:
    """The pairs that say most beyond the better one of their columns."""

    def pair(a: _Coded, b: _Coded) -> _Group:
        at = rows.of_some_cells(a, b)
        return _Group.of(a.codes[at], a.log_proba, b, at, rows)

    trials = []
    for i, j in combinations(range(len(coded)), 2):
        a, b = coded[i], coded[j]
        if a.index.is_binned and b.index.is_binned:
            continue  # a smooth function of two numbers, which needs no effects
        if a.index.n_codes * b.index.n_codes < _MOST_CELLS and not _determine_each_other(a, b):
            trials.append((pair(a, b).screened(), i, j))
    trials.sort(reverse=True)
    best = [(coded[i], coded[j]) for screened, i, j in trials[:FINALISTS] if screened > 0.0]
    return [(a, b, pair(a, b)) for a, b in best]


def _determine_each_other(a: _Coded, b: _Coded) -> bool:
    """Whether two of a difference and its columns would determine the third: that is no new pair."""
    first, second = set(a.index.values.columns), set(b.index.values.columns)
    return len(first | second) == 2 and len(first) + len(second) > 2


def _triples(
    pair: FoundGroup, cells: _Group, thirds: Sequence[_Coded], rows: _Rows
) -> Iterator[FoundGroup]:
    """A pair with each of some columns, in bins, if that says more than the pair and the column."""
    n_cells = int(np.prod([float(index.n_codes) for index in pair.indices]))
    for third in map(rows.in_bins, thirds):
        if n_cells * third.index.n_codes < _MOST_CELLS:
            triple = _Group.of(cells.cells, cells.log_proba, third, cells.rows, rows)
            over = triple.gain(rows)
            if over.exceeds(3.0):
                yield FoundGroup((*pair.indices, third.index), over)


def _without_copies(coded: Sequence[_Coded]) -> list[_Coded]:
    """Columns without those that say the same as one before in other words."""
    kept: list[_Coded] = []
    for one in coded:
        if not any(_is_copy(one.codes[:_SAME_ROWS], other.codes[:_SAME_ROWS]) for other in kept):
            kept.append(one)
    return kept


def _is_copy(a: IntArray, b: IntArray) -> bool:
    """Whether codes [s] tell others [s] in nearly all rows, and these tell them."""
    joint, counts = np.unique(np.stack([a, b]), axis=1, return_counts=True)
    for code in joint:
        most = np.zeros(int(code.max()) + 1)
        np.maximum.at(most, code, counts)
        if most.sum() < 0.99 * len(a) or 2 * np.count_nonzero(most) > len(a):
            return False
    return True


def combined(parts: Array, base: Array, codes: IntArray, weight: Array, n_steps: int = 4) -> Array:
    """Log probabilities [s] of labels if effects are added up, each times the best coefficient.

    parts: [C, q, s], q effects on the log probability of each class. Newton's method.
    """
    n_classes, q, _ = parts.shape
    X = parts[1:] - parts[0]  # log-odds to the first class
    offsets = np.log(base[1:] / base[0])
    own = codes == np.arange(1, n_classes)[:, None]
    coefficients = np.full(q, 1.0 / q)
    for step in range(n_steps + 1):
        scores = np.array([coefficients @ x + offset for x, offset in zip(X, offsets, strict=True)])
        largest = np.maximum(scores.max(axis=0), 0.0)
        odds = np.exp(scores - largest)
        total = odds.sum(axis=0) + np.exp(-largest)
        if step == n_steps:
            return np.asarray((own * scores).sum(axis=0) - largest - np.log(total))
        slope, curve, mean = np.zeros(q), np.zeros((q, q)), np.zeros((q, len(codes)))
        for x, proba, is_own in zip(X, odds / total, own, strict=True):
            slope += x @ (weight * (is_own - proba))
            expected = x * proba
            curve += (expected * weight) @ x.T
            mean += expected
        curve -= (mean * weight) @ mean.T
        ridge = 1e-6 * np.trace(curve) / q + 1e-9
        coefficients = coefficients + np.linalg.solve(curve + ridge * np.eye(q), slope)
    raise AssertionError
