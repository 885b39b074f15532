"""Reading windows of rows, each made of pieces of row groups, into arrays."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cavity.errors import SourceError
from cavity.sources.parquet_schema import Columns, import_pyarrow
from cavity.sources.shuffling import Piece, Strand, Window
from cavity.sources.stores import Group, OpenStore, Store
from cavity.typing import Array, IntArray

_BATCH_BYTES = 2_000_000
_OPEN_FILES = 16


@dataclass(frozen=True)
class WindowRows:
    """The rows of a window, read."""

    index: IntArray
    """[w]: row numbers in the source."""
    X: Array
    """[w, d]"""
    weight: Array | None
    """[w]"""


def read_windows(
    windows: Iterable[Window],
    groups: Sequence[Group],
    columns: Columns,
    store: Store,
    row_numbers: np.dtype[Any],
) -> Generator[WindowRows, None, None]:
    """The rows of each window. A strand is read on where its last piece ended: nothing is read twice."""
    files = store.opened(_OPEN_FILES)
    readers: dict[Strand, _Reader] = {}
    try:
        for window in windows:
            size = sum(piece.stop - piece.start for piece in window)
            rows = WindowRows(
                np.empty(size, row_numbers),
                np.empty((size, len(columns.features)), columns.dtype),
                None if columns.weight is None else np.empty(size),
            )
            end = 0
            for piece in window:
                begin, end = end, end + piece.stop - piece.start
                group = groups[piece.strand.group]
                rows.index[begin:end] = np.arange(group.first + piece.start, group.first + piece.stop)
                _read_piece(piece, group, rows, slice(begin, end), readers, files, columns)
            yield rows
            del rows
    finally:
        readers.clear()
        files.close()
        pyarrow, _ = import_pyarrow()
        pyarrow.default_memory_pool().release_unused()  # it would keep what decoding took


def _read_piece(
    piece: Piece,
    group: Group,
    rows: WindowRows,
    part: slice,
    readers: dict[Strand, _Reader],
    files: OpenStore,
    columns: Columns,
) -> None:
    reader = readers.pop(piece.strand, None) or _Reader(files, group, columns, piece.start)
    reader.fill(rows.X[part], None if rows.weight is None else rows.weight[part])
    if piece.stop < piece.strand.stop:
        readers[piece.strand] = reader


class _Reader:
    """Features and weights of a row group from row `start` on."""

    def __init__(self, files: OpenStore, group: Group, columns: Columns, start: int) -> None:
        self._group = group
        self._columns = columns
        row_bytes = columns.dtype.itemsize * len(columns.features)
        size = int(np.clip(_BATCH_BYTES // row_bytes, 1_024, 65_536))
        names = [*columns.features, *([] if columns.weight is None else [columns.weight])]
        self._batches = files.batches(group, names, size)
        self._rest: Any = None
        while start > 0:  # rows before the start can only be decoded and dropped
            start -= len(self._take(start))

    def fill(self, X: Array, weight: Array | None) -> None:
        """Fill X [t, d] and weight [t] with the next t rows."""
        done = 0
        while done < len(X):
            batch = self._take(len(X) - done)
            part = slice(done, done + len(batch))
            for j, name in enumerate(self._columns.features):
                X[part, j] = numbers(batch.column(name))
            if weight is not None:
                weight[part] = numbers(batch.column(self._columns.weight))
            done = part.stop
        check_finite(X, self._group, self._columns.features)

    def _take(self, most: int) -> Any:
        """The next rows of a record batch, at most so many."""
        batch = next(self._batches, None) if self._rest is None else self._rest
        if batch is None:
            raise SourceError(f"{self._group}: has fewer rows than its footer says; the file is damaged")
        self._rest = batch.slice(most) if len(batch) > most else None
        return batch.slice(0, most)


def check_finite(X: Array, group: Group, names: Sequence[str]) -> None:
    """Refuse NaN and infinite values in X [t, d], rows of a group with columns of those names."""
    finite = np.isfinite(X)
    if finite.all():
        return
    j = int(np.argmin(finite.all(axis=0)))
    raise SourceError(
        f"{group}: column {names[j]!r} has at least {np.count_nonzero(~finite[:, j])} NaN or infinite "
        "values; impute them or drop their rows"
    )


def numbers(column: Any) -> Any:
    """The values of a numeric Arrow column as an array."""
    pyarrow, _ = import_pyarrow()
    if pyarrow.types.is_decimal(column.type):
        column = column.cast(pyarrow.float64())
    return column.to_numpy(zero_copy_only=False)
