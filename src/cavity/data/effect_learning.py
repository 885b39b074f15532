"""Learning value effects from a table: counts of values, which columns have effects, the best pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cavity.data.columns import CATEGORICAL, DATE, NUMERIC, CategoricalEncoder, Encoder
from cavity.data.effect_counts import (
    MOST_CELLS,
    ColumnCounts,
    Folds,
    PairCounts,
    Pass,
    Sample,
    joint_cells,
)
from cavity.data.effects import (
    N_FOLDS,
    Codes,
    CrossFit,
    EffectEncoder,
    Gain,
    base_rates,
    concentration,
    gain,
    gain_over_base,
    gain_over_bins,
)
from cavity.data.labelled import LabelledRows
from cavity.data.parts import import_arrow
from cavity.data.values import DATE_PARTS, WHOLE, ValueCounts, ValueIndex, Values, values_as_keys
from cavity.text import listed
from cavity.typing import Array, IntArray

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS, EFFECTS, PAIRS = "columns", "effects", "pairs"
"""Names of sets of features: the columns alone, with effects of values, with those of pairs too."""
SAMPLE_ROWS = 30_000
"""Rows on which pairs of columns are compared."""
PAIR_COLUMNS = 20
"""Columns whose pairs are compared: those whose values say most about the label."""
PAIR_BINS = 16
"""Bins of a smooth column in a pair."""
FINALISTS = 24
"""Pairs that are compared with the sum of the effects of their columns."""
MOST_PAIRS = 8


@dataclass(frozen=True, eq=False)
class Effect:
    """The effects of a column or pair, with what is needed to decide about it."""

    encoder: EffectEncoder
    tables: Array
    """[F + 2, K + 1, k]: what the rows of each fold see, held-out rows, and new rows."""
    counts: Array
    """[K, F + 1, C], times the factors of the classes; of a column with one more, of missing cells."""
    gain: Gain
    """Over what a model knows without it: a smooth function of the column, or effects of its columns."""

    def encode(self, batch: pa.RecordBatch, folds: IntArray, out: Array, known: Codes) -> None:
        """Write the effects that training rows of these folds [t] see into out [t, k]."""
        out[:] = self.tables[folds, self.encoder.rows_of(batch, known)]


@dataclass(frozen=True)
class LearnedEffects:
    """Value effects of a table, ready for training and for prediction."""

    singles: tuple[Effect, ...]
    pairs: tuple[Effect, ...]
    folds: Folds
    optional: bool
    """Whether training may leave them out."""

    @property
    def features(self) -> list[str]:
        """Names of all features."""
        return [name for effect in self.singles + self.pairs for name in effect.encoder.features]

    def feature_sets(self, n_columns: int) -> dict[str, int]:
        """Sets of features to choose from, if the columns alone become n_columns features."""
        if not self.optional:
            return {}
        sizes, size = {COLUMNS: n_columns}, n_columns
        for name, some in ((EFFECTS, self.singles), (PAIRS, self.pairs)):
            size += sum(len(effect.encoder.features) for effect in some)
            if some:
                sizes[name] = size
        return sizes

    def chosen(self, feature_set: str | None) -> list[EffectEncoder]:
        """The effects of a set of features; all if it is None."""
        kept = {COLUMNS: (), EFFECTS: self.singles}.get(feature_set or "", self.singles + self.pairs)
        return [effect.encoder for effect in kept]

    def for_stream(self) -> LearnedEffects:
        """The same effects, which remember their counts, so that `refined` can add to them."""

        def kept(effects: tuple[Effect, ...]) -> tuple[Effect, ...]:
            return tuple(
                replace(one, encoder=replace(one.encoder, counts=one.counts)) for one in effects
            )

        return replace(self, singles=kept(self.singles), pairs=kept(self.pairs), optional=False)

    def encode(self, rows: LabelledRows, out: Array) -> None:
        """Write the effects that training rows see into out [t, k]."""
        folds, first = self.folds.of(rows.numbers), 0
        known: Codes = {}
        for effect in self.singles + self.pairs:
            width = len(effect.encoder.features)
            effect.encode(rows.batch, folds, out[:, first : first + width], known)
            first += width


@dataclass(frozen=True, eq=False)
class _Column:
    """A column that was counted."""

    index: ValueIndex
    counts: Array
    """[K + 1, F + 1, C]"""
    fit: CrossFit
    over_base: Gain
    over_bins: Gain


def learn_effects(
    over_rows: Pass,
    encoders: Sequence[Encoder],
    n_rows: int,
    class_factors: Array,
    class_names: Sequence[str],
    held_out: IntArray,
    mode: str | bool = "auto",
) -> LearnedEffects | None:
    """Learn the effects of columns and pairs in one or two passes over a table.

    over_rows: makes such a pass; encoders: those of the columns; n_rows: number of labelled rows;
    class_factors: [C], by which weights are multiplied; held_out: numbers of rows whose labels must not
    be used in training; mode: "auto" for useful effects, which training may leave out; True for those
    of all columns whose values repeat; and "pairs" for these and pairs. None is returned if there are
    none.
    """
    folds, names = Folds(held_out), tuple(class_names) if len(class_names) > 2 else ()
    share = 0.0 if mode is True else min(1.0, SAMPLE_ROWS / max(n_rows, 1))
    empty = ColumnCounts(_values_of(encoders), folds, class_factors, share)
    counted = over_rows(empty)
    columns, sample = _repeating(counted), counted.sample()
    # The features of strings that have one for every level can add up to any effect already.
    spanned = {e.column for e in encoders if isinstance(e, CategoricalEncoder) and not e.has_other}
    chosen = [
        column
        for column in columns
        if mode != "auto" or (_is_useful(column) and column.index.column not in spanned)
    ]
    singles = tuple(_single(column, names) for column in chosen)
    found = best_pairs(columns, chosen, sample) if len(columns) > 1 and len(sample.codes) else []
    pairs: tuple[Effect, ...] = ()
    if found:
        cells = over_rows(PairCounts([pair for pair, _ in found], folds, class_factors))
        pairs = tuple(_pair_effects(found, cells.counts, class_factors, names))
    return LearnedEffects(singles, pairs, folds, mode == "auto") if singles or pairs else None


def _is_useful(column: _Column) -> bool:
    return column.over_base.exceeds(2.0) and column.over_bins.exceeds(1.0)


def _single(column: _Column, names: tuple[str, ...]) -> Effect:
    tables = column.fit.tables()
    encoder = EffectEncoder((column.index,), None, tables[-1], names)
    return Effect(encoder, tables, column.counts, column.over_bins)


def _values_of(encoders: Sequence[Encoder]) -> list[Values]:
    """What may have effects: each column, and the parts of dates."""
    values = []
    for encoder in encoders:
        parts = DATE_PARTS if encoder.kind == DATE else ()
        values += [Values(encoder.column, encoder.kind, part) for part in (WHOLE, *parts)]
    return values


def _repeating(counted: ColumnCounts) -> list[_Column]:
    """The columns that have more than two values, and whose values repeat."""
    found = (
        _column(values, counts, counted.factors)
        for values, counts in zip(counted.values, counted.counts, strict=True)
    )
    return [column for column in found if column is not None]


def _column(values: Values, counted: ValueCounts, class_factors: Array) -> _Column | None:
    """A column, if it has more than two values and they repeat."""
    if counted.keys is None or counted.is_distinct:
        return None
    keys, counts = counted.sorted()
    if len(keys) < 3 or 2 * len(keys) > counted.n_rows:
        return None
    counts = counts * class_factors
    index = ValueIndex(values, values_as_keys(keys))
    fit = CrossFit.of(counts)
    over_base, over_bins = gain_over_base(counts, fit), Gain(np.inf, 0.0)
    if values.kind in (NUMERIC, DATE) and over_base.exceeds(2.0):
        over_bins = gain_over_bins(counts, fit)
    return _Column(index, counts, fit, over_base, over_bins)


def binned(column: _Column, n_bins: int) -> ValueIndex:
    """An index of a column of numbers by bins of about equal weight."""
    totals, keys = column.counts[:-1].sum(axis=(1, 2)), column.index.keys
    middle = (np.cumsum(totals) - 0.5 * totals) / totals.sum()
    starts = np.flatnonzero(np.diff(np.floor(n_bins * middle))) + 1
    return ValueIndex(column.index.values, keys[starts], is_binned=True)


def best_pairs(
    columns: Sequence[_Column], exact: Sequence[_Column], sample: Sample
) -> list[tuple[tuple[ValueIndex, ValueIndex], Gain]]:
    """The pairs whose effects say most beyond the effects of their columns, best first."""
    ranked = sorted(columns, key=lambda column: -column.over_base.mean)[:PAIR_COLUMNS]
    by_value = {id(column) for column in exact}
    indices = [
        column.index
        if id(column) in by_value
        or column.index.values.kind == CATEGORICAL
        or column.index.n_values <= 2 * PAIR_BINS
        else binned(column, PAIR_BINS)
        for column in ranked
    ]
    codes = [
        np.concatenate([index.codes(batch.column(index.column)) for batch in sample.batches])
        for index in indices
    ]
    n_classes = ranked[0].counts.shape[2]
    base = base_rates(np.bincount(sample.codes, sample.weight, n_classes).astype(np.float64))
    singles = [_QuickFit.of(code, sample, base) for code in codes]
    losses = [single.loss(sample) for single in singles]
    trials = []
    for i, j in combinations(range(len(indices)), 2):
        if indices[i].is_binned and indices[j].is_binned:
            continue  # a smooth function of two numbers, which needs no effects
        pair = _QuickFit.of(codes[i] * (indices[j].n_values + 2) + codes[j], sample, base)
        trials.append((min(losses[i], losses[j]) - pair.loss(sample), i, j))
    trials.sort(reverse=True)
    found: list[tuple[Gain, tuple[ValueIndex, ValueIndex], Array]] = []
    tables: dict[int, Array] = {}
    for screened, i, j in trials[:FINALISTS]:
        if screened <= 0.0:
            break
        for k in (i, j):
            if k not in tables:
                tables[k] = singles[k].log_proba()
        pair = _QuickFit.of(codes[i] * (indices[j].n_values + 2) + codes[j], sample, base)
        parts = np.stack([tables[i], tables[j], pair.log_proba()], axis=1) - np.log(base)[:, None, None]
        with_pair = combined(parts, base, sample.codes, sample.weight)
        without = combined(parts[:, :2], base, sample.codes, sample.weight)
        over = gain(sample.weight, with_pair, without)
        if over.exceeds(3.0):  # the best of many pairs is good by chance, too
            found.append((over, (indices[i], indices[j]), with_pair))
    found.sort(key=lambda one: -one[0].mean)
    kept: list[tuple[Gain, tuple[ValueIndex, ValueIndex], Array]] = []
    for one in found:  # two columns may say the same in other words, and so may their pairs
        if len(kept) < MOST_PAIRS and not any(_same(one[2], other[2]) for other in kept):
            kept.append(one)
    return [(pair, over) for over, pair, _ in kept]


def _same(a: Array, b: Array) -> bool:
    """Whether two lists of log probabilities are practically the same."""
    return bool(np.abs(a - b).mean() < 0.05 * np.abs(a - a.mean()).mean())


@dataclass(frozen=True)
class _QuickFit:
    """Cross-fitted probabilities of the classes at the values that sampled rows have."""

    cells: IntArray
    """[2, s]: the number of the value of each row, and of the value and the fold together."""
    counts: Array
    """[K, C]: total weight of the rows with each value and class."""
    of_folds: Array
    """[K·F, C]: the same, for each fold."""
    prior: Array
    """[C]: what is added to the counts, the base rates times the concentration."""

    @classmethod
    def of(cls, codes: IntArray, sample: Sample, base: Array) -> _QuickFit:
        """From the codes [s] of the values."""
        encoded = import_arrow()[0].array(codes).dictionary_encode()  # quicker than to sort them
        value = encoded.indices.to_numpy().astype(np.int64)
        cells = np.stack([value, value * N_FOLDS + sample.folds])

        def counted(cell: IntArray, size: int) -> Array:
            place = cell * len(base) + sample.codes
            found = np.bincount(place, sample.weight, size * len(base)).astype(np.float64)
            return found.reshape(size, len(base))

        n_values = len(encoded.dictionary)
        counts, of_folds = counted(cells[0], n_values), counted(cells[1], n_values * N_FOLDS)
        return cls(cells, counts, of_folds, concentration(counts, base) * base)

    def loss(self, sample: Sample) -> float:
        """The total log loss of the rows, each of which sees the other folds."""
        (value, cell), own, ones = self.cells, sample.codes, np.ones(len(self.prior))
        rest = self.counts[value, own] - self.of_folds[cell, own]
        total = (self.counts @ ones)[value] - (self.of_folds @ ones)[cell]
        p = (np.maximum(rest, 0.0) + self.prior[own]) / (np.maximum(total, 0.0) + self.prior.sum())
        return -float(sample.weight @ np.log(p))

    def log_proba(self) -> Array:
        """Log probabilities [C, s] of the classes."""
        value, cell = self.cells
        rest = [
            np.maximum(of_value[value] - of_fold[cell], 0.0) + prior
            for of_value, of_fold, prior in zip(self.counts.T, self.of_folds.T, self.prior, strict=True)
        ]
        return np.asarray(np.log(np.array(rest) / np.sum(rest, axis=0)))


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


def _pair_effects(
    found: Sequence[tuple[tuple[ValueIndex, ValueIndex], Gain]],
    counts: Sequence[ValueCounts],
    class_factors: Array,
    names: tuple[str, ...],
) -> Iterator[Effect]:
    """The effects of the pairs whose values repeat."""
    for (pair, over), counted in zip(found, counts, strict=True):
        if not counted.is_distinct:
            keys, cells = counted.sorted()
            yield _pair(pair, keys, cells[:-1] * class_factors, names, over)


def _pair(
    pair: tuple[ValueIndex, ...], keys: pa.Array, counts: Array, names: tuple[str, ...], over: Gain
) -> Effect:
    """The effects of a pair with the cells keys [K], which have these counts [K, F + 1, C]."""
    tables = CrossFit.of(counts).tables()
    cells: NDArray[np.int64] = keys.to_numpy()
    return Effect(EffectEncoder(pair, cells, tables[-1], names), tables, counts, over)


def refined(
    encoders: Sequence[EffectEncoder], rows: Sequence[LabelledRows], class_factors: Array, kept: float
) -> LearnedEffects:
    """The effects of a stream after some more rows, which see each other but not themselves.

    encoders: with the counts of the rows before; kept: the share of these counts that is not forgotten.
    """
    folds, effects = Folds(np.zeros(0, dtype=np.int64)), []
    known: list[Codes] = [{} for _ in rows]
    for encoder in encoders:
        index, counted = encoder.indices[0], _counts_of(encoder, kept)
        for some, codes in zip(rows, known, strict=True):
            if encoder.cells is None:
                cells = index.values.cells(some.batch.column(index.column))
            else:
                cells = joint_cells(encoder.indices, some.batch, codes)
            weight = class_factors[some.codes] * (1.0 if some.weight is None else some.weight)
            counted.add(cells, folds.of(some.numbers), some.codes, weight)
        keys, counts = counted.sorted()
        nothing = Gain(0.0, 0.0)
        if encoder.cells is None:
            tables = CrossFit.of(counts).tables()
            after = EffectEncoder(
                (replace(index, keys=values_as_keys(keys)),), None, tables[-1], encoder.classes
            )
            effects.append(Effect(after, tables, counts, nothing))
        else:
            pair = encoder.indices
            effects.append(_pair(pair, keys, counts[:-1], encoder.classes, nothing))
    singles = tuple(effect for effect in effects if effect.encoder.cells is None)
    pairs = tuple(effect for effect in effects if effect.encoder.cells is not None)
    return LearnedEffects(singles, pairs, folds, optional=False).for_stream()


def _counts_of(encoder: EffectEncoder, kept: float) -> ValueCounts:
    """The counts of an encoder, times a number, as counts that can be added to."""
    pa, _ = import_arrow()
    assert encoder.counts is not None
    _, n_folds, n_classes = encoder.counts.shape
    if encoder.cells is not None:
        keys = pa.array(encoder.cells)
    else:
        words = encoder.indices[0].keys
        kind = pa.string() if words.dtype == object else pa.float64()
        keys = pa.concat_arrays([pa.array(words, kind), pa.nulls(1, kind)])
    counted = ValueCounts(n_folds, n_classes, max(1_000, MOST_CELLS // (n_folds * n_classes)))
    counted.keys, counted.counts = keys, encoder.counts * kept
    counted.n_rows = round(float(counted.counts.sum()))
    return counted


def effect_notes(effects: Sequence[EffectEncoder]) -> list[str]:
    """What the user should know about effects that are used, in words."""
    singles = [effect.name for effect in effects if effect.cells is None]
    pairs = [effect.name for effect in effects if effect.cells is not None]
    return [
        f"effects of the {words} of {listed(names)} on the target are further features"
        for words, names in (("values", singles), ("pairs of values", pairs))
        if names
    ]
