"""Tables on a cluster: files and Dask data frames, which workers encode piece by piece."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import dask
import dask.array
import dask.dataframe
import numpy as np
from distributed import Client

from cavity.data.encoded import encoded_rows
from cavity.data.labels import Classes
from cavity.data.preprocess import TablePreprocessor
from cavity.data.records import JsonTable
from cavity.data.table import ArrowTable, FrameTable, Table, TextTable, check_column_names
from cavity.errors import SourceError
from cavity.typing import AnyArray, AnyDtype, Array

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


class TableRows(NamedTuple):
    """Features [t, d], class values [t] and, if there are any, weights [t]."""

    X: Array | dask.array.Array
    y: AnyArray | dask.array.Array
    sample_weight: Array | dask.array.Array | None


def dask_rows(
    table: Table, preprocessor: TablePreprocessor, classes: Classes, weight: str | None = None
) -> TableRows:
    """Dask arrays of the features [n, d] and class values [n] of the rows that have a target.

    Parquet files are split between row groups. A text file is one piece, as its rows cannot be counted
    without reading it. The pieces of a Dask data frame are its partitions.
    """
    encode = dask.delayed(_encoded)
    rows = [encode(piece, preprocessor, classes, weight) for piece in _pieces(table)]
    dtype, d = np.dtype(preprocessor.dtype_), preprocessor.n_features_out_

    def joined(parts: list[Delayed], shape: tuple[float, ...], kind: AnyDtype) -> dask.array.Array:
        arrays = [dask.array.from_delayed(part, shape=shape, dtype=kind) for part in parts]
        return dask.array.concatenate(arrays, allow_unknown_chunksizes=True)

    return TableRows(
        joined([r.X for r in rows], (np.nan, d), dtype),
        joined([r.y for r in rows], (np.nan,), classes.values.dtype),
        None
        if weight is None
        else joined([r.sample_weight for r in rows], (np.nan,), np.dtype(np.float64)),
    )


def _pieces(table: Table) -> Sequence[Table | Delayed]:
    """What workers encode at a time: tables, or delayed pandas frames."""
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


def _encoded(
    piece: Table | pandas.DataFrame,
    preprocessor: TablePreprocessor,
    classes: Classes,
    weight: str | None,
) -> TableRows:
    """Read and encode a piece; runs on a worker."""
    if not isinstance(piece, Table):
        if not len(piece):
            d, dtype = preprocessor.n_features_out_, np.dtype(preprocessor.dtype_)
            none = None if weight is None else np.empty(0)
            return TableRows(np.empty((0, d), dtype), classes.values[:0], none)
        piece = FrameTable(piece)
    X, codes, weights = zip(*encoded_rows(piece, preprocessor, classes, weight), strict=True)
    return TableRows(
        np.concatenate(X),
        classes.values[np.concatenate(codes)],
        None if weight is None else np.concatenate(weights),
    )
