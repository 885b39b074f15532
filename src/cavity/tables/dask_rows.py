"""The rows of a table as Dask arrays: each worker reads and encodes pieces of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from cavity.errors import SourceError
from cavity.sources.parquet_files import open_parquet
from cavity.tables.csv_table import CsvTable
from cavity.tables.labels import Classes
from cavity.tables.opening import Table
from cavity.tables.parquet_table import ParquetTable
from cavity.tables.preprocessor import TablePreprocessor
from cavity.tables.training_rows import encoded_rows
from cavity.typing import Array

_PIECE_ROWS = 500_000


class Rows(NamedTuple):
    """Features [t, d] and class values [t]."""

    X: Array
    y: Any


def dask_rows(table: Table, preprocessor: TablePreprocessor, classes: Classes) -> tuple[Any, Any]:
    """Dask arrays of the features [n, d] and class values [n] of the rows that have a target.

    Parquet files are cut between row groups; a text file is one piece, for its rows cannot be counted
    without reading it.
    """
    import dask
    import dask.array

    if isinstance(table, ParquetTable):
        tables: list[Table] = list(_parquet_pieces(table))
    elif isinstance(table, CsvTable):
        tables = [CsvTable([path], str(path), table.delimiter) for path in table.files]
    else:
        raise SourceError("a cluster reads files; write the data frame to Parquet first")
    encode = dask.delayed(_encoded)
    rows = [encode(piece, preprocessor, classes) for piece in tables]
    dtype, d = np.dtype(preprocessor.dtype_), preprocessor.n_features_out_
    X = [dask.array.from_delayed(r.X, shape=(np.nan, d), dtype=dtype) for r in rows]
    y = [dask.array.from_delayed(r.y, shape=(np.nan,), dtype=classes.values.dtype) for r in rows]
    return (
        dask.array.concatenate(X, allow_unknown_chunksizes=True),
        dask.array.concatenate(y, allow_unknown_chunksizes=True),
    )


def _encoded(table: Table, preprocessor: TablePreprocessor, classes: Classes) -> Rows:
    """Read and encode a piece; runs on a worker."""
    parts = list(encoded_rows(table, preprocessor, classes))
    X = np.concatenate([features for features, _ in parts])
    return Rows(X, classes.values[np.concatenate([codes for _, codes in parts])])


def _parquet_pieces(table: ParquetTable) -> Iterator[ParquetTable]:
    for path in table.files:
        file = open_parquet(path)
        sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        file.close()
        for groups in _runs(sizes):
            yield table.piece(path, groups)


def _runs(sizes: Sequence[int]) -> Iterator[list[int]]:
    """Numbers of neighbouring row groups, with about `_PIECE_ROWS` rows together.

    >>> list(_runs([300_000, 300_000, 300_000]))
    [[0, 1], [2]]
    """
    run: list[int] = []
    rows = 0
    for number, size in enumerate(sizes):
        run.append(number)
        rows += size
        if rows >= _PIECE_ROWS:
            yield run
            run, rows = [], 0
    if run:
        yield run
