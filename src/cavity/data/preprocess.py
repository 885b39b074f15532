"""Tables with columns of any kind become arrays of numbers: learned in one pass, applied in chunks."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from cavity.data.columns import (
    BOOLEAN,
    CATEGORICAL,
    DATE,
    NUMERIC,
    PARTS,
    CategoricalEncoder,
    DateEncoder,
    Encoder,
    NumericEncoder,
    TextTypes,
    coerced,
    date_features,
    encoders_as_text,
    encoders_from_text,
    kind_of_type,
    parts_of,
)
from cavity.data.effects import Codes, EffectEncoder, effects_as_state, effects_from_state
from cavity.data.labelled import weighted_rows
from cavity.data.labels import LabelScan
from cavity.data.parts import import_arrow
from cavity.data.table import Table, as_arrow, open_table
from cavity.data.weights import check_total_weight
from cavity.errors import SourceError
from cavity.text import listed, suggestion
from cavity.typing import AnyArray, Array, InputRows

if TYPE_CHECKING:
    import pyarrow as pa


SAMPLE = 50_000
"""Sample size for the median of a column; up to twice as many values are kept."""
_MOST_COUNTED = 20_000
"""Levels of a column that are counted at most; if there are more, the rarest are dropped."""
_FLOAT32_LOSS = 1e-5
"""Rounding error of float32 that does not matter, in standard deviations of a column."""


class Decision(NamedTuple):
    """How a column is encoded, or why it is left out."""

    encoder: Encoder | None
    """None if it is left out."""
    note: str | None
    """Why it is left out, or what else the user should know of it."""
    single: bool = True
    """Whether float32 holds it."""


class ColumnScan(Protocol):
    """Summary of a column over the rows read so far."""

    def add(self, array: pa.Array) -> None:
        """Look at the next Arrow array."""
        ...

    def decide(self) -> Decision:
        """How to encode the column."""
        ...


class NumericScan:
    """Range, moments, missing values and a sample of a column of numbers or truth values."""

    def __init__(self, column: str, kind: str = NUMERIC) -> None:
        self.column, self.kind = column, kind
        self.n = self.missing = 0
        self.low, self.high = np.inf, -np.inf
        self.mean = self.squares = 0.0
        self.sample = Sample()

    def add(self, array: pa.Array) -> None:
        """Look at the next numbers."""
        values = coerced(array, self.kind, self.column)
        if self.kind == BOOLEAN:
            values = values.cast(import_arrow()[0].float32())
        numbers = values.to_numpy(zero_copy_only=False).astype(np.float64)
        known = numbers[np.isfinite(numbers)]
        self.missing += len(numbers) - len(known)
        if not len(known):
            return
        self.low, self.high = min(self.low, known.min()), max(self.high, known.max())
        total = self.n + len(known)
        with np.errstate(all="ignore"):  # too large for float32 if it overflows, whatever the deviation
            step = known.mean() - self.mean
            self.squares += (
                float(np.square(known - known.mean()).sum()) + step**2 * self.n * len(known) / total
            )
            self.mean += step * len(known) / total
        self.n = total
        self.sample.add(known)

    def decide(self) -> Decision:
        """The numbers, unless they are all the same."""
        if self.n == 0:
            return Decision(None, f"{self.column!r} has no values and is left out")
        if self.low == self.high and not self.missing:
            return Decision(None, f"{self.column!r} is always {_number(self.low)} and is left out")
        largest = max(abs(self.low), abs(self.high))
        deviation = np.sqrt(self.squares / self.n)
        loss = 0.0 if self.low == self.high else largest * 2**-24
        single = bool(largest < 1e30 and loss <= _FLOAT32_LOSS * max(deviation, 1e-30))
        encoder = NumericEncoder(self.column, self.sample.median, self.missing > 0, self.kind)
        return Decision(encoder, None, single)


class Sample:
    """Every k-th number of a column, with k doubled whenever there are too many."""

    def __init__(self) -> None:
        self._kept: list[Array] = []
        self._n_kept, self._every, self._offset = 0, 1, 0

    def add(self, numbers: Array) -> None:
        """Keep some of the next numbers."""
        chosen = numbers[self._offset :: self._every]
        self._offset = (self._offset - len(numbers)) % self._every
        self._kept.append(np.array(chosen))
        self._n_kept += len(chosen)
        while self._n_kept > 2 * SAMPLE:
            whole = np.concatenate(self._kept)
            if len(whole) % 2:
                self._offset += self._every
            self._kept = [whole[::2]]
            self._n_kept, self._every = len(self._kept[0]), 2 * self._every

    @property
    def median(self) -> float:
        """Median of the sample."""
        return float(np.median(np.concatenate(self._kept)))


class LevelScan:
    """Counts of the values of a column of strings."""

    def __init__(self, column: str, max_categories: int) -> None:
        self.column, self.max_categories = column, max_categories
        self.n = self.missing = 0
        self.counts: Counter[str] = Counter()
        self.forgot = False

    def add(self, array: pa.Array) -> None:
        """Count the next values."""
        _, pc = import_arrow()
        values = coerced(array, CATEGORICAL, self.column)
        self.missing += values.null_count
        self.n += len(values) - values.null_count
        found = pc.value_counts(values.drop_null())
        levels, counts = found.field("values").to_pylist(), found.field("counts").to_pylist()
        self.counts.update(dict(zip(levels, counts, strict=True)))
        if len(self.counts) > _MOST_COUNTED:
            self.forgot = True
            self.counts = Counter(dict(self.counts.most_common(_MOST_COUNTED // 2)))

    def decide(self) -> Decision:
        """All levels, or the commonest if there are many; none if nearly every row has its own level."""
        if self.n == 0:
            return Decision(None, f"{self.column!r} has no values and is left out")
        n_levels = len(self.counts)
        if n_levels == 1 and not self.missing and not self.forgot:
            return Decision(
                None, f"{self.column!r} is always {next(iter(self.counts))!r} and is left out"
            )
        if n_levels == self.n and n_levels > 2:
            return Decision(None, self._identifier("every row has a value of its own"))
        if n_levels <= self.max_categories and not self.forgot:
            encoder = CategoricalEncoder(
                self.column, tuple(sorted(self.counts)), False, self.missing > 0
            )
            return Decision(encoder, None)
        enough = max(3.0, self.n / 2_000)
        common = [level for level, n in self.counts.most_common(self.max_categories) if n >= enough]
        if not common and sum(self.counts.values()) >= 2 * n_levels:
            common = [level for level, _ in self.counts.most_common(1)]  # effects may tell the others
        if not common:
            return Decision(None, self._identifier("hardly any value occurs twice"))
        note = (
            f"{self.column!r} has {'more than ' if self.forgot else ''}{n_levels:,} levels: the "
            f"commonest {len(common)} are kept, the others count as one"
        )
        encoder = CategoricalEncoder(self.column, tuple(sorted(common)), True, self.missing > 0)
        return Decision(encoder, note)

    def _identifier(self, why: str) -> str:
        return f"{self.column!r} looks like an identifier ({why}) and is left out"


class DateScan:
    """Which parts of a column of dates vary, and their means."""

    def __init__(self, column: str) -> None:
        self.column = column
        self.n = self.missing = 0
        self.low, self.high = np.full(len(PARTS), np.inf), np.full(len(PARTS), -np.inf)
        self.sum = np.zeros(2 * len(PARTS) - 1)

    def add(self, array: pa.Array) -> None:
        """Look at the next dates."""
        pa, _ = import_arrow()
        values = coerced(array, DATE, self.column)
        self.missing += values.null_count
        known = values.drop_null()
        if not len(known):
            return
        parts = parts_of(known.cast(pa.int64()).to_numpy())
        self.low, self.high = (
            np.minimum(self.low, parts.min(axis=0)),
            np.maximum(self.high, parts.max(axis=0)),
        )
        self.n += len(known)
        self.sum += date_features(parts, 0.0, PARTS).sum(axis=0)

    def decide(self) -> Decision:
        """The parts that vary."""
        if self.n == 0:
            return Decision(None, f"{self.column!r} has no values and is left out")
        varies = self.high > self.low
        if not varies.any():
            return Decision(None, f"{self.column!r} is always the same and is left out")
        parts = tuple(part for part, moves in zip(PARTS, varies, strict=True) if moves)
        means, first = self.sum / self.n, float(np.floor(self.low[0]))
        fill: list[float] = []
        for i, moves in enumerate(varies):
            if moves:
                fill += [means[0] - first] if i == 0 else [means[2 * i - 1], means[2 * i]]
        encoder = DateEncoder(
            self.column,
            first,
            parts,
            tuple(float(value) for value in fill),
            self.missing > 0,
        )
        return Decision(encoder, None)


def _number(value: float) -> str:
    return f"{value:g}"


class TableScan:
    """Summaries of the columns and labels of a table over the rows read so far."""

    def __init__(self, names: Sequence[str], categorical: Sequence[str], max_categories: int) -> None:
        self.names, self.categorical, self.max_categories = names, categorical, max_categories
        self.columns: dict[str, ColumnScan] = {}
        self.labels: LabelScan | None = None
        self.outdated: set[str] = set()
        """Columns whose kind has changed, so that their scan lacks the rows before."""
        self._kinds: dict[str, str] = {}
        self._missing: dict[str, int] = {}
        """Rows of columns that have had no value yet."""
        self._unusable: dict[str, pa.DataType] = {}

    def add(self, chunk: pa.RecordBatch, weights: Array | None, weightless: int) -> None:
        """Look at the next record batch, whose rows have weights [t].

        weightless: number of rows of weight 0 that were left out of it.
        """
        for name in self.names:
            self._add(name, chunk.column(name))
        if self.labels is not None:
            array = chunk.column(self.labels.target)
            if self._is_new_kind(self.labels.target, array.type):
                self.labels = LabelScan(self.labels.target, self.labels.table)
            self.labels.add(array, weights)
            self.labels.weightless += weightless

    def _add(self, name: str, array: pa.Array) -> None:
        pa, _ = import_arrow()
        if array.type == pa.null():
            self._missing[name] = self._missing.get(name, 0) + len(array)
            return
        kind = CATEGORICAL if name in self.categorical else kind_of_type(array.type)
        if kind is None:
            self._unusable[name] = array.type
            return
        if self._is_new_kind(name, array.type) or name not in self.columns:
            self.columns[name] = _scan_of(name, kind, self.max_categories)
            if name in self._missing:
                self.columns[name].add(pa.nulls(self._missing[name], array.type))
        self.columns[name].add(array)

    def _is_new_kind(self, name: str, found: pa.DataType) -> bool:
        """Whether a column had values of another kind before; it is outdated then."""
        pa, _ = import_arrow()
        if found == pa.null():
            return False
        kind = kind_of_type(found) or str(found)
        changed = self._kinds.get(name, kind) != kind
        self._kinds[name] = kind
        if changed:
            self.outdated.add(name)
        return changed

    def replace(self, other: TableScan) -> None:
        """Take what another scan has found."""
        self.columns |= other.columns
        self.labels = self.labels if other.labels is None else other.labels

    def notes(self, names: Sequence[str]) -> list[str]:
        """Warnings about columns that cannot be used."""
        notes = []
        for name in names:
            if name in self._unusable:
                found = self._unusable[name]
                notes.append(f"{name!r} holds {found}, which cannot be used, and is left out")
            elif name not in self.columns:
                notes.append(f"{name!r} has no values and is left out")
        return notes


def _scan_of(name: str, kind: str, max_categories: int) -> ColumnScan:
    if kind == CATEGORICAL:
        return LevelScan(name, max_categories)
    return DateScan(name) if kind == DATE else NumericScan(name, kind)


class TablePreprocessor(TransformerMixin, BaseEstimator):
    """Turns tables with named columns into arrays of finite numbers.

    Numbers stay as they are, and truth values become 0 and 1. Strings become one feature for each of
    the `max_categories` most frequent values, and one for all others. Dates become days, and positions
    in the year, the week and the day on circles. A missing number becomes the median, with a feature
    that marks it; a missing string is a value like others. Columns with a single value, and those in
    which every row has a different value, are left out. Everything is learned in one streaming pass.

    Parameters
    ----------
    max_categories : int
        Levels of a column of strings that get a feature of their own at most.
    drop_features : sequence of str
        Columns to leave out.
    categorical_features : sequence of str
        Columns of numbers that are codes, to be treated as strings.

    Attributes
    ----------
    encoders_ : list of encoders, one for each column that is used
    effects_ : sequence of `cavity.data.effects.EffectEncoder`, which a `TableClassifier` may add
    notes_ : list of str, what the user should know: columns that were left out, and why
    columns_ : list of str, the columns that are used
    dtype_ : str, "float32" if that holds all columns, else "float64"

    Examples
    --------
    >>> table = {"age": [31.0, None, 52.0], "carrier": ["AA", "UA", "AA"], "year": [2013, 2013, 2013]}
    >>> preprocessor = TablePreprocessor().fit(table)
    >>> preprocessor.get_feature_names_out().tolist()
    ['age', 'age (missing)', 'carrier=UA']
    >>> preprocessor.transform(table).tolist()
    [[31.0, 0.0, 0.0], [41.5, 1.0, 1.0], [52.0, 0.0, 0.0]]
    >>> preprocessor.notes_
    ["'year' is always 2013 and is left out"]
    """

    ignored_: Sequence[str] = ()
    """Columns of the training table that are not used; `check_columns` does not report them as new."""
    effects_: Sequence[EffectEncoder] = ()
    """Value effects, whose features follow those of the encoders."""

    def __init__(
        self,
        *,
        max_categories: int = 20,
        drop_features: Sequence[str] = (),
        categorical_features: Sequence[str] = (),
    ) -> None:
        self.max_categories = max_categories
        self.drop_features = drop_features
        self.categorical_features = categorical_features

    def fit(self, X: InputRows, y: object = None) -> TablePreprocessor:
        """Learn from a data frame, or from the files at a path or URL."""
        self.learn(open_table(X), None)
        return self

    def learn(self, table: Table, target: str | None, weight: str | None = None) -> LabelScan | None:
        """Learn all columns but target and weight, and count the target's values in the same pass.

        The types of text files are found in this pass, too. Columns of which a later part has another
        kind of cells than the first are read once more.
        """
        names = self._chosen(table, target, weight)
        read = [*names, *(name for name in (target, weight) if name is not None)]
        types = None if table.typed else TextTypes(read, self.categorical_features)
        scan = self._scan(table, names, target, weight, types, {})
        if types is not None and scan.outdated:
            again = [name for name in names if name in scan.outdated]
            late = target if target in scan.outdated else None
            scan.replace(self._scan(table, again, late, weight, None, types.types))
        if scan.labels is not None and scan.labels.weightless and scan.labels.is_empty:
            check_total_weight(0.0, f"the weight {weight!r}")
        self.notes_: list[str] = scan.notes(names)
        self._decide(
            {name: scan.columns[name].decide() for name in names if name in scan.columns}, table.name
        )
        return scan.labels

    def _scan(
        self,
        table: Table,
        names: Sequence[str],
        target: str | None,
        weight: str | None,
        text: TextTypes | None,
        types: Mapping[str, pa.DataType],
    ) -> TableScan:
        """One pass over some columns of a table."""
        scan = TableScan(names, self.categorical_features, self.max_categories)
        scan.labels = None if target is None else LabelScan(target, table.name)
        read = [*names, *(name for name in (target, weight) if name is not None)]
        for strings in table.chunks(read, {name: types[name] for name in read if name in types}):
            whole = strings if text is None else text.read(strings)
            chunk, weights = weighted_rows(whole, weight)
            scan.add(chunk, weights, whole.num_rows - chunk.num_rows)
        return scan

    def _chosen(self, table: Table, target: str | None, weight: str | None) -> list[str]:
        wanted = [("target column", target), ("weight column", weight)]
        wanted += [("column to leave out,", name) for name in self.drop_features]
        wanted += [("categorical column", name) for name in self.categorical_features]
        for what, name in wanted:
            if name is not None and name not in table.columns:
                raise SourceError(
                    f"{table.name} has no {what} {name!r}{suggestion(name, table.columns)}"
                )
        if weight is not None and weight == target:
            raise SourceError(f"{weight!r} is named as both the target and the weight column")
        names = [n for n in table.columns if n not in (target, weight) and n not in self.drop_features]
        if not names:
            raise SourceError(f"{table.name} has no columns besides the target {target!r}")
        return names

    def _decide(self, decisions: dict[str, Decision], name: str) -> None:
        used = {column: d for column, d in decisions.items() if d.encoder is not None}
        self.notes_ += [d.note for d in decisions.values() if d.note is not None]
        if not used:
            raise SourceError(f"{name} has no column to learn from: {'; '.join(self.notes_)}")
        self.encoders_ = [d.encoder for d in used.values() if d.encoder is not None]
        self.effects_ = []
        self.dtype_ = "float32" if all(d.single for d in used.values()) else "float64"

    def __getstate__(self) -> dict[str, Any]:
        """The attributes as they are saved: what there is for each column as one text, to be quick."""
        state: dict[str, Any] = dict(super().__getstate__())
        if "encoders_" in state:
            state["encoders_"] = encoders_as_text(self.encoders_)
            state["notes_"] = json.dumps(self.notes_)
            state["ignored_"] = json.dumps(list(self.ignored_))
            state["effects_"] = effects_as_state(self.effects_)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "encoders_" in state:
            state = {**state, "encoders_": encoders_from_text(state["encoders_"])}
            state |= {name: json.loads(state[name]) for name in ("notes_", "ignored_")}
            state["effects_"] = effects_from_state(state["effects_"])
        super().__setstate__(state)

    @property
    def columns_(self) -> list[str]:
        """Names of the columns that are used."""
        return [encoder.column for encoder in self.encoders_]

    def get_feature_names_out(self, input_features: object = None) -> AnyArray:
        """Names [d] of the features."""
        check_is_fitted(self)
        return np.array([name for names in self._features for name in names], dtype=object)

    @property
    def n_features_out_(self) -> int:
        """Number d of the features."""
        return sum(len(names) for names in self._features)

    @property
    def _features(self) -> list[tuple[str, ...]]:
        """Names of the features of each encoder and effect."""
        return [*(e.features for e in self.encoders_), *(e.features for e in self.effects_)]

    def text_types(self) -> dict[str, pa.DataType]:
        """The Arrow types in which to read the columns of a text file."""
        pa, _ = import_arrow()
        types = {NUMERIC: pa.float64()}
        return {e.column: types.get(e.kind, pa.string()) for e in self.encoders_}

    def check_columns(self, columns: Sequence[str], name: str) -> list[str]:
        """Raise if columns are missing; return the columns that training has not seen."""
        check_is_fitted(self)
        used, there = dict.fromkeys(self.columns_), set(columns)
        missing = [column for column in used if column not in there]
        if missing:
            words = suggestion(missing[0], [column for column in columns if column not in used])
            raise SourceError(
                f"{name} lacks {'columns' if len(missing) > 1 else 'the column'} {listed(missing)}, "
                f"which the model was trained on{words if 'mean' in words else ''}"
            )
        known = {*used, *self.drop_features, *self.ignored_}
        return [column for column in columns if column not in known]

    def transform(self, X: InputRows) -> Array:
        """The features [n, d] of a data frame or Arrow table, finite."""
        table = as_arrow(X)
        self.check_columns(table.schema.names, "the data frame")
        if table.num_rows == 0:
            return np.empty((0, self.n_features_out_), np.dtype(self.dtype_))
        batches = table.select(self.columns_).combine_chunks().to_batches()
        return np.vstack([self.encode(batch) for batch in batches])

    def encode(self, batch: pa.RecordBatch) -> Array:
        """The features [t, d] of an Arrow record batch that has the columns."""
        out = np.empty((batch.num_rows, self.n_features_out_), np.dtype(self.dtype_))
        first = 0
        for encoder in self.encoders_:
            width = len(encoder.features)
            encoder.encode(batch.column(encoder.column), out[:, first : first + width])
            first += width
        known: Codes = {}
        for effect in self.effects_:
            width = len(effect.features)
            effect.encode(batch, out[:, first : first + width], known)
            first += width
        return out
