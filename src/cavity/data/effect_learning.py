"""Learning value effects from a table: counts of values, which columns have effects, the best pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.data.columns import CATEGORICAL, DATE, NUMERIC, CategoricalEncoder, Encoder
from cavity.data.effects import (
    N_FOLDS,
    Codes,
    CrossFit,
    EffectEncoder,
    Gain,
    base_rates,
    concentration,
    folds_of,
    gain,
    gain_over_base,
    gain_over_bins,
    joint_codes,
)
from cavity.data.labelled import TrainingRows
from cavity.data.parts import import_arrow
from cavity.data.sampling import row_hash
from cavity.data.values import ValueCounts, ValueIndex, cells_of, values_as_keys
from cavity.text import listed
from cavity.typing import AnyDtype, Array, IntArray

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS, EFFECTS, PAIRS = "columns", "effects", "pairs"
"""Names of sets of features: the columns alone, with effects of values, with those of pairs too."""
MOST_CELLS = 20_000_000
"""Most numbers that the counts of all columns take together; the rarest values of columns with very many
are left out beyond."""
SAMPLE_ROWS = 30_000
"""Rows on which pairs of columns are compared."""
PAIR_COLUMNS = 20
"""Columns whose pairs are compared: those whose values say most about the label."""
PAIR_BINS = 16
"""Bins of a smooth column in a pair."""
FINALISTS = 24
"""Pairs that are compared with the sum of the effects of their columns."""
MOST_PAIRS = 8
_SAMPLE_SEED = 0x5A3B1E0F2D47


@dataclass(frozen=True)
class Folds:
    """Which fold each row is in: one of five by a hash of its number, or the last if it is held out."""

    held_out: IntArray
    """Sorted numbers of the held-out rows."""

    def of(self, numbers: IntArray) -> IntArray:
        """Folds [t] of rows with these numbers [t], which increase."""
        folds = folds_of(numbers)
        if len(self.held_out) and len(numbers):
            low, high = np.searchsorted(self.held_out, [numbers[0], numbers[-1] + 1])
            folds[self.held_out[low:high] - numbers[0]] = N_FOLDS
        return folds


@dataclass(frozen=True, eq=False)
class Effect:
    """The effects of a column or pair, with what is needed to decide about it."""

    encoder: EffectEncoder
    tables: Array
    """[F + 2, K + 1, k]: what the rows of each fold see, held-out rows, and new rows."""
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

    def encode(self, rows: TrainingRows, dtype: AnyDtype) -> Array:
        """The effects [t, k] that training rows see."""
        out = np.empty((len(rows.codes), len(self.features)), dtype)
        folds, first = self.folds.of(rows.numbers), 0
        known: Codes = {}
        for effect in self.singles + self.pairs:
            width = len(effect.encoder.features)
            effect.encode(rows.batch, folds, out[:, first : first + width], known)
            first += width
        return out


@dataclass(frozen=True, eq=False)
class _Column:
    """A column that was counted."""

    index: ValueIndex
    counts: Array
    """[K + 1, F + 1, C]"""
    fit: CrossFit
    over_base: Gain
    over_bins: Gain


ReadRows = Callable[[Sequence[str]], Iterator[TrainingRows]]
"""Reads all rows of a table, with some of its columns."""


def learn_effects(
    read: ReadRows,
    encoders: Sequence[Encoder],
    n_rows: int,
    class_factors: Array,
    class_names: Sequence[str],
    held_out: IntArray,
    mode: str | bool = "auto",
) -> LearnedEffects | None:
    """Learn the effects of columns and pairs in two or three passes over a table.

    encoders: those of the columns; n_rows: number of labelled rows; class_factors: [C], by which weights
    are multiplied; held_out: numbers of rows whose labels must not be used in training; mode: "auto" for
    useful effects, which training may leave out; True for those of all columns whose values repeat; and
    "pairs" for these and pairs. None is returned if there are none.
    """
    folds, names = Folds(held_out), tuple(class_names) if len(class_names) > 2 else ()
    columns, sample = _counted(read, encoders, n_rows, class_factors, folds)
    # The features of strings that have one for every level can add up to any effect already.
    spanned = {e.column for e in encoders if isinstance(e, CategoricalEncoder) and not e.has_other}
    chosen = [
        column
        for column in columns
        if mode != "auto" or (_is_useful(column) and column.index.column not in spanned)
    ]
    singles = tuple(_single(column, names) for column in chosen)
    found: list[tuple[tuple[ValueIndex, ValueIndex], Gain]] = []
    if mode is not True and len(columns) > 1 and sample is not None:
        found = best_pairs(columns, chosen, sample)
    pairs = tuple(_pairs(read, found, class_factors, folds, names))
    return LearnedEffects(singles, pairs, folds, mode == "auto") if singles or pairs else None


def _is_useful(column: _Column) -> bool:
    return column.over_base.exceeds(2.0) and column.over_bins.exceeds(1.0)


def _single(column: _Column, names: tuple[str, ...]) -> Effect:
    tables = column.fit.tables()
    encoder = EffectEncoder((column.index,), None, tables[-1], names)
    return Effect(encoder, tables, column.over_bins)


class _Sample(NamedTuple):
    """Some training rows."""

    batches: list[pa.RecordBatch]
    folds: IntArray
    codes: IntArray
    weight: Array


def _counted(
    read: ReadRows,
    encoders: Sequence[Encoder],
    n_rows: int,
    class_factors: Array,
    folds: Folds,
) -> tuple[list[_Column], _Sample | None]:
    """Counts of the columns whose values repeat, and a sample of rows."""
    pa, _ = import_arrow()
    n_classes = len(class_factors)
    most = max(1_000, MOST_CELLS // ((N_FOLDS + 1) * n_classes * len(encoders)))
    counts = {e.column: ValueCounts(N_FOLDS + 1, n_classes, most) for e in encoders}
    kinds = {e.column: e.kind for e in encoders}
    bound = min(1.0, SAMPLE_ROWS / max(n_rows, 1)) * 2.0**64
    parts: list[tuple[Any, IntArray, IntArray, Array]] = []
    for rows in read(list(counts)):
        fold = folds.of(rows.numbers)
        for name, counted in counts.items():
            cells = cells_of(rows.batch.column(name), kinds[name], name)
            counted.add(cells, fold, rows.codes, rows.weight)
        chosen = row_hash(rows.numbers, _SAMPLE_SEED) < bound
        chosen &= fold < N_FOLDS
        weight = class_factors[rows.codes] * (1.0 if rows.weight is None else rows.weight)
        parts.append(
            (rows.batch.filter(pa.array(chosen)), fold[chosen], rows.codes[chosen], weight[chosen])
        )
    columns = [
        column
        for name, counted in counts.items()
        if (column := _column(name, kinds[name], counted, class_factors)) is not None
    ]
    if not parts:
        return columns, None
    batches, fold_parts, codes, weights = zip(*parts, strict=True)
    sample = _Sample(
        list(batches), np.concatenate(fold_parts), np.concatenate(codes), np.concatenate(weights)
    )
    return columns, sample


def _column(name: str, kind: str, counted: ValueCounts, class_factors: Array) -> _Column | None:
    """A column, if it has more than two values and they repeat."""
    if counted.keys is None or counted.is_distinct:
        return None
    keys, counts = counted.sorted()
    if len(keys) < 3 or 2 * len(keys) > counted.n_rows:
        return None
    counts = counts * class_factors
    index = ValueIndex(name, kind, values_as_keys(keys))
    fit = CrossFit.of(counts)
    over_base, over_bins = gain_over_base(counts, fit), Gain(np.inf, 0.0)
    if kind in (NUMERIC, DATE) and over_base.exceeds(2.0):
        over_bins = gain_over_bins(counts, fit)
    return _Column(index, counts, fit, over_base, over_bins)


def binned(column: _Column, n_bins: int) -> ValueIndex:
    """An index of a column of numbers by bins of about equal weight."""
    totals, keys = column.counts[:-1].sum(axis=(1, 2)), column.index.keys
    middle = (np.cumsum(totals) - 0.5 * totals) / totals.sum()
    starts = np.flatnonzero(np.diff(np.floor(n_bins * middle))) + 1
    return ValueIndex(column.index.column, column.index.kind, keys[starts], is_binned=True)


def best_pairs(
    columns: Sequence[_Column], exact: Sequence[_Column], sample: _Sample
) -> list[tuple[tuple[ValueIndex, ValueIndex], Gain]]:
    """The pairs whose effects say most beyond the effects of their columns, best first."""
    ranked = sorted(columns, key=lambda column: -column.over_base.mean)[:PAIR_COLUMNS]
    by_value = {id(column) for column in exact}
    indices = [
        column.index
        if id(column) in by_value
        or column.index.kind == CATEGORICAL
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
    tables = [_quick_log_proba(code, sample, base) for code in codes]
    own = sample.codes[:, None]
    losses = [-float(sample.weight @ np.take_along_axis(t, own, axis=1)[:, 0]) for t in tables]
    trials = []
    for i, j in combinations(range(len(indices)), 2):
        if indices[i].is_binned and indices[j].is_binned:
            continue  # a smooth function of two numbers, which needs no effects
        joint = codes[i] * (indices[j].n_values + 2) + codes[j]
        log_proba = _quick_log_proba(joint, sample, base)
        loss = -float(sample.weight @ np.take_along_axis(log_proba, own, axis=1)[:, 0])
        trials.append((min(losses[i], losses[j]) - loss, i, j))
    trials.sort(reverse=True)
    found: list[tuple[Gain, tuple[ValueIndex, ValueIndex], Array]] = []
    for screened, i, j in trials[:FINALISTS]:
        if screened <= 0.0:
            break
        joint = codes[i] * (indices[j].n_values + 2) + codes[j]
        pair = _quick_log_proba(joint, sample, base)
        parts = np.stack([tables[i], tables[j], pair], axis=2) - np.log(base)[:, None]
        with_pair = combined(parts, base, sample.codes, sample.weight)
        without = combined(parts[:, :, :2], base, sample.codes, sample.weight)
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


def _quick_log_proba(codes: IntArray, sample: _Sample, base: Array) -> Array:
    """Cross-fitted log probabilities [s, C] of sampled rows with these codes [s]."""
    n_classes = len(base)
    _, positions = np.unique(codes, return_inverse=True)
    size = int(positions.max(initial=0)) + 1
    cell = (positions * N_FOLDS + sample.folds) * n_classes
    counts = np.bincount(cell + sample.codes, sample.weight, size * N_FOLDS * n_classes)
    counts = counts.reshape(size, N_FOLDS, n_classes)
    whole = counts.sum(axis=1)
    a = concentration(whole, base)
    rest = np.maximum(whole[:, None] - counts, 0.0)
    log_proba = np.log((rest + a * base) / (rest.sum(axis=2, keepdims=True) + a))
    return np.asarray(log_proba.reshape(-1, n_classes)[cell // n_classes])


def combined(parts: Array, base: Array, codes: IntArray, weight: Array, n_steps: int = 4) -> Array:
    """Log probabilities [s] of labels if effects are added up, each times the best coefficient.

    parts: [s, C, q], q effects on the log probability of each class. Newton's method.
    """
    n_classes, q = parts.shape[1:]
    X = [parts[:, c] - parts[:, 0] for c in range(1, n_classes)]  # log-odds to the first class
    offsets = np.log(base[1:] / base[0])
    own = [codes == c for c in range(1, n_classes)]
    coefficients = np.full(q, 1.0 / q)
    for step in range(n_steps + 1):
        scores = [x @ coefficients + offset for x, offset in zip(X, offsets, strict=True)]
        total = np.zeros(len(codes))
        for score in scores:
            total = np.logaddexp(total, score)
        if step == n_steps:
            return np.asarray(sum(o * s for o, s in zip(own, scores, strict=True)) - total)
        slope, curve, mean = np.zeros(q), np.zeros((q, q)), np.zeros((len(codes), q))
        for x, score, is_own in zip(X, scores, own, strict=True):
            proba = np.exp(score - total)
            slope += x.T @ (weight * (is_own - proba))
            expected = proba[:, None] * x
            curve += x.T @ (weight[:, None] * expected)
            mean += expected
        curve -= mean.T @ (weight[:, None] * mean)
        ridge = 1e-6 * np.trace(curve) / q + 1e-9
        coefficients = coefficients + np.linalg.solve(curve + ridge * np.eye(q), slope)
    raise AssertionError


def _pairs(
    read: ReadRows,
    found: Sequence[tuple[tuple[ValueIndex, ValueIndex], Gain]],
    class_factors: Array,
    folds: Folds,
    names: tuple[str, ...],
) -> Iterator[Effect]:
    """Count the cells of pairs in one pass."""
    if not found:
        return
    pa, _ = import_arrow()
    n_classes = len(class_factors)
    most = max(1_000, MOST_CELLS // ((N_FOLDS + 1) * n_classes * len(found)))
    counts = [ValueCounts(N_FOLDS + 1, n_classes, most) for _ in found]
    indices = {id(index): index for pair, _ in found for index in pair}
    for rows in read(sorted({index.column for index in indices.values()})):
        fold = folds.of(rows.numbers)
        codes = {key: index.codes(rows.batch.column(index.column)) for key, index in indices.items()}
        for (pair, _), counted in zip(found, counts, strict=True):
            joint = joint_codes(pair, [codes[id(index)] for index in pair])
            cells = pa.array(joint, mask=joint < 0)
            counted.add(cells, fold, rows.codes, rows.weight)
    for (pair, over), counted in zip(found, counts, strict=True):
        if counted.is_distinct:
            continue
        cells, cell_counts = counted.sorted()
        tables = CrossFit.of(cell_counts[:-1] * class_factors).tables()
        keys: NDArray[np.int64] = cells.to_numpy()
        yield Effect(EffectEncoder(pair, keys, tables[-1], names), tables, over)


def effect_notes(effects: Sequence[EffectEncoder]) -> list[str]:
    """What the user should know about effects that are used, in words."""
    singles = [effect.columns[0] for effect in effects if len(effect.columns) == 1]
    pairs = [" × ".join(effect.columns) for effect in effects if len(effect.columns) > 1]
    return [
        f"effects of the {words} of {listed(names)} on the target are further features"
        for words, names in (("values", singles), ("pairs of values", pairs))
        if names
    ]
