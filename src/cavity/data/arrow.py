"""Numeric tables as sources: Parquet files beyond memory, and Arrow tables in memory."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Generator, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeGuard

import numpy as np
from numpy.typing import ArrayLike

from cavity.data.arrays import ArraySource
from cavity.data.labels import LabelScan
from cavity.data.layout import (
    ColumnRoles,
    TableLayout,
    add_labels,
    column_values,
    column_weights,
    find_columns,
    layout_of,
    scan_target,
    without_nulls,
)
from cavity.data.locations import FEATHER, PARQUET, find_files, hive_keys
from cavity.data.parts import (
    FilePart,
    PartReader,
    import_arrow,
    parts_of_dataset,
    parts_of_files,
)
from cavity.data.shuffle import (
    RowGroupSlice,
    Window,
    WindowPart,
    balanced,
    equal_windows,
    interleaved,
    read_ahead,
    row_group_slices,
    tiled_windows,
    whole_groups,
)
from cavity.data.source import (
    NO_SETS,
    Block,
    LoadedBlock,
    RawRows,
    Source,
    batch_count,
    even_parts,
    row_number_type,
    shuffled,
)
from cavity.data.weights import check_total_weight
from cavity.errors import SourceError
from cavity.typing import AnyArray, AnyDtype, Array, InputRows, IntArray

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.dataset import Dataset

_BATCH_BYTES = 2_000_000
"""Bytes of the record batches that are read at a time."""
_OPEN_FILES = 16
"""Files that are kept open at a time."""


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
    windows: Iterable[Window], layout: TableLayout, row_numbers: AnyDtype
) -> Generator[WindowRows, None, None]:
    """The rows of each window; every slice of a row group is read once, from window to window."""
    columns, groups = layout.columns, layout.groups
    files = layout.reader(_OPEN_FILES)
    readers: dict[RowGroupSlice, _SliceReader] = {}
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
                group = groups[piece.row_slice.group]
                rows.index[begin:end] = np.arange(group.first + piece.start, group.first + piece.stop)
                _read_piece(piece, group, rows, slice(begin, end), readers, files, columns)
            yield rows
            del rows
    finally:
        readers.clear()
        files.close()
        import_arrow()[0].default_memory_pool().release_unused()  # it would keep what decoding took


def _read_piece(
    piece: WindowPart,
    group: FilePart,
    rows: WindowRows,
    part: slice,
    readers: dict[RowGroupSlice, _SliceReader],
    files: PartReader,
    columns: ColumnRoles,
) -> None:
    reader = readers.pop(piece.row_slice, None) or _SliceReader(files, group, columns, piece.start)
    reader.fill(rows.X[part], None if rows.weight is None else rows.weight[part])
    if piece.stop < piece.row_slice.stop:
        readers[piece.row_slice] = reader


class _SliceReader:
    """Features and weights of a row group from row `start` on."""

    def __init__(self, files: PartReader, group: FilePart, columns: ColumnRoles, start: int) -> None:
        self._group = group
        self._columns = columns
        row_bytes = columns.dtype.itemsize * len(columns.features)
        size = int(np.clip(_BATCH_BYTES // row_bytes, 1_024, 65_536))
        names = [*columns.features, *([] if columns.weight is None else [columns.weight])]
        self._batches = (
            without_nulls(group, names, batch) for batch in files.batches(group, names, size)
        )
        self._rest: pa.RecordBatch | None = None
        while start > 0:  # rows before the start must be decoded to be skipped
            start -= len(self._take(start))

    def fill(self, X: Array, weight: Array | None) -> None:
        """Fill X [t, d] and weight [t] with the next t rows."""
        done = 0
        while done < len(X):
            batch = self._take(len(X) - done)
            part = slice(done, done + len(batch))
            for j, name in enumerate(self._columns.features):
                X[part, j] = column_values(batch.column(name))
            if weight is not None:
                weight[part] = column_values(batch.column(self._columns.weight))
            done = part.stop
        check_finite(X, self._group, self._columns.features)

    def _take(self, most: int) -> pa.RecordBatch:
        """The next rows of the current record batch, at most `most` of them."""
        batch = next(self._batches, None) if self._rest is None else self._rest
        if batch is None:
            raise SourceError(f"{self._group}: has fewer rows than its footer says; the file is damaged")
        self._rest = batch.slice(most) if len(batch) > most else None
        return batch.slice(0, most)


def check_finite(X: Array, place: object, names: Sequence[str]) -> None:
    """Raise for NaN and infinite values in X [t, d], whose columns have these names."""
    finite = np.isfinite(X)
    if finite.all():
        return
    j = int(np.argmin(finite.all(axis=0)))
    raise SourceError(
        f"{place}: column {names[j]!r} has at least {np.count_nonzero(~finite[:, j])} NaN or infinite "
        "values; impute them or drop their rows"
    )


BUFFER_ROWS = 200_000
"""Most rows of the shuffle buffer, unless BUFFER_GROUPS row groups have more."""
BUFFER_BYTES = 48_000_000
"""Most bytes of the shuffle buffer. There are two: the next is filled while this one is used."""
BUFFER_GROUPS = 4
"""Row groups for which the buffer may have more than BUFFER_ROWS rows, so that they are mixed."""
BUFFER_GROUPS_BYTES = 16_000_000
"""Most bytes of a buffer that was enlarged for this many row groups."""
_READER_BYTES = 32_000_000
"""Most bytes that the readers of all open row groups may hold together."""
_IN_ORDER_BYTES = 4_000_000
"""Bytes of a window in a pass in order; three windows are in memory at a time."""


@dataclass(frozen=True)
class _WindowBlock:
    """Some rows of a window."""

    index: IntArray
    positions: IntArray
    """Positions of the rows in the window."""
    window: WindowRows
    codes: IntArray
    """Class codes [n] of all rows of the source."""

    def load(self) -> RawRows:
        """Gather the rows."""
        weight = self.window.weight
        return RawRows(
            self.window.X[self.positions],
            self.codes[self.index],
            None if weight is None else weight[self.positions],
        )


class ParquetSource(Source):
    """Rows of a Parquet file, or of all Parquet files in a folder in the order of their names.

    Opening scans the footers and the target column; the features are read in every pass, row group by
    row group, while the rows before are used. Memory does not grow with the number of rows except for
    one byte a row, its label.

    Minibatches are shuffled in a buffer of `buffer_rows` rows (200,000 for tables that are not wide),
    filled from up to eight row groups at a time, in a random order of all of them.

    Parameters
    ----------
    path
        A Parquet or Feather file, a folder or pattern of such files with the same columns, or a hive
        folder, as a path or as a URL that fsspec or pyarrow knows (``s3://bucket/flights``); or a
        `pyarrow.dataset.Dataset` of any format.
    target
        Name of the column with the classes: integers, booleans or strings.
    columns
        Names of the feature columns, numeric or boolean. By default all others; an index that pandas
        wrote into the file is not a feature.
    weight
        Name of a column that tells how often each row counts.
    classes
        All class values that can occur. By default those that do, two at least.

    Examples
    --------
    >>> import tempfile, pyarrow, pyarrow.parquet
    >>> table = pyarrow.table({"age": [31.0, 47.0, 52.0], "delayed": ["no", "yes", "no"]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pyarrow.parquet.write_table(table, f"{folder}/flights.parquet")
    ...     source = ParquetSource(folder, "delayed")
    ...     rows = next(iter(source.blocks(2))).load()
    >>> source.n_rows, source.classes, source.feature_names
    (3, array(['no', 'yes'], dtype='<U3'), array(['age'], dtype=object))
    >>> rows.X.tolist(), rows.labels.tolist()
    ([[31.0], [47.0]], [0, 1])
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | Dataset,
        target: str,
        *,
        columns: Sequence[str] | None = None,
        weight: str | None = None,
        classes: ArrayLike | None = None,
    ) -> None:
        self.path = path
        name: object = path
        schema: pa.Schema | None = None
        if is_dataset(path):
            name, parts, schema = "the dataset", parts_of_dataset(path), path.schema
        else:
            files = find_files(path, (PARQUET, FEATHER))
            parts = parts_of_files(files, [hive_keys(path, file) for file in files])
        self._layout = layout_of(parts, schema, target, columns, weight)
        self._scan = scan_target(self._layout, name, target, classes)
        self._group_rows: list[int] = [group.rows for group in self._layout.groups]
        self.classes: AnyArray = self._scan.classes
        self.labels: IntArray = self._scan.codes
        self.is_checked = type(self) is ParquetSource  # rows are checked as they are read
        self.feature_names = np.array(self._layout.columns.features, dtype=object)
        self.n_rows = sum(self._group_rows)
        self.n_features = len(self.feature_names)
        self.dtype = self._layout.columns.dtype
        self.total_weight = float(self.class_totals.sum())

    @property
    def class_totals(self) -> Array:
        """Total weight of each class [C]."""
        return self._scan.class_totals

    @property
    def arrangement(self) -> str:
        """What the order of minibatches depends on, besides seed, size and number of rows."""
        sizes = hashlib.sha256(repr(self._group_rows).encode()).hexdigest()[:8]
        return (
            f"{len(self._group_rows)} row groups ({sizes}), {self._n_open} read at a time into buffers "
            f"of {self.buffer_rows} rows"
        )

    @property
    def _n_open(self) -> int:
        return int(np.clip(_READER_BYTES // self._layout.reader_bytes, 2, 8))

    @property
    def buffer_rows(self) -> int:
        """Rows that are in memory and shuffled together at most."""
        groups = min(BUFFER_GROUPS * max(self._group_rows), BUFFER_GROUPS_BYTES // self._row_bytes)
        return max(1_024, min(max(BUFFER_ROWS, groups), BUFFER_BYTES // self._row_bytes))

    @property
    def _row_bytes(self) -> int:
        return self.dtype.itemsize * self.n_features + 16  # with row number, position and weight

    def blocks(self, size: int) -> Generator[Block, None, None]:
        """All rows in order, the next ones being read while these are used."""
        sizes = tiled_windows(self.n_rows, _IN_ORDER_BYTES // self._row_bytes, size)
        in_order = interleaved(whole_groups(self._group_rows), sizes, n_open=1)
        for window in read_ahead(self._read(in_order), depth=2):
            first = int(window.index[0])
            for i in range(0, len(window.X), size):
                tile = slice(i, min(i + size, len(window.X)))
                index = slice(first + tile.start, first + tile.stop)
                weight = None if window.weight is None else window.weight[tile]
                yield LoadedBlock(index, RawRows(window.X[tile], self._scan.codes[index], weight))
            del window

    def batches(self, size: int, rng: np.random.Generator, skip: int = 0) -> Iterator[Block]:
        """All rows once, shuffled; buffers that are skipped as a whole are not read."""
        cut = row_group_slices(self._group_rows, wanted=2 * self._n_open)
        order = [cut[i] for i in rng.permutation(len(cut))]
        sizes = equal_windows(self.n_rows, self.buffer_rows, size)
        seeds = rng.integers(2**63, size=len(sizes))
        first = 0
        while first < len(sizes) and skip >= batch_count(sizes[first], size):
            skip -= batch_count(sizes[first], size)
            first += 1
        windows = interleaved(order, sizes, balanced(len(cut), self._n_open))
        return self._batches(windows[first:], seeds[first:], size, skip)

    def _batches(
        self, windows: list[Window], seeds: IntArray, size: int, skip: int
    ) -> Generator[Block, None, None]:
        for window, order in read_ahead(self._read_shuffled(windows, seeds)):
            for part in even_parts(len(order), batch_count(len(order), size))[skip:]:
                # Sorted, to gather forwards; the set of rows stays random.
                positions = np.sort(order[part])
                yield _WindowBlock(window.index[positions], positions, window, self._scan.codes)
            skip = 0
            del window, order

    def leading(self, n_features: int) -> ParquetSource:
        """The same rows with the first feature columns alone; the others are not read."""
        source = copy(self)
        columns = self._layout.columns
        columns = replace(columns, features=columns.features[:n_features])
        source._layout = replace(self._layout, columns=columns)
        source.n_features, source.feature_sets = n_features, NO_SETS
        names = self.feature_names
        source.feature_names = None if names is None else names[:n_features]
        return source

    def take(self, numbers: IntArray) -> RawRows:
        """The rows with these numbers [k], in this order; only windows that have some are read."""
        wanted, places = np.unique(numbers, return_inverse=True)
        sizes = tiled_windows(self.n_rows, _IN_ORDER_BYTES // self._row_bytes, 1)
        bounds = np.searchsorted(wanted, np.cumsum([0, *sizes]))
        in_order = interleaved(whole_groups(self._group_rows), sizes, n_open=1)
        chosen = [window for window, n in zip(in_order, np.diff(bounds), strict=True) if n]
        X = np.empty((len(wanted), self.n_features), self.dtype)
        weight = None if self._layout.columns.weight is None else np.empty(len(wanted))
        for window in read_ahead(self._read(chosen)):
            low, high = np.searchsorted(wanted, [window.index[0], window.index[-1] + 1])
            positions = wanted[low:high] - window.index[0]
            X[low:high] = window.X[positions]
            if weight is not None and window.weight is not None:
                weight[low:high] = window.weight[positions]
        rows = RawRows(X, self._scan.codes[wanted], weight)
        is_sorted = len(wanted) == len(numbers) and bool((places[1:] > places[:-1]).all())
        return rows if is_sorted else rows.take(places)

    def _read(self, windows: list[Window]) -> Generator[WindowRows, None, None]:
        return read_windows(windows, self._layout, row_number_type(self.n_rows))

    def _read_shuffled(
        self, windows: list[Window], seeds: IntArray
    ) -> Generator[tuple[WindowRows, IntArray], None, None]:
        for window, seed in zip(self._read(windows), seeds, strict=True):
            yield window, shuffled(len(window.X), np.random.default_rng(seed))
            del window


def is_dataset(X: object) -> TypeGuard[Dataset]:
    """Whether X is a `pyarrow.dataset.Dataset`."""
    module = sys.modules.get("pyarrow.dataset")
    return module is not None and isinstance(X, module.Dataset)


def is_arrow_stream(X: object) -> bool:
    """Whether X is an Arrow stream, whose record batches can be read only once."""
    module = sys.modules.get("pyarrow")
    return module is not None and isinstance(X, module.RecordBatchReader)


def is_table(X: object) -> bool:
    """Whether X is an Arrow table or record batches, or has Arrow's C interface (polars, pandas)."""
    if isinstance(X, (list, tuple)):
        return bool(X) and all(hasattr(part, "__arrow_c_array__") for part in X)
    return hasattr(X, "__arrow_c_stream__") or hasattr(X, "__arrow_c_array__")


def table_source(X: InputRows, target: str, weight: str | None = None) -> ArraySource:
    """The rows of a table as a source; target and weight are columns of it.

    >>> import pyarrow
    >>> table = pyarrow.table({"age": [31.0, 47.0, 52.0], "delayed": ["no", "yes", "no"]})
    >>> source = table_source(table, "delayed")
    >>> source.X.tolist(), source.labels.tolist(), source.classes.tolist()
    ([[31.0], [47.0], [52.0]], [0, 1, 0], ['no', 'yes'])
    """
    name = f"the {type(X).__name__}"
    table = _as_table(X, name)
    used = find_columns(table.schema, name, target, None, weight)
    if table.num_rows == 0:
        raise SourceError(f"{name}: has no rows")
    rows = np.empty((table.num_rows, len(used.features)), used.dtype)
    labels = LabelScan(target, name)
    codes, weights = [], []
    first = 0
    for number, batch in enumerate(table.to_batches()):
        part = f"{name}, record batch {number}"
        without_nulls(part, used.used, batch)
        inside = rows[first : first + len(batch)]
        for j, column in enumerate(used.features):
            inside[:, j] = column_values(batch.column(column))
        check_finite(inside, part, used.features)
        some = column_weights(batch, weight, part)
        weights += [] if some is None else [some]
        codes.append(add_labels(labels, batch.column(target), some, part))
        first += len(batch)
    found = labels.finish()
    with np.errstate(over="ignore"):
        check_total_weight(float(found.totals.sum()), f"the weight {weight!r}", name)
    return ArraySource(
        rows,
        labels.sorted(np.concatenate(codes)),
        np.concatenate(weights) if weights else None,
        classes=found.values,
        feature_names=used.features,
        is_checked=True,
    )


def _as_table(X: InputRows, name: str) -> pa.Table:
    pyarrow, _ = import_arrow()
    try:
        if isinstance(X, (list, tuple)):
            return pyarrow.Table.from_batches([pyarrow.record_batch(part) for part in X])
        if isinstance(X, pyarrow.RecordBatchReader):
            return X.read_all()
        return pyarrow.table(X)
    except (TypeError, pyarrow.ArrowException) as error:
        raise SourceError(f"{name}: cannot be read as an Arrow table ({error})") from error
