"""The rows of a table as Dask arrays: each worker reads and encodes pieces of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cavity.errors import SourceError
from cavity.sources.locations import File
from cavity.sources.parquet_files import open_parquet
from cavity.tables.csv_table import CsvTable
from cavity.tables.labels import Classes
from cavity.tables.opening import Table
from cavity.tables.parquet_table import ParquetTable
from cavity.tables.preprocessor import TablePreprocessor
from cavity.tables.training_rows import encoded_rows

_PIECE_ROWS = 500_000


class Rows(NamedTuple):
    """Features [t, d], class values [t] and, if there are any, weights [t]."""

    X: Any
    y: Any
    sample_weight: Any


def dask_rows(
    table: Table, preprocessor: TablePreprocessor, classes: Classes, weight: str | None = None
) -> Rows:
    """Dask arrays of the features [n, d] and class values [n] of the rows that have a target.

    Parquet files are cut between row groups; a text file is one piece, for its rows cannot be counted
    without reading it.
    """
    import dask
    import dask.array

    if isinstance(table, ParquetTable):
        tables: list[Table] = list(_parquet_pieces(table))
    elif isinstance(table, CsvTable):
        files = [_from_anywhere(path) for path in table.files]
        tables = [CsvTable([path], str(path), table.delimiter) for path in files]
    else:
        raise SourceError("a cluster reads files; write the data frame to Parquet first")
    encode = dask.delayed(_encoded)
    rows = [encode(piece, preprocessor, classes, weight) for piece in tables]
    dtype, d = np.dtype(preprocessor.dtype_), preprocessor.n_features_out_

    def joined(parts: list[Any], shape: tuple[float, ...], kind: Any) -> Any:
        arrays = [dask.array.from_delayed(part, shape=shape, dtype=kind) for part in parts]
        return dask.array.concatenate(arrays, allow_unknown_chunksizes=True)

    return Rows(
        joined([r.X for r in rows], (np.nan, d), dtype),
        joined([r.y for r in rows], (np.nan,), classes.values.dtype),
        None
        if weight is None
        else joined([r.sample_weight for r in rows], (np.nan,), np.dtype(np.float64)),
    )


def _encoded(
    table: Table, preprocessor: TablePreprocessor, classes: Classes, weight: str | None
) -> Rows:
    """Read and encode a piece; runs on a worker."""
    X, codes, weights = zip(*encoded_rows(table, preprocessor, classes, weight), strict=True)
    return Rows(
        np.concatenate(X),
        classes.values[np.concatenate(codes)],
        None if weight is None else np.concatenate(weights),
    )


def _parquet_pieces(table: ParquetTable) -> Iterator[ParquetTable]:
    for path in map(_from_anywhere, table.files):
        file = open_parquet(path)
        sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        file.close()
        for groups in _runs(sizes):
            yield table.piece(path, groups)


def _from_anywhere(path: File) -> File:
    """The file by a path that does not depend on the folder in which a worker was started."""
    return path.absolute() if isinstance(path, Path) else path


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
