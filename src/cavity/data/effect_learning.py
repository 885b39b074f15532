"""Learning value effects from a table: counts of values, which columns have effects, groups, streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from cavity.data.columns import DATE, NUMERIC, CategoricalEncoder, Encoder
from cavity.data.effect_counts import (
    MOST_CELLS,
    MOST_GROUP_CELLS,
    CellCounts,
    ColumnCounts,
    Folds,
    GroupCounts,
    Summariser,
    most_kept,
)
from cavity.data.effect_groups import CountedColumn, best_groups
from cavity.data.effects import (
    Codes,
    CrossFit,
    EffectEncoder,
    Gain,
    gain_over_base,
    gain_over_bins,
    joint_codes,
)
from cavity.data.labelled import LabelledRows
from cavity.data.parts import import_arrow
from cavity.data.values import DATE_PARTS, WHOLE, ValueCounts, ValueIndex, Values, values_as_keys
from cavity.text import listed
from cavity.typing import AnyArray, Array, IntArray

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS, EFFECTS, PAIRS = "columns", "effects", "pairs"
"""Names of sets of features: the columns alone, with effects of values, with those of groups too."""
SAMPLE_CELLS = 20_000_000
"""Most cells of a table that are kept to compare groups of columns; beyond, a sample of the rows is."""


@dataclass(frozen=True, eq=False)
class LearnedEffect:
    """The effects of a column or group, with what is needed to decide about it."""

    encoder: EffectEncoder
    tables: Array
    """[F + 2, K + 1, k]: what the rows of each fold see, held-out rows, and new rows."""
    gain: Gain
    """Over what a model knows without it: a smooth function of the column, or effects of its parts."""

    def encode(self, batch: pa.RecordBatch, folds: IntArray, out: Array, known: Codes) -> None:
        """Write the effects that training rows of these folds [t] see into out [t, k]."""
        n_parts, n_values, width = self.tables.shape
        places = folds * n_values + self.encoder.rows_of(batch, known)
        out[:] = self.tables.reshape(n_parts * n_values, width).take(places, axis=0)


@dataclass(frozen=True)
class LearnedEffects:
    """Value effects of a table, ready for training and for prediction."""

    singles: tuple[LearnedEffect, ...]
    groups: tuple[LearnedEffect, ...]
    folds: Folds
    optional: bool
    """Whether training may leave them out."""

    @property
    def features(self) -> list[str]:
        """Names of all features."""
        return [name for effect in self.singles + self.groups for name in effect.encoder.features]

    def feature_sets(self, n_columns: int) -> dict[str, int]:
        """Sets of features to choose from, if the columns alone become n_columns features."""
        if not self.optional:
            return {}
        sizes, size = {COLUMNS: n_columns}, n_columns
        for name, some in ((EFFECTS, self.singles), (PAIRS, self.groups)):
            size += sum(len(effect.encoder.features) for effect in some)
            if some:
                sizes[name] = size
        return sizes

    def joined_to(self, names: AnyArray) -> tuple[AnyArray, dict[str, int], IntArray | None]:
        """What a source says of columns with features of these names [d], followed by the effects.

        The names of all features, sets of them to choose from, and the rows to hold out, if any are:
        see `RowSource`.
        """
        every = np.append(names, np.array(self.features, dtype=object))
        held_out = self.folds.held_out
        return every, self.feature_sets(len(names)), held_out if len(held_out) else None

    def chosen(self, feature_set: str | None) -> list[EffectEncoder]:
        """The effects of a set of features; all if it is None."""
        kept = {COLUMNS: (), EFFECTS: self.singles}.get(feature_set or "", self.singles + self.groups)
        return [effect.encoder for effect in kept]

    def encode(self, rows: LabelledRows, out: Array) -> None:
        """Write the effects that training rows see into out [t, k]."""
        folds, first = self.folds.of(rows.numbers), 0
        known: Codes = {}
        for effect in self.singles + self.groups:
            width = len(effect.encoder.features)
            effect.encode(rows.batch, folds, out[:, first : first + width], known)
            first += width


@dataclass(frozen=True, eq=False)
class _JudgedColumn:
    """A column with the counts of its values, and how much they tell about the label."""

    index: ValueIndex
    counts: Array
    """[K + 1, F + 1, C]"""
    fit: CrossFit
    over_base: Gain
    over_bins: Gain


def learn_effects(
    summarise: Summariser,
    encoders: Sequence[Encoder],
    n_rows: int,
    class_factors: Array,
    class_names: Sequence[str],
    held_out: IntArray,
    mode: str | bool = "auto",
    *,
    for_stream: bool = False,
) -> LearnedEffects | None:
    """Learn the effects of columns and groups of columns in one or two passes over a table.

    summarise: makes such a pass; encoders: those of the columns; n_rows: number of labelled rows;
    class_factors: [C], by which weights are multiplied; held_out: numbers of rows whose labels must not
    be used in training; mode: "auto" for useful effects, which training may leave out; True for those
    of all columns whose values repeat; and "pairs" for these and groups; for_stream: whether effects
    remember their counts, so that `refined` can add to them; training cannot leave these out, and has
    no rows that could choose groups in mode "auto". None is returned if there are no effects.
    """
    folds, names = Folds(held_out), tuple(class_names) if len(class_names) > 2 else ()
    values = _values_of(encoders)
    wants_groups = mode is not True and not (for_stream and mode == "auto")
    share = min(1.0, SAMPLE_CELLS / max(1, n_rows * len(encoders))) if wants_groups else 0.0
    counted = summarise(ColumnCounts(values, folds, class_factors, share))
    columns, sample = _repeating(counted), counted.sample()
    # The features of strings that have one for every level can add up to any effect already.
    spanned = {e.column for e in encoders if isinstance(e, CategoricalEncoder) and not e.has_other}
    chosen = [
        column
        for column in columns
        if mode != "auto" or (_is_useful(column) and column.index.values.column not in spanned)
    ]
    found = []
    if len(columns) > 1 and len(sample.codes):
        ranked = sorted(columns, key=lambda column: -column.over_base.mean)
        by_value = {id(column) for column in chosen}
        parts = [
            CountedColumn(c.index, c.counts[:-1].sum(axis=(1, 2)), id(c) in by_value) for c in ranked
        ]
        found = best_groups(parts, sample, len(class_factors))
    del sample, counted
    singles = tuple(
        _single(column.index, column.counts, column.fit, names, column.over_bins, for_stream)
        for column in chosen
    )
    groups: tuple[LearnedEffect, ...] = ()
    if found:
        cells = summarise(GroupCounts([group.indices for group in found], folds, class_factors))
        groups = tuple(
            _group(group.indices, some, class_factors, names, group.gain, for_stream)
            for group, some in zip(found, cells.counts, strict=True)
        )
    if not singles and not groups:
        return None
    return LearnedEffects(singles, groups, folds, mode == "auto" and not for_stream)


def _is_useful(column: _JudgedColumn) -> bool:
    return column.over_base.exceeds(2.0) and column.over_bins.exceeds(1.0)


def _single(
    index: ValueIndex, counts: Array, fit: CrossFit, names: tuple[str, ...], over: Gain, keeps: bool
) -> LearnedEffect:
    """The effects of a column with counts [K + 1, F + 1, C]; keeps: whether these are remembered."""
    tables = fit.tables()
    encoder = EffectEncoder((index,), None, tables[-1], names, counts if keeps else None)
    return LearnedEffect(encoder, tables, over)


def _group(
    group: tuple[ValueIndex, ...],
    counted: CellCounts,
    factors: Array,
    names: tuple[str, ...],
    over: Gain,
    keeps: bool,
) -> LearnedEffect:
    """The effects of a group of columns; keeps: whether the counts are remembered."""
    cells, counts = counted.sorted()
    counts *= factors
    tables = CrossFit.of(counts).tables().astype(np.float32)  # there may be millions of cells
    table = tables[-1].astype(np.float64)
    encoder = EffectEncoder(group, cells, table, names, counts if keeps else None)
    return LearnedEffect(encoder, tables, over)


def _values_of(encoders: Sequence[Encoder]) -> list[Values]:
    """What may have effects: each column, and the parts of dates."""
    values = []
    for encoder in encoders:
        parts = DATE_PARTS if encoder.kind == DATE else ()
        values += [Values(encoder.column, encoder.kind, part) for part in (WHOLE, *parts)]
    return values


def _repeating(counted: ColumnCounts) -> list[_JudgedColumn]:
    """The columns that have more than two values, and whose values repeat."""
    found = (
        _column(values, counts, counted.factors)
        for values, counts in zip(counted.values, counted.counts, strict=True)
    )
    return [column for column in found if column is not None]


def _column(values: Values, counted: ValueCounts, class_factors: Array) -> _JudgedColumn | None:
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
    return _JudgedColumn(index, counts, fit, over_base, over_bins)


def refined(
    encoders: Sequence[EffectEncoder], rows: Sequence[LabelledRows], class_factors: Array, kept: float
) -> LearnedEffects:
    """The effects of a stream after some more rows, which see each other but not themselves.

    encoders: with the counts of the rows before; kept: the share of these counts that is not forgotten.
    """
    folds, nothing = Folds(np.zeros(0, dtype=np.int64)), Gain(0.0, 0.0)
    told = [
        (folds.of(r.numbers), r.codes, class_factors[r.codes] * (1.0 if r.weight is None else r.weight))
        for r in rows
    ]
    known: list[Codes] = [{} for _ in rows]
    singles, groups = [], []
    for encoder in encoders:
        if encoder.cells is None:
            (index,), values = encoder.indices, _value_counts(encoder, kept)
            for some, facts in zip(rows, told, strict=True):
                values.add(index.values.of(some.batch), *facts)
            keys, counts = values.sorted()
            index = replace(index, keys=values_as_keys(keys))
            fit = CrossFit.of(counts)
            singles.append(_single(index, counts, fit, encoder.classes, nothing, keeps=True))
        else:
            cells = _cell_counts(encoder, kept)
            for some, codes, facts in zip(rows, known, told, strict=True):
                cells.add(joint_codes(encoder.indices, some.batch, codes), *facts)
            one = np.ones(len(class_factors))  # which the weights have been multiplied by
            groups.append(_group(encoder.indices, cells, one, encoder.classes, nothing, keeps=True))
    return LearnedEffects(tuple(singles), tuple(groups), folds, optional=False)


def _value_counts(encoder: EffectEncoder, kept: float) -> ValueCounts:
    """The counts of a column's effects, times a number, as counts that can be added to."""
    pa, _ = import_arrow()
    assert encoder.counts is not None
    _, n_folds, n_classes = encoder.counts.shape
    words = encoder.indices[0].keys
    kind = pa.string() if words.dtype == object else pa.float64()
    counted = ValueCounts(n_folds, n_classes, most_kept(MOST_CELLS, n_folds * n_classes))
    counted.keys = pa.concat_arrays([pa.array(words, kind), pa.nulls(1, kind)])
    counted.counts = encoder.counts * kept
    counted.n_rows = round(float(counted.counts.sum()))
    return counted


def _cell_counts(encoder: EffectEncoder, kept: float) -> CellCounts:
    """The counts of a group's effects, times a number, as counts that can be added to."""
    assert encoder.counts is not None
    assert encoder.cells is not None
    _, n_folds, n_classes = encoder.counts.shape
    counted = CellCounts(n_folds, n_classes, most_kept(MOST_GROUP_CELLS, n_folds * n_classes))
    cell, fold, code = np.nonzero(encoder.counts)
    counted.add(encoder.cells[cell], fold, code, kept * encoder.counts[cell, fold, code])
    return counted


def effect_notes(effects: Sequence[EffectEncoder]) -> list[str]:
    """What the user should know about effects that are used, in words."""
    words = "values", "pairs of values", "triples of values"
    names = [[e.name for e in effects if len(e.indices) == n] for n in (1, 2, 3)]
    notes = [
        f"effects of the {what} of {listed(some)} on the target are further features"
        for what, some in zip(words, names, strict=True)
        if some
    ]
    indices = {id(index): index for effect in effects for index in effect.indices}.values()
    binned = sorted({str(index.values) for index in indices if index.is_binned})
    if binned:
        notes.append(f"in some of these pairs and triples, {listed(binned)} count in bins")
    return notes
