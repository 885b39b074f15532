"""Tables on a cluster: files and Dask data frames, which workers encode piece by piece."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import dask
import dask.dataframe
import numpy as np
from distributed import Client

from cavity.data.effect_counts import S
from cavity.data.effect_learning import LearnedEffects
from cavity.data.encoded import encoded_rows
from cavity.data.frames import check_column_names
from cavity.data.labelled import labelled_rows
from cavity.data.labels import Classes
from cavity.data.preprocess import TablePreprocessor
from cavity.data.records import JsonTable
from cavity.data.source import NO_SETS, joined
from cavity.data.table import ArrowTable, FrameTable, Table, TextTable
from cavity.engines.dask.cluster import Cluster
from cavity.engines.dask.collections import LazyTable, Partition
from cavity.errors import SourceError

if TYPE_CHECKING:
    import pandas
    import pyarrow as pa
    from dask.delayed import Delayed

_PIECE_ROWS = 500_000
"""Rows of a piece of a table that a worker encodes at a time, about."""


class DaskTable(Table):
    """A Dask data frame, of which one partition at a time is read here.

    client: the cluster that computes the partitions; None is Dask's default.
    """

    name = "the Dask data frame"

    def __init__(self, frame: dask.dataframe.DataFrame, client: Client | None = None) -> None:
        if not isinstance(frame, dask.dataframe.DataFrame):
            raise TypeError(f"X is a {type(frame).__name__} of Dask; a table is a Dask data frame")
        self.frame, self.client = frame, client
        self.columns = [str(name) for name in frame.columns]
        check_column_names(self.columns, self.name)

    def chunks(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Record batches of the partitions, in order."""
        for partition in self.frame[list(columns)].to_delayed():
            rows = (
                partition.compute() if self.client is None else self.client.compute(partition).result()
            )
            if len(rows):
                yield from FrameTable(rows, self.name).chunks(columns)


class TablePieces:
    """The training rows of a table, in pieces that workers read and encode.

    Parquet files are split between row groups. A text file is one piece, as its rows cannot be counted
    without reading it. The pieces of a Dask data frame are its partitions.

    client: the cluster that works on the pieces; None is Dask's default.
    """

    def __init__(
        self,
        table: Table,
        preprocessor: TablePreprocessor,
        classes: Classes,
        weight: str | None = None,
        client: Client | None = None,
    ) -> None:
        self._client = client
        self._pieces = _pieces(table)
        self._preprocessor, self._classes, self._weight = preprocessor, classes, weight
        self._starts: list[int] | None = None

    def __call__(self, empty: S) -> S:
        """The summary of all rows: each worker adds up its own, and neighbours are merged in pairs."""
        summarised, merged, shared = dask.delayed(_summarised), dask.delayed(_merged), self._shared()
        nothing = dask.delayed(empty)
        parts = [
            summarised(nothing, piece, first, *shared)
            for piece, first in zip(self._pieces, self._first_numbers(), strict=True)
        ]
        while len(parts) > 1:
            pairs = [merged(a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
            parts = [*pairs, *parts[2 * len(pairs) :]]
        (summary,) = self._computed(parts)
        found: S = summary
        return found

    def lazy_table(self, effects: LearnedEffects | None) -> LazyTable:
        """The encoded rows as partitions; effects: value effects, which become further features."""
        encode, shared = dask.delayed(_encoded), self._shared()
        names, sets, reserved = self._preprocessor.get_feature_names_out(), NO_SETS, None
        firsts: Sequence[int] = [0] * len(self._pieces)
        if effects is not None:
            names, sets, reserved = effects.joined_to(names)
            firsts = self._first_numbers()
        added = dask.delayed(effects)
        partitions = [
            encode(piece, first, added, *shared)
            for piece, first in zip(self._pieces, firsts, strict=True)
        ]
        return LazyTable(partitions, names, sets, reserved)

    def _shared(self) -> tuple[Delayed, Delayed, str | None]:
        return dask.delayed(self._preprocessor), dask.delayed(self._classes), self._weight

    def _first_numbers(self) -> list[int]:
        """The number of the first row of each piece, among all that take part in training."""
        if self._starts is None:
            count = dask.delayed(_row_count)
            counts = self._computed([count(piece, *self._shared()) for piece in self._pieces])
            self._starts = [0, *np.cumsum(counts)[:-1].tolist()]
        return self._starts

    def _computed(self, parts: list[Delayed]) -> list[Any]:
        if self._client is None:
            return list(dask.compute(*parts))
        client = self._client
        return Cluster(client).run(lambda: list(client.compute(parts)), lambda: None)


def _pieces(table: Table) -> Sequence[Table | Delayed]:
    """What workers read at a time: tables, or delayed pandas frames."""
    if isinstance(table, DaskTable):
        return list(table.frame.to_delayed())
    if isinstance(table, ArrowTable):
        return [*table.pieces(_PIECE_ROWS)]
    if isinstance(table, (TextTable, JsonTable)):
        return [*table.pieces()]
    raise SourceError(
        f"{table.name} is in memory, and a cluster reads files and Dask data frames: pass the path of "
        "its files, or dask.dataframe.from_pandas(X, npartitions=…)"
    )


def _tables(piece: Table | pandas.DataFrame) -> list[Table]:
    """The table of a piece; none if it is a partition without rows."""
    if isinstance(piece, Table):
        return [piece]
    return [FrameTable(piece)] if len(piece) else []


def _row_count(
    piece: Table | pandas.DataFrame,
    preprocessor: TablePreprocessor,
    classes: Classes,
    weight: str | None,
) -> int:
    """Number of rows of a piece that take part in training; runs on a worker."""
    read = preprocessor.typed, classes, weight
    return sum(len(rows.codes) for table in _tables(piece) for rows in labelled_rows(table, [], *read))


def _summarised(
    empty: S,
    piece: Table | pandas.DataFrame,
    first: int,
    preprocessor: TablePreprocessor,
    classes: Classes,
    weight: str | None,
) -> S:
    """The summary of a piece whose first row has this number; runs on a worker."""
    summary = deepcopy(empty)
    for table in _tables(piece):
        for rows in labelled_rows(table, summary.columns, preprocessor.typed, classes, weight, first):
            summary.add(rows)
    return summary


def _merged(a: S, b: S) -> S:
    return a.merged(b)


def _encoded(
    piece: Table | pandas.DataFrame,
    first: int,
    effects: LearnedEffects | None,
    preprocessor: TablePreprocessor,
    classes: Classes,
    weight: str | None,
) -> Partition:
    """Read and encode a piece whose first row has this number; runs on a worker."""
    parts = [
        rows
        for table in _tables(piece)
        for rows in encoded_rows(table, preprocessor, classes, weight, effects, first)
    ]
    if not parts:
        d = preprocessor.n_features_out_ + (0 if effects is None else len(effects.features))
        none = None if weight is None else np.empty(0)
        return Partition(np.empty((0, d), np.dtype(preprocessor.dtype_)), classes.values[:0], none)
    rows = joined(parts)
    weights = None if rows.weight is None else rows.weight.astype(np.float64, copy=False)
    return Partition(rows.X, classes.values[rows.labels], weights)
