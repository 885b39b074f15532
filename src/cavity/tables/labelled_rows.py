"""Rows of a table that have a target, fetched by number in a streaming pass."""

from __future__ import annotations

from typing import Any

import numpy as np

from cavity.errors import SourceError
from cavity.tables.arrow import import_arrow
from cavity.tables.classifier import TableClassifier
from cavity.tables.opening import Table
from cavity.tables.prediction import UnseenLevels, warn_of_new_columns
from cavity.tables.row_weights import weighted_rows
from cavity.typing import IntArray


class LabelledRows:
    """The rows of a table that have a target, as far from a data frame as memory demands.

    It has the `shape` of a data frame and its `iloc[numbers]`, which reads the table through and
    returns a data frame of those rows, whose index has the numbers that they have in the table. With
    `weight`, rows of no weight are left out too, as a fit does.
    """

    def __init__(self, model: TableClassifier, table: Table, weight: str | None = None) -> None:
        if model.target_ is None or model.target_ not in table.columns:
            raise SourceError(f"{table.name} has no target column {model.target_!r}")
        if weight is not None and weight not in table.columns:
            raise SourceError(f"{table.name} has no weight column {weight!r}, which the fit had")
        warn_of_new_columns(model, table)
        self.model, self.table, self.weight = model, table, weight
        codes = [codes for _, codes, _ in self._chunks([])]
        self.codes: IntArray = np.concatenate(codes)
        if not len(self.codes):
            raise SourceError(f"{table.name}: no row has a target, so there is nothing to report")
        self._warned = False

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.codes), len(self.model.columns_)

    @property
    def labels(self) -> Any:
        """[n], with as little memory as the codes take."""
        return _Labels(self.model.classes_, self.codes)

    @property
    def iloc(self) -> LabelledRows:
        """What is asked for rows by number."""
        return self

    def __getitem__(self, numbers: IntArray) -> Any:
        pa, _ = import_arrow()
        wanted: IntArray = np.unique(numbers)
        unseen, parts, first = UnseenLevels(self.model), [], 0
        places: list[IntArray] = []
        for chunk, codes, at in self._chunks(self.model.columns_):
            unseen.look_at(chunk)
            inside = wanted[(wanted >= first) & (wanted < first + len(codes))] - first
            parts.append(pa.Table.from_batches([chunk]).take(pa.array(inside)))
            places.append(at[inside])
            first += len(codes)
        if not self._warned:
            unseen.warn(self.table.name)
            self._warned = True
        frame = pa.concat_tables(parts).select(self.model.columns_).to_pandas()
        frame.index = np.concatenate(places)
        frame.attrs["table"] = self.table.name
        return frame.iloc[np.searchsorted(wanted, numbers)]

    def _chunks(self, columns: list[str]) -> Any:
        """Record batches of rows that have a target, their class codes and their places in the table."""
        pa, _ = import_arrow()
        labels = self.model.labels_
        read = [*columns, labels.target]
        types = {**self.model.preprocessor_.text_types(), labels.target: labels.arrow_type}
        if self.weight is not None:
            read, types = [*read, self.weight], {**types, self.weight: pa.float64()}
        first = 0
        for chunk in self.table.chunks(read, types):
            places = pa.array(np.arange(first, first + chunk.num_rows))
            first += chunk.num_rows
            rows, _ = weighted_rows(chunk.append_column("(place)", places), self.weight)
            codes = labels.codes(rows.column(labels.target))
            known = codes >= 0
            rows = rows.filter(pa.array(known))
            yield rows, codes[known], rows.column("(place)").to_numpy()


class _Labels:
    """Class values [n] that are made of their codes when they are asked for."""

    def __init__(self, classes: Any, codes: IntArray) -> None:
        self._classes, self._codes = classes, codes
        self.shape = codes.shape

    def __len__(self) -> int:
        return len(self._codes)

    def __getitem__(self, numbers: IntArray) -> Any:
        return self._classes[self._codes[numbers]]
