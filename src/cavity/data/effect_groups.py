"""Which groups of columns have effects: pairs and triples whose values say more together than apart.

Groups are judged on some rows, which see the labels of all others. That takes the counts of all rows:
the values of a group that occur together, its cells, may be nearly as many as the rows, and a sample of
the rows would hardly meet a cell twice. But only the cells of the judging rows are counted.

The values of a column of measurements are not compared one by one, but in bins of neighbours. Where rows
are almost copies of each other, such as two samples of one thing, they have values of several columns in
common. So a pair has the values themselves if these say more than bins do, and more than both columns.

Pairs are chosen one after the other, each for what it adds to the effects of all columns and of the
pairs before. Then the chosen pairs are tried with a third column, in bins, and triples are chosen
likewise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.data.columns import CATEGORICAL, NUMERIC
from cavity.data.effect_counts import RowSample
from cavity.data.effects import N_FOLDS, Gain, base_rates, concentration, gain
from cavity.data.parts import import_arrow
from cavity.data.sampling import hashed_rows
from cavity.data.values import ValueIndex, Values, is_whole
from cavity.typing import Array, IntArray

GROUP_COLUMNS = 20
"""Columns whose pairs are compared: those whose values say most about the label."""
SUBTRACTED, MOST_DIFFERENCES = 5, 3
"""Columns whose differences are tried, and differences that take part in groups: those that say most."""
BINS = 16
"""Bins of a smooth column in a group, and of the third column of a triple."""
FINALISTS = 24
"""Pairs that are compared with the sum of the effects of their columns."""
THIRDS = 8
"""Columns that are tried as the third of a pair: those that say most."""
COMPARED_BY_VALUE = 8
"""Columns in bins whose pairs are also tried by their values: those that say most."""
MOST_PAIRS, MOST_GROUPS = 6, 10
"""Most pairs that are chosen, and most pairs and triples together."""
_JUDGING_NUMBERS = 40_000
"""Number of the judging rows times that of the classes."""
_ROWS_PER_CELL = 8
"""Groups that can have more cells than rows over this are counted at those of the judging rows only."""
_MIXER, _BUCKET_BITS = 0x9E3779B1, 20
"""2³² over the golden ratio, for Fibonacci hashing, and bits of the number of a bucket."""
_ALL = slice(None)
_MOST_CELLS = 2**53
"""Groups that could have more cells are left out: their numbers must fit into 64 bits."""


@dataclass(frozen=True, eq=False)
class CountedColumn:
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


def best_groups(columns: Sequence[CountedColumn], sample: RowSample, n_classes: int) -> list[FoundGroup]:
    """The pairs and triples whose effects say most beyond the effects of columns and of each other.

    columns: those whose values say most about the label first.
    """
    rows = _Rows(sample, n_classes)
    coded = [rows.column(column) for column in columns[:GROUP_COLUMNS]]
    differences = [rows.column(column) for column in _differences(columns, sample)]
    coded += sorted(differences, key=lambda column: rows.loss(column.log_proba))[:MOST_DIFFERENCES]
    choice = _Choice(rows, [column.log_proba for column in coded])
    pairs = choice.extended(_promising_pairs(coded, rows), MOST_PAIRS)
    choice.extended(_triples(pairs, coded, rows), MOST_GROUPS)
    return choice.found


def _differences(columns: Sequence[CountedColumn], sample: RowSample) -> Iterator[CountedColumn]:
    """The differences of columns that seem to have the same unit.

    These are whole numbers with effects of their own, such as the minutes of a departure and of an
    arrival, that have most values in common.
    """
    many = [
        column
        for column in columns
        if column.is_exact
        and column.index.values.kind == NUMERIC
        and column.index.n_values > 2 * BINS
        and is_whole(column.index.keys)
    ]
    for a, b in combinations(many[:SUBTRACTED], 2):
        common = len(np.intersect1d(a.index.keys, b.index.keys, assume_unique=True))
        if 4 * common > 3 * (a.index.n_values + b.index.n_values - common):
            values = Values(a.index.values.column, NUMERIC, minus=b.index.values.column)
            cells = [values.of(batch).to_numpy(zero_copy_only=False) for batch in sample.batches]
            numbers = np.concatenate(cells)
            keys, counts = np.unique(numbers[np.isfinite(numbers)], return_counts=True)
            if len(keys) > 2 and 2 * len(keys) <= len(numbers):
                yield CountedColumn(ValueIndex(values, keys), counts.astype(np.float64), True)


@dataclass(frozen=True, eq=False)
class _Column:
    """A column whose cells are coded."""

    index: ValueIndex
    coarse: ValueIndex
    """The column in bins, if it has many values."""
    fine: ValueIndex
    """The column by its values."""
    codes: NDArray[np.int32]
    """[s]"""
    log_proba: Array
    """[C, r]: of the classes, by the value alone, at the judging rows."""


class _Candidate(NamedTuple):
    """A pair or triple of columns that may be chosen."""

    columns: tuple[_Column, ...]
    log_proba: Array
    """[C, r]: of the classes, by the cell, at the judging rows."""


@dataclass(frozen=True, eq=False)
class _Group:
    """A pair or triple of columns, with the cells of many rows."""

    candidate: _Candidate
    rows: IntArray | slice
    """[k]: those that are counted: all rows in the cells of the judging rows, and some others."""
    cells: IntArray
    """[k]: the numbers of their cells."""
    n_cells: int


class _Rows:
    """Rows of a table; columns and groups are compared by their log loss on some, the judging rows."""

    def __init__(self, sample: RowSample, n_classes: int) -> None:
        self._batches, self._n_classes = sample.batches, n_classes
        self._folds, self._weight = sample.folds.astype(np.int32), sample.weight
        self._place = self._folds * np.int32(n_classes) + sample.codes.astype(np.int32)
        totals = np.bincount(sample.codes, sample.weight, n_classes)
        self.base = base_rates(totals.astype(np.float64))
        n = len(sample.codes)
        self._judges = hashed_rows(n, min(n, _JUDGING_NUMBERS // n_classes))
        self.codes, self.weight = sample.codes[self._judges], sample.weight[self._judges]
        self._other_forms: dict[ValueIndex, _Column] = {}

    def column(self, column: CountedColumn) -> _Column:
        """A column in the form in which pairs take it: by value or in bins."""
        coarse = binned(column.index, column.weights)
        return self._coded(column.index if column.is_exact else coarse, coarse, column.index)

    def in_bins(self, column: _Column) -> _Column:
        """A column in bins, as the third one of a triple."""
        return self._with_index(column, column.coarse)

    def by_value(self, column: _Column) -> _Column:
        """A column by its values, not in bins."""
        return self._with_index(column, column.fine)

    def _with_index(self, column: _Column, index: ValueIndex) -> _Column:
        if column.index is index:
            return column
        if index not in self._other_forms:
            self._other_forms[index] = self._coded(index, column.coarse, column.fine)
        return self._other_forms[index]

    def _coded(self, index: ValueIndex, coarse: ValueIndex, fine: ValueIndex) -> _Column:
        codes = np.concatenate([index.codes(batch) for batch in self._batches])
        log_proba = self._cross_fitted(codes, index.n_codes, _ALL)
        return _Column(index, coarse, fine, codes.astype(np.int32), log_proba)

    def pair(self, a: _Column, b: _Column) -> _Group:
        """The cells of two columns."""
        cells = a.codes.astype(np.int64) * b.index.n_codes + b.codes
        return self._group((a, b), cells, a.index.n_codes * b.index.n_codes, _ALL)

    def triple(self, pair: _Group, third: _Column) -> _Group:
        """The cells of a pair and one more column."""
        cells = pair.cells * third.index.n_codes + third.codes[pair.rows]
        columns = *pair.candidate.columns, third
        return self._group(columns, cells, pair.n_cells * third.index.n_codes, pair.rows)

    def _group(
        self, columns: tuple[_Column, ...], cells: IntArray, n_cells: int, rows: IntArray | slice
    ) -> _Group:
        if n_cells * _ROWS_PER_CELL > len(self._place):
            buckets = cells.astype(np.uint32) * np.uint32(_MIXER) >> np.uint32(32 - _BUCKET_BITS)
            judged = np.zeros(2**_BUCKET_BITS, dtype=bool)
            judged[buckets[self._judges_among(rows)]] = True
            inside = np.flatnonzero(judged[buckets])
            cells, rows = cells[inside], inside if isinstance(rows, slice) else rows[inside]
            encoded = import_arrow()[0].array(cells).dictionary_encode()  # quicker than to sort them
            cells, n_cells = encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)
        candidate = _Candidate(columns, self._cross_fitted(cells, n_cells, rows))
        return _Group(candidate, rows, cells, n_cells)

    def _judges_among(self, rows: IntArray | slice) -> IntArray:
        """Positions of the judging rows among some rows."""
        return self._judges if isinstance(rows, slice) else np.searchsorted(rows, self._judges)

    def _cross_fitted(self, cells: IntArray, n_cells: int, rows: IntArray | slice) -> Array:
        """Log probabilities [C, r] at the judging rows, from the cells [k] of some rows [k].

        A judging row sees the rows of other folds, as in training.
        """
        shape = n_cells, N_FOLDS, self._n_classes
        place = cells * (N_FOLDS * self._n_classes) + self._place[rows]
        found = np.bincount(place, self._weight[rows], int(np.prod(shape)))
        counts = found.astype(np.float64, copy=False).reshape(shape)
        totals = counts.reshape(n_cells, -1) @ np.tile(np.eye(self._n_classes), (N_FOLDS, 1))
        prior = concentration(totals, self.base) * self.base
        cell = cells[self._judges_among(rows)]
        others = (totals[cell] - counts[cell, self._folds[self._judges]]).T
        np.maximum(others, 0.0, out=others)
        others += prior[:, None]
        return np.asarray(np.log(others / others.sum(axis=0)))

    def loss(self, log_proba: Array) -> float:
        """The mean log loss of the judging rows."""
        own = log_proba[self.codes, np.arange(len(self.codes))]
        return -float(self.weight @ own) / float(self.weight.sum())

    def sum_of(self, parts: Sequence[Array]) -> tuple[Array, Array]:
        """Log probabilities [C, r] by a weighted sum of effects, and the best weights [q].

        parts: log probabilities [C, r] by each effect.
        """
        effects = np.stack(parts, axis=1) - np.log(self.base)[:, None, None]
        return combined(effects, self.base, self.codes, self.weight)

    def gain(self, log_proba: Array, before: Array) -> Gain:
        """How much smaller the log loss of log probabilities is than that of others, both [C, r]."""
        own = self.codes, np.arange(len(self.codes))
        return gain(self.weight, log_proba[own], before[own])


class _Choice:
    """Groups chosen one after the other, each for what it adds to those before."""

    def __init__(self, rows: _Rows, columns: Sequence[Array]) -> None:
        self._rows, self.found = rows, list[FoundGroup]()
        self._log_proba, _ = rows.sum_of(columns)

    def extended(self, candidates: Iterable[_Candidate], most: int) -> list[_Candidate]:
        """Choose more groups, as long as there are fewer than `most` in total; return the new ones."""
        left, chosen = list(candidates), list[_Candidate]()
        while left and len(self.found) < most:
            tried = []
            # Otherwise any group would gain by correcting the scale of what is there.
            self._log_proba, _ = self._rows.sum_of([self._log_proba])
            for group in left:
                after, coefficients = self._rows.sum_of([self._log_proba, group.log_proba])
                over = self._rows.gain(after, self._log_proba)
                # The coefficient is fitted here, so that a gain of two standard errors means that it is
                # four from 0: the best of hundreds is hardly as good by chance. What adds nothing now
                # will not later. A negative coefficient is one of noise: other folds have a little less
                # of a row's label than all rows have.
                if coefficients[-1] > 0.0 and over.exceeds(2.0):
                    tried.append((over, group, after))
            if not tried:
                break
            over, group, self._log_proba = max(tried, key=lambda one: one[0].mean)
            self.found.append(FoundGroup(tuple(column.index for column in group.columns), over))
            chosen.append(group)
            left = [other for _, other, _ in tried if other is not group]
        return chosen


def _promising_pairs(columns: Sequence[_Column], rows: _Rows) -> list[_Candidate]:
    """The pairs that say most beyond the better one of their columns."""
    losses = [rows.loss(column.log_proba) for column in columns]
    trials = []
    for i, j in combinations(range(len(columns)), 2):
        a, b = columns[i].index, columns[j].index
        is_smooth = a.is_binned and b.is_binned  # a function of two numbers, which needs no effects
        names = {*a.values.columns, *b.values.columns}
        if len(names) == 2 and (a.values.minus or b.values.minus):
            continue  # a difference and one of its columns tell the other column, and no more
        if a.n_codes * b.n_codes < _MOST_CELLS:
            pair = rows.pair(columns[i], columns[j]).candidate
            exact = None
            if (a.is_binned or b.is_binned) and j < COMPARED_BY_VALUE:
                exact = _by_value(pair, rows)
            if exact is not None or not is_smooth:
                pair = exact or pair
                trials.append((min(losses[i], losses[j]) - rows.loss(pair.log_proba), pair))
    trials.sort(key=lambda one: -one[0])
    return [pair for less, pair in trials[:FINALISTS] if less > 0.0]


def _by_value(pair: _Candidate, rows: _Rows) -> _Candidate | None:
    """A pair by the values of its columns; None if bins, or both columns alone, say as much."""
    a, b = (rows.by_value(column) for column in pair.columns)
    if a.index.n_codes * b.index.n_codes >= _MOST_CELLS:
        return None
    exact = rows.pair(a, b).candidate
    apart, _ = rows.sum_of([a.log_proba, b.log_proba])
    gains = (rows.gain(exact.log_proba, other) for other in (pair.log_proba, apart))
    return exact if all(gain.exceeds(2.0) for gain in gains) else None


def _triples(
    pairs: Sequence[_Candidate], columns: Sequence[_Column], rows: _Rows
) -> Iterator[_Candidate]:
    """Pairs with each of some columns, in bins."""
    for one in pairs:
        pair = rows.pair(*one.columns)
        n_cells = float(np.prod([float(column.index.n_codes) for column in one.columns]))
        known = {column.index.values.column for column in one.columns if not column.index.values.minus}
        thirds = [
            column
            for column in columns
            if column.fine not in [own.fine for own in one.columns]
            and not (column.index.values.minus and known >= set(column.index.values.columns))
        ]
        for third in thirds[:THIRDS]:
            coarse = rows.in_bins(third)
            if n_cells * coarse.index.n_codes < _MOST_CELLS:
                yield rows.triple(pair, coarse).candidate


def combined(
    parts: Array, base: Array, codes: IntArray, weight: Array, n_steps: int = 4
) -> tuple[Array, Array]:
    """Log probabilities [C, s] by a weighted sum of effects, and the best weights [q].

    parts: [C, q, s], q effects on the log probability of each class. Newton's method finds the weights.
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
            log_total = largest + np.log(total)
            return np.vstack([-log_total, scores - log_total]), coefficients
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
