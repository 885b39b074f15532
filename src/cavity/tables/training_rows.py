"""The rows of a table as a source to train on: in memory if they fit, else in a folder of their own."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from cavity.errors import SourceError
from cavity.memory import available_bytes
from cavity.sources import ArraySource, ParquetSource, Source
from cavity.sources.readahead import read_ahead
from cavity.tables.arrow import import_arrow
from cavity.tables.labels import Classes
from cavity.tables.opening import Table
from cavity.tables.preprocessor import TablePreprocessor
from cavity.typing import Array, IntArray

MEMORY_SHARE = 0.25
"""Of the memory that is available, which the features of all rows may take."""
_TARGET = "(class)"
_GROUP_ROWS = 131_072


def encoded_rows(
    table: Table, preprocessor: TablePreprocessor, classes: Classes
) -> Iterator[tuple[Array, IntArray]]:
    """Features [t, d] and class codes [t] of the rows that have a target, chunk by chunk."""
    columns = [*preprocessor.columns_, classes.target]
    types = {**preprocessor.text_types(), classes.target: classes.arrow_type}

    def encoded() -> Iterator[tuple[Array, IntArray]]:
        for chunk in table.chunks(columns, types):
            codes = classes.codes(chunk.column(classes.target))
            X = preprocessor.encode(chunk)
            known = codes >= 0
            yield (X, codes) if known.all() else (X[known], codes[known])

    return read_ahead(encoded())


@contextmanager
def training_rows(
    table: Table,
    preprocessor: TablePreprocessor,
    classes: Classes,
    *,
    max_memory: float | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> Iterator[Source]:
    """A source of all rows, for as long as the context lasts.

    Rows that take more than `max_memory` bytes (by default a quarter of what is available) are written
    to a temporary folder inside `folder`, as Parquet files of their features: encoding them once and
    reading numbers in every epoch is cheaper than encoding in every epoch, and text files could not be
    shuffled.
    """
    n_rows, n_features = int(classes.counts.sum()), preprocessor.n_features_out_
    needed = n_rows * n_features * np.dtype(preprocessor.dtype_).itemsize
    if max_memory is None:
        max_memory = MEMORY_SHARE * (available_bytes() or np.inf)
    rows = encoded_rows(table, preprocessor, classes)
    names = preprocessor.get_feature_names_out()
    if needed <= max_memory:
        yield _in_memory(rows, n_rows, preprocessor, classes, names)
        return
    with _temporary_folder(folder, needed) as place:
        _write(rows, place)
        source = ParquetSource(place, _TARGET)
        source.classes, source.feature_names = classes.values, names
        yield source


def _in_memory(
    rows: Iterator[tuple[Array, IntArray]],
    n_rows: int,
    preprocessor: TablePreprocessor,
    classes: Classes,
    names: Any,
) -> ArraySource:
    X = np.empty((n_rows, preprocessor.n_features_out_), np.dtype(preprocessor.dtype_))
    codes = np.empty(n_rows, classes.code_type)
    first = 0
    for some, labels in rows:
        if first + len(some) > n_rows:
            break
        X[first : first + len(some)] = some
        codes[first : first + len(some)] = labels
        first += len(some)
    if first != n_rows:
        raise SourceError(f"the table has changed while it was read: {n_rows:,} rows were expected")
    return ArraySource(X, codes, classes=classes.values, feature_names=names)


@contextmanager
def _temporary_folder(folder: str | os.PathLike[str] | None, needed: int) -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix=".cavity-rows-", dir=folder))
    try:
        free = shutil.disk_usage(place).free
        if needed > free:
            raise SourceError(
                f"the rows take {needed:,} bytes, and {place.parent} has {free:,} left; make room "
                "there, or set TMPDIR to another place"
            )
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _write(rows: Iterator[tuple[Array, IntArray]], folder: Path) -> None:
    pa, _ = import_arrow()
    from pyarrow import parquet

    writer = None
    try:
        for X, codes in rows:
            if not len(X):
                continue
            arrays = [pa.array(np.ascontiguousarray(X[:, j])) for j in range(X.shape[1])]
            names = [*map(str, range(X.shape[1])), _TARGET]
            block = pa.Table.from_arrays([*arrays, pa.array(codes)], names=names)
            if writer is None:
                path = folder / "rows.parquet"
                writer = parquet.ParquetWriter(
                    path, block.schema, compression="lz4", use_dictionary=False
                )
            writer.write_table(block, row_group_size=_GROUP_ROWS)
    finally:
        if writer is not None:
            writer.close()
