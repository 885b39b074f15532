"""Encoded rows of a table as a source to train on: in memory if they fit, else in a temporary folder."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from cavity.data import ArraySource, ParquetSource, Source
from cavity.data.effect_learning import LearnedEffects
from cavity.data.labelled import labelled_rows
from cavity.data.labels import Classes
from cavity.data.parts import import_arrow
from cavity.data.preprocess import TablePreprocessor
from cavity.data.shuffle import read_ahead
from cavity.data.source import NO_SETS, RawRows
from cavity.data.table import FrameTable, Table
from cavity.errors import SourceError
from cavity.memory import available_bytes
from cavity.text import one_line
from cavity.typing import AnyArray, Array

MEMORY_SHARE = 0.25
"""Share of the available memory that the features of all rows may take."""
_FILE_BYTES = 400_000_000
"""Most bytes in memory of the features of a table that is not in memory itself. Beyond, memory hardly
grows with the rows, and reading them again in every epoch costs less than a tenth of the training."""
_TARGET, _WEIGHT = "(class)", "(weight)"
"""Names of the columns of labels and weights in the temporary file."""
_GROUP_ROWS = 131_072
"""Rows of a row group of the temporary file."""


def encoded_rows(
    table: Table,
    preprocessor: TablePreprocessor,
    classes: Classes,
    weight: str | None = None,
    effects: LearnedEffects | None = None,
    first: int = 0,
    out: Array | None = None,
) -> Iterator[RawRows]:
    """The rows that have a target, and a weight if there is a column of weights, chunk by chunk.

    effects: value effects, which become further features; first: number of the first row; out: [n, d],
    where the features of all n rows are written, if they are not to be in an array for each chunk.
    """
    read = preprocessor.columns_, preprocessor.typed, classes, weight, first
    d, dtype = preprocessor.n_features_out_, np.dtype(preprocessor.dtype_)
    k = 0 if effects is None else len(effects.features)

    def encoded() -> Iterator[RawRows]:
        for rows in labelled_rows(table, *read):
            t, begin = len(rows.codes), rows.first - first
            if out is not None and begin + t > len(out):
                raise _changed(table, len(out))
            X = np.empty((t, d + k), dtype) if out is None else out[begin : begin + t]
            preprocessor.encode(rows.batch, X[:, :d])
            if effects is not None:
                effects.encode(rows, X[:, d:])
            yield RawRows(X, rows.codes, rows.weight)

    return read_ahead(encoded())


def _changed(table: Table, n_rows: int) -> SourceError:
    """The error for a table whose number of rows is no longer n_rows."""
    return SourceError(
        f"{table.name} has changed while it was read: {n_rows:,} rows were expected; fit again when "
        "nothing writes to it"
    )


@contextmanager
def encoded_source(
    table: Table,
    preprocessor: TablePreprocessor,
    classes: Classes,
    *,
    weight: str | None = None,
    effects: LearnedEffects | None = None,
    max_memory: float | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> Iterator[Source]:
    """Context with a source of all encoded rows that take part in training.

    Rows that take more than `max_memory` bytes are written to a temporary folder inside `folder`, as
    Parquet files of their features. Reading these in every epoch is cheaper than encoding the table in
    every epoch, and text files could not be shuffled. By default the limit is a quarter of the available
    memory, and 400 MB for a table that is not in memory itself.

    effects: value effects, which become further features; the source has sets of features if they are
    optional.
    """
    names = preprocessor.get_feature_names_out()
    sets, reserved = NO_SETS, None
    if effects is not None:
        names, sets, reserved = effects.joined_to(names)
    n_rows, dtype = int(classes.counts.sum()), np.dtype(preprocessor.dtype_)
    needed = n_rows * len(names) * dtype.itemsize
    if max_memory is None:
        max_memory = MEMORY_SHARE * (available_bytes() or np.inf)
        if not isinstance(table, FrameTable):
            max_memory = min(max_memory, _FILE_BYTES)
    read = table, preprocessor, classes, weight, effects

    def with_sets(source: Source) -> Source:
        source.feature_sets, source.reserved = sets, reserved
        return source

    if needed <= max_memory:
        X = np.empty((n_rows, len(names)), dtype)
        yield with_sets(_in_memory(table, encoded_rows(*read, out=X), X, classes, names))
        return
    with _temporary_folder(folder, needed) as place:
        _write(encoded_rows(*read), place)
        codes = np.arange(len(classes.values))
        weights = None if weight is None else _WEIGHT
        source = ParquetSource(place, _TARGET, weight=weights, classes=codes)
        source.classes, source.feature_names = classes.values, names
        yield with_sets(source)


def _in_memory(
    table: Table, rows: Iterator[RawRows], X: Array, classes: Classes, names: AnyArray
) -> ArraySource:
    """The source of a table's rows, which are encoded into X [n, d] as they are read."""
    codes = np.empty(len(X), classes.code_type)
    weights: list[Array] = []
    first = 0
    for some in rows:
        codes[first : first + len(some.X)] = some.labels
        weights += [] if some.weight is None else [some.weight]
        first += len(some.X)
    if first != len(X):
        raise _changed(table, len(X))
    weight = np.concatenate(weights) if weights else None
    # Encoded here, finite and with known codes.
    return ArraySource(X, codes, weight, classes=classes.values, feature_names=names, is_checked=True)


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


def _write(rows: Iterator[RawRows], folder: Path) -> None:
    pa, _ = import_arrow()
    from pyarrow import parquet

    writer = None
    try:
        for X, labels, weight in rows:
            if not len(X):
                continue
            arrays = [pa.array(np.ascontiguousarray(X[:, j])) for j in range(X.shape[1])]
            columns = dict(zip(map(str, range(X.shape[1])), arrays, strict=True))
            columns[_TARGET] = pa.array(labels)
            if weight is not None:
                columns[_WEIGHT] = pa.array(weight)
            block = pa.table(columns)
            with _room_in(folder.parent):
                if writer is None:
                    path = folder / "rows.parquet"
                    writer = parquet.ParquetWriter(
                        path, block.schema, compression="lz4", use_dictionary=False
                    )
                writer.write_table(block, row_group_size=_GROUP_ROWS)
    finally:
        if writer is not None:
            with _room_in(folder.parent):
                writer.close()


@contextmanager
def _room_in(place: Path) -> Iterator[None]:
    """Turn what Arrow raises on a full disk into an error that names the folder."""
    try:
        yield
    except OSError as error:
        raise SourceError(
            f"the rows could not be written to a folder in {place} ({one_line(error)}); make room "
            "there, or set TMPDIR to another place"
        ) from error
