"""Named columns of any kind become numbers: learned in one streaming pass, applied chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from cavity.errors import SourceError
from cavity.tables.arrow import as_arrow, import_arrow
from cavity.tables.kinds import BOOLEAN, CATEGORICAL, DATE, NUMERIC, kind_of_type, text_types
from cavity.tables.labels import LabelScan
from cavity.tables.names import listed, suggestion
from cavity.tables.opening import Table, open_table
from cavity.tables.row_weights import weighted_rows
from cavity.tables.scanning import ColumnScan, DateScan, Decision, LevelScan, NumericScan
from cavity.typing import Array


class TablePreprocessor(TransformerMixin, BaseEstimator):
    """Turns tables with named columns into arrays of finite numbers.

    Numbers stay as they are; truth values become 0 and 1; strings become a feature for each level (the
    commonest `max_levels` of them, one for all others); dates become days, and places in the year, the
    week and the day on circles. A missing number becomes the median, with a feature that says so; a
    missing string is a level of its own. Columns that never change, and those of which every row has a
    value of its own, are left out. Everything is learned in one streaming pass (two for text files).

    Parameters
    ----------
    max_levels : int
        Levels of a column of strings that get a feature of their own at most.
    drop : sequence of str
        Columns to leave out.
    categorical : sequence of str
        Columns of numbers that are codes, to be treated as strings.

    Attributes
    ----------
    encoders_ : list of encoders, one for each column that is used
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

    def __init__(
        self, *, max_levels: int = 20, drop: Sequence[str] = (), categorical: Sequence[str] = ()
    ) -> None:
        self.max_levels = max_levels
        self.drop = drop
        self.categorical = categorical

    def fit(self, X: Any, y: Any = None) -> TablePreprocessor:
        """Learn from a data frame, or from the file or folder at a path."""
        self.learn(open_table(X), None)
        return self

    def learn(self, table: Table, target: str | None, weight: str | None = None) -> LabelScan | None:
        """Learn all columns but target and weight, and count the target's values on the way."""
        names = self._chosen(table, target, weight)
        read = [*names, *(name for name in (target, weight) if name is not None)]
        types = {} if table.typed else text_types(table, read)
        scans: dict[str, ColumnScan] = {}
        self.notes_: list[str] = []
        labels = None if target is None else LabelScan(target, table.name)
        for whole in table.chunks(read, types):
            chunk, weights = weighted_rows(whole, weight)
            if not scans:
                scans = self._scans(chunk.schema, names)
            for name, scan in scans.items():
                scan.add(chunk.column(name))
            if labels is not None:
                labels.add(chunk.column(target), weights)
                labels.weightless += whole.num_rows - chunk.num_rows
        if labels is not None and labels.weightless and not labels.counts and not labels.missing:
            raise SourceError(f"the weight {weight!r} of every row is zero; at least one must count")
        self._decide({name: scan.decide() for name, scan in scans.items()}, table.name)
        return labels

    def _chosen(self, table: Table, target: str | None, weight: str | None) -> list[str]:
        wanted = [("target column", target), ("weight column", weight)]
        wanted += [("column to leave out,", name) for name in self.drop]
        wanted += [("categorical column", name) for name in self.categorical]
        for what, name in wanted:
            if name is not None and name not in table.columns:
                raise SourceError(
                    f"{table.name} has no {what} {name!r}{suggestion(name, table.columns)}"
                )
        if weight is not None and weight == target:
            raise SourceError(f"{weight!r} is named as both the target and the weight column")
        names = [n for n in table.columns if n not in (target, weight) and n not in self.drop]
        if not names:
            raise SourceError(f"{table.name} has no columns besides the target {target!r}")
        return names

    def _scans(self, schema: Any, names: Sequence[str]) -> dict[str, ColumnScan]:
        pa, _ = import_arrow()
        scans: dict[str, ColumnScan] = {}
        for name in names:
            found = schema.field(name).type
            kind = CATEGORICAL if name in self.categorical else kind_of_type(found)
            if kind in (NUMERIC, BOOLEAN):
                scans[name] = NumericScan(name, kind)
            elif kind == CATEGORICAL:
                scans[name] = LevelScan(name, self.max_levels)
            elif kind == DATE:
                scans[name] = DateScan(name)
            elif found == pa.null():
                self.notes_.append(f"{name!r} has no values and is left out")
            else:
                self.notes_.append(f"{name!r} holds {found}, which cannot be used, and is left out")
        return scans

    def _decide(self, decisions: dict[str, Decision], name: str) -> None:
        used = {column: d for column, d in decisions.items() if d.encoder is not None}
        self.notes_ += [d.note for d in decisions.values() if d.note is not None]
        if not used:
            raise SourceError(f"{name} has no column to learn from: {'; '.join(self.notes_)}")
        self.encoders_ = [d.encoder for d in used.values() if d.encoder is not None]
        self.columns_ = list(used)
        self.dtype_ = "float32" if all(d.single for d in used.values()) else "float64"

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Names [d] of the features."""
        check_is_fitted(self)
        return np.array([name for encoder in self.encoders_ for name in encoder.features], dtype=object)

    @property
    def n_features_out_(self) -> int:
        """Number d of the features."""
        return sum(len(encoder.features) for encoder in self.encoders_)

    def text_types(self) -> dict[str, Any]:
        """The Arrow types in which to read the columns of a text file."""
        pa, _ = import_arrow()
        types = {NUMERIC: pa.float64()}
        return {e.column: types.get(e.kind, pa.string()) for e in self.encoders_}

    def check_columns(self, columns: Sequence[str], name: str) -> list[str]:
        """Refuse a table that lacks columns; returns the columns that training has not seen."""
        check_is_fitted(self)
        missing = [column for column in self.columns_ if column not in columns]
        if missing:
            words = suggestion(missing[0], [column for column in columns if column not in self.columns_])
            raise SourceError(
                f"{name} lacks {'columns' if len(missing) > 1 else 'the column'} {listed(missing)}, "
                f"which the model was trained on{words if 'mean' in words else ''}"
            )
        known = {*self.columns_, *self.drop, *getattr(self, "ignored_", ())}
        return [column for column in columns if column not in known]

    def transform(self, X: Any) -> Array:
        """The features [n, d] of a data frame or Arrow table, finite."""
        table = as_arrow(X)
        self.check_columns(table.schema.names, "the data frame")
        if table.num_rows == 0:
            return np.empty((0, self.n_features_out_), np.dtype(self.dtype_))
        batches: Iterator[Any] = iter(table.select(self.columns_).combine_chunks().to_batches())
        return np.vstack([self.encode(batch) for batch in batches])

    def encode(self, batch: Any) -> Array:
        """The features [t, d] of an Arrow record batch that has the columns."""
        out = np.empty((batch.num_rows, self.n_features_out_), np.dtype(self.dtype_))
        first = 0
        for encoder in self.encoders_:
            width = len(encoder.features)
            encoder.encode(batch.column(encoder.column), out[:, first : first + width])
            first += width
        return out
