"""Encoding of tables with columns of any kind as arrays of numbers: learned in one pass."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from cavity.data.cells import is_text
from cavity.data.columns import (
    CATEGORICAL,
    CategoricalEncoder,
    Encoder,
    Form,
    NumericEncoder,
    encoders_as_text,
    encoders_from_text,
    kind_of_type,
    text_of,
    unread_words,
)
from cavity.data.effects import Codes, EffectEncoder, effects_as_state, effects_from_state
from cavity.data.forms import TextTally, forms_of
from cavity.data.frames import as_arrow
from cavity.data.labelled import weighted_rows
from cavity.data.labels import LabelScan, TableLabelScan
from cavity.data.leaks import LabelledSample
from cavity.data.parts import import_arrow
from cavity.data.scans import ColumnDecision, ColumnScan, scan_of
from cavity.data.table import FrameTable, Table, open_table
from cavity.data.weights import check_total_weight, name_of_weight
from cavity.errors import SourceError, warn_user
from cavity.text import did_you_mean, listed, shortened
from cavity.typing import AnyArray, Array, InputRows

if TYPE_CHECKING:
    import pyarrow as pa


def warn_of_words(encoder: Encoder, words: set[str], table: str) -> None:
    """Warn of words in new rows that cannot be read as what the column held in training."""
    if words:
        warn_user(
            f"{table}: column {encoder.column!r} should be {encoder.kind}; cells that are not count as "
            f"missing: {listed([shortened(word) for word in sorted(words)], most=5)}"
        )


def check_names_of_columns(parameter: str, names: object) -> None:
    """Raise if a parameter is not several names of columns.

    >>> check_names_of_columns("drop_features", [2])
    Traceback (most recent call last):
    cavity.errors.SourceError: drop_features=[2] is not possible; it must be a list of names of columns
    """
    if isinstance(names, str) or not isinstance(names, Iterable) or not _are_words(names):
        raise SourceError(
            f"{parameter}={names!r} is not possible; it must be a list of names of columns"
        )


def _are_words(values: Iterable[object]) -> bool:
    return all(isinstance(value, str) for value in values)


def _typed(array: pa.Array, encoder: Encoder) -> pa.Array:
    """The cells of a column with words as a dictionary, and other text as what it holds."""
    if isinstance(encoder, CategoricalEncoder):
        return encoder.words(array)
    return array if text_of(array) is None else encoder.form.read(array, encoder.column)


class TableScan:
    """Summaries of the columns and labels of a table over the rows read so far.

    forms: what columns of text hold, if that is known; else it is found, and columns of which a later
    part tells something else than the first are `outdated`.
    """

    def __init__(
        self,
        names: Sequence[str],
        categorical: Sequence[str],
        max_categories: int,
        forms: Mapping[str, Form] | None = None,
        decimal: str | None = None,
        missing_words: tuple[str, ...] = (),
    ) -> None:
        self.names, self.categorical, self.max_categories = names, categorical, max_categories
        self.decimal, self.missing_words = decimal, missing_words
        self.columns: dict[str, ColumnScan] = {}
        self.labels: TableLabelScan | None = None
        self.sample = LabelledSample()
        self._known = forms
        self._tallies: dict[str, TextTally] = {}
        self._forms: dict[str, Form] = {}
        """The forms in which columns of text are scanned."""
        self._missing: dict[str, int] = {}
        """Rows of columns that have had no value yet."""
        self._unusable: dict[str, pa.DataType] = {}

    def add(self, chunk: pa.RecordBatch, weights: Array | None, weightless: int) -> None:
        """Look at the next record batch, whose rows have weights [t].

        weightless: number of rows of weight 0 that were left out of it.
        """
        text = [
            name
            for name in self.names
            if name not in self.categorical and is_text(chunk.schema.field(name).type)
        ]
        if self._known is None:
            for name in text:
                self._tallies.setdefault(name, TextTally()).add(chunk.column(name))
        forms = self.forms
        for name in self.names:
            self._add(name, chunk.column(name), forms.get(name) if name in text else None, name in text)
        if self.labels is not None:
            codes = self.labels.add(chunk.column(self.labels.target), weights)
            self.labels.weightless += weightless
            if self._known is None:
                self.sample.add(chunk.select(list(self.names)), codes)

    @property
    def forms(self) -> Mapping[str, Form]:
        """What the columns of text hold, as far as their cells are known."""
        return forms_of(self._tallies, self.decimal) if self._known is None else self._known

    @property
    def outdated(self) -> set[str]:
        """Columns of text that were scanned in another form than that of all their cells."""
        forms = self.forms
        return {name for name, form in self._forms.items() if forms[name] != form}

    def _add(self, name: str, array: pa.Array, form: Form | None, is_text_column: bool) -> None:
        pa, _ = import_arrow()
        if array.type == pa.null() or (is_text_column and form is None):
            self._missing[name] = self._missing.get(name, 0) + len(array)
            return
        if form is None:
            kind = CATEGORICAL if name in self.categorical else kind_of_type(array.type)
            if kind is None:
                self._unusable[name] = array.type
                return
            form = Form(kind)
        if name not in self.columns:
            self.columns[name] = scan_of(name, form, self.max_categories, self.missing_words)
            if is_text_column:
                self._forms[name] = form
            if name in self._missing:
                self.columns[name].add(pa.nulls(self._missing[name], array.type))
        self.columns[name].add(array)

    def replace(self, other: TableScan) -> None:
        """Replace the summaries of columns by those of another scan."""
        self.columns |= other.columns

    def notes(self, *, is_typed: bool) -> list[str]:
        """What the user should know of how columns are read, and of those that cannot be used."""
        notes = []
        forms = self.forms
        for name in self.names:
            if name in self._unusable:
                found = self._unusable[name]
                notes.append(f"{name!r} holds {found}, which cannot be used, and is left out")
            elif name not in self.columns:
                notes.append(f"{name!r} has no values and is left out")
            elif name in self._tallies:
                notes += self._tallies[name].notes(name, forms[name], is_typed=is_typed)
        return notes


class TablePreprocessor(TransformerMixin, BaseEstimator):
    """Turns tables with named columns into arrays of finite numbers.

    Numbers stay as they are, and truth values become 0 and 1. Strings become one feature for each of
    the `max_categories` most frequent values, and one for all others. Dates become days, and positions
    in the year, the week and the day on circles. A missing number becomes the median, with a feature
    that marks it; a missing string is a value like others. Text that holds numbers or dates is read as
    such. Columns with a single value, identifiers and numbers of the rows are left out. Everything is
    learned in one streaming pass; only columns of text of which the first rows tell something else than
    all are read again.

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
    notes_ : list of str, what the user should know: how text was read, which columns were left out and
        why, and which give the target away
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
    identifiers_: Sequence[str] = ()
    """Columns that are left out because they number or name the rows; reports call the rows by them."""
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

        What text holds is found in this pass, too. Columns of which a later part tells something else
        than the first are read once more.
        """
        names = self.candidates(table, target, weight)
        scan = self._scan(table, names, target, weight)
        outdated = scan.outdated
        again = [name for name in names if name in outdated]
        if again:
            scan.replace(self._scan(table, again, None, weight, scan.forms))
        labels = scan.labels
        if weight is not None and labels is not None and labels.weightless and labels.is_empty:
            check_total_weight(0.0, name_of_weight(weight))
        self.notes_: list[str] = scan.notes(is_typed=table.typed)
        self._decide(
            {name: scan.columns[name].decide() for name in names if name in scan.columns}, table.name
        )
        for leak in scan.sample.leaks(self.encoders_):
            self.notes_.append(leak)
            warn_user(leak)
        if scan.labels is not None and scan.labels.spellings is not None:
            one, other = scan.labels.spellings
            self.notes_.append(
                "labels that differ by blanks at their ends alone, such as "
                f"{one!r} and {other!r}, are one"
            )
        return scan.labels

    def _scan(
        self,
        table: Table,
        names: Sequence[str],
        target: str | None,
        weight: str | None,
        forms: Mapping[str, Form] | None = None,
    ) -> TableScan:
        """One pass over some columns of a table."""
        scan = TableScan(
            names,
            self.categorical_features,
            self.max_categories,
            forms,
            table.decimal,
            table.missing_words,
        )
        scan.labels = None if target is None else TableLabelScan(target, table.name, table.typed)
        for whole in table.chunks([*names, *(name for name in (target, weight) if name is not None)]):
            chunk, weights, _ = weighted_rows(whole, weight)
            scan.add(chunk, weights, whole.num_rows - chunk.num_rows)
        return scan

    def candidates(self, table: Table, target: str | None, weight: str | None) -> list[str]:
        """Columns that may be learned from; raise if there are none, or the table lacks a named one."""
        check_names_of_columns("drop_features", self.drop_features)
        check_names_of_columns("categorical_features", self.categorical_features)
        wanted = [("target column", target), ("weight column", weight)]
        wanted += [("column to leave out,", name) for name in self.drop_features]
        wanted += [("categorical column", name) for name in self.categorical_features]
        for role, name in wanted:
            if name is not None:
                table.require(name, role)
        if weight is not None and weight == target:
            raise SourceError(
                f"{weight!r} is named as both the target and the weight column; name another column of "
                "weights, or none"
            )
        names = [n for n in table.columns if n not in (target, weight) and n not in self.drop_features]
        if not names:
            raise SourceError(f"{table.name} has no columns besides the target {target!r}")
        return names

    def _decide(self, decisions: dict[str, ColumnDecision], name: str) -> None:
        used = {column: d for column, d in decisions.items() if d.encoder is not None}
        if all(d.is_spare for d in used.values()):  # nothing else is left to learn from
            decisions = {column: d for column, d in decisions.items() if not d.is_spare}
        else:
            used = {column: d for column, d in used.items() if not d.is_spare}
        self.notes_ += [note for d in decisions.values() for note in d.notes]
        if not used:
            raise SourceError(f"{name} has no column to learn from: {'; '.join(self.notes_)}")
        self.encoders_ = [d.encoder for d in used.values() if d.encoder is not None]
        self.identifiers_ = [c for c, d in decisions.items() if d.names_rows and c not in used]
        self.effects_ = []
        self.dtype_ = "float32" if all(d.single for d in used.values()) else "float64"

    def __getstate__(self) -> dict[str, Any]:
        """The attributes as they are saved: what there is for each column as one text, to be quick."""
        state: dict[str, Any] = dict(super().__getstate__())
        if "encoders_" in state:
            state["encoders_"] = encoders_as_text(self.encoders_)
            state["notes_"] = json.dumps(self.notes_)
            state["ignored_"] = json.dumps(list(self.ignored_))
            state["identifiers_"] = json.dumps(list(self.identifiers_))
            state["effects_"] = effects_as_state(self.effects_)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "encoders_" in state:
            state = {**state, "encoders_": encoders_from_text(state["encoders_"])}
            state |= {name: json.loads(state[name]) for name in ("notes_", "ignored_", "identifiers_")}
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

    def features_of_columns(self) -> dict[str, list[int]]:
        """Positions of the features that depend on each column; those of a pair depend on two."""
        found: dict[str, list[int]] = {name: [] for name in self.columns_}
        first = 0
        for columns, names in zip(
            [*((e.column,) for e in self.encoders_), *(e.columns for e in self.effects_)],
            self._features,
            strict=True,
        ):
            for column in columns:
                found[column] += range(first, first + len(names))
            first += len(names)
        return found

    def reading(self, table: Table) -> TablePreprocessor:
        """This preprocessor with the decimal sign of a table, if the table knows its sign."""
        if table.decimal is None:
            return self
        other = copy(self)
        other.encoders_ = [
            replace(encoder, decimal=table.decimal) if isinstance(encoder, NumericEncoder) else encoder
            for encoder in self.encoders_
        ]
        return other

    def typed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns of a batch that are used, with text read as the numbers and dates that it holds.

        Words come with a dictionary, so that the next steps look at each different word once.
        """
        pa, _ = import_arrow()
        there = set(batch.schema.names)
        encoders = [encoder for encoder in self.encoders_ if encoder.column in there]
        arrays = [_typed(batch.column(encoder.column), encoder) for encoder in encoders]
        return pa.RecordBatch.from_arrays(arrays, names=[encoder.column for encoder in encoders])

    def read_once(self, table: Table) -> Table:
        """The table; one in memory with its text read, so that several passes need not read it again."""
        if not isinstance(table, FrameTable):
            return table
        pa, _ = import_arrow()
        whole = table.table
        for encoder in self.encoders_:
            place = whole.schema.get_field_index(encoder.column)
            column = whole.column(place)
            if is_text(column.type):
                parts = [_typed(part, encoder) for part in column.chunks]
                kind = parts[0].type if parts else column.type
                whole = whole.set_column(place, encoder.column, pa.chunked_array(parts, kind))
        typed = copy(table)
        typed.table = whole.unify_dictionaries()
        return typed

    def check_columns(self, columns: Sequence[str], name: str) -> list[str]:
        """Raise if columns are missing; return the columns that training has not seen."""
        check_is_fitted(self)
        used, there = dict.fromkeys(self.columns_), set(columns)
        missing = [column for column in used if column not in there]
        if missing:
            near = did_you_mean(missing[0], [column for column in columns if column not in used])
            raise SourceError(
                f"{name} lacks {'columns' if len(missing) > 1 else 'the column'} {listed(missing)}, "
                f"which the model was trained on{near}"
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
        typed = [self.typed(batch) for batch in batches]
        for encoder in self.encoders_:
            if not isinstance(encoder, CategoricalEncoder):
                pairs = [
                    (a.column(encoder.column), b.column(encoder.column))
                    for a, b in zip(batches, typed, strict=True)
                ]
                words = [unread_words(array, values) for array, values in pairs]
                warn_of_words(encoder, set[str]().union(*words), "the data frame")
        return np.vstack([self.encode(batch) for batch in typed])

    def encode(self, batch: pa.RecordBatch, out: Array | None = None) -> Array:
        """The features [t, d] of an Arrow record batch that has the columns, in `out` if it is given.

        The batch may be one that was read by `typed`: its text is not read again.
        """
        batch = self.typed(batch)
        if out is None:
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
