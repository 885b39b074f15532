"""Reading windows of rows, each made of pieces of row groups, into arrays.

One streaming pass over the target column: rows, classes, label codes and the checks.

Rows from Parquet files that need not fit in memory.

Arrow tables in memory, and what can be made one, as arrays.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.data.arrays import ArraySource
from cavity.data.labels import LabelScan
from cavity.data.locations import Columns, find_columns, find_files, import_pyarrow
from cavity.data.parquet_store import (
    DatasetFragments,
    Footers,
    Group,
    OpenStore,
    ParquetFiles,
    Store,
    without_nulls,
)
from cavity.data.shuffle import (
    Piece,
    Strand,
    Window,
    balanced,
    equal_windows,
    interleaved,
    read_ahead,
    strands,
    tiled_windows,
    whole_groups,
)
from cavity.data.source import (
    Block,
    LoadedBlock,
    RawRows,
    Source,
    batch_count,
    even_parts,
    row_number_type,
    shuffled,
)
from cavity.data.weights import check_total_weight, check_weights
from cavity.errors import SourceError
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


_ROWS = 2**17


@dataclass(frozen=True)
class Scan:
    """All that is known of a table on disk before its features are read."""

    columns: Columns
    groups: list[Any]
    """`Group`s of rows."""
    classes: NDArray[Any]
    codes: IntArray
    """[n] in int8, or int16 for many classes: a byte a row, and no target column to decode again."""
    class_totals: Array
    """[C]: total weight of each class."""
    reader_bytes: int
    """What reading one group holds in memory, about."""


def scan(
    store: Store,
    path: object,
    target: str,
    columns: Sequence[str] | None,
    weight: str | None,
    classes: Any,
) -> Scan:
    """Scan a table; path is what errors call it."""
    footers = store.footers(target, columns, weight)
    used, groups, reader_bytes = footers
    n_rows = sum(group.rows for group in groups)
    if n_rows == 0:
        raise SourceError(f"{path}: has no rows")
    labels = LabelScan(target, str(path), classes)
    codes = []
    for group, batch in _target_batches(store, footers):
        weights = column_weights(batch, used.weight, group)
        codes.append(add_labels(labels, batch.column(target), weights, group))
    found = labels.finish()
    with np.errstate(over="ignore"):
        check_total_weight(float(found.totals.sum()), f"the weight {used.weight!r}", path)
    if sum(map(len, codes)) != n_rows:
        raise SourceError(
            f"{path}: the target {target!r} has {sum(map(len, codes))} rows, the footers say {n_rows}; "
            "a file is damaged"
        )
    every = labels.sorted(np.concatenate(codes))
    return Scan(used, groups, found.values, every, found.totals, reader_bytes)


def add_labels(labels: LabelScan, column: Any, weights: Array | None, place: object) -> IntArray:
    """Codes [t] of the next labels, as `LabelScan.add` gives them; none may be missing."""
    codes = labels.add(column, weights, place)
    if labels.missing:
        raise SourceError(
            f"{place}: the target {labels.target!r} has the value nan; drop the rows without a label"
        )
    return codes


def _target_batches(store: Store, footers: Footers) -> Iterator[tuple[Group, Any]]:
    used = footers.columns
    names = [used.target] if used.weight is None else [used.target, used.weight]
    files = store.opened(most=1)
    try:
        for group in footers.groups:
            for batch in files.batches(group, names, _ROWS):
                yield group, batch
    finally:
        files.close()


def column_weights(batch: Any, name: str | None, place: object) -> Array | None:
    """The weights [t] in a column of a record batch, checked; None if there is no such column."""
    if name is None:
        return None
    weight = np.asarray(numbers(batch.column(name)), dtype=np.float64)
    check_weights(weight, f"the weight {name!r}", place)
    return weight


BUFFER_ROWS = 200_000
"""Rows of the shuffle buffer …"""
BUFFER_BYTES = 48_000_000
"""… if they take no more than this. The next buffer is read while this one is used: there are two."""
BUFFER_GROUPS = 4
"""More rows, to make it so many row groups …"""
BUFFER_GROUPS_BYTES = 16_000_000
"""… if that takes no more than this."""
_READER_BYTES = 32_000_000
"""What the row groups that are read at the same time may hold."""
_IN_ORDER_BYTES = 4_000_000
"""Of a window in a pass in order; three of them are in memory."""


@dataclass(frozen=True)
class _WindowBlock:
    """Some rows of a window."""

    index: IntArray
    positions: IntArray
    """In the window."""
    window: WindowRows
    codes: IntArray
    """[n]: of all rows of the source."""

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
        A file, or a folder whose *.parquet files have the same columns, as a path or as a URL that
        fsspec or pyarrow knows (``s3://bucket/flights``); or a `pyarrow.dataset.Dataset`, of Parquet or
        any other format.
    target
        Name of the column with the classes: integers, booleans or strings.
    columns
        Names of the feature columns, numeric or boolean. By default all others; an index that pandas
        wrote into the file is no feature.
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
        path: Any,
        target: str,
        *,
        columns: Sequence[str] | None = None,
        weight: str | None = None,
        classes: Any = None,
    ) -> None:
        self.path = path
        whole = is_dataset(path)
        self._store: Store = DatasetFragments(path) if whole else ParquetFiles.of(find_files(path))
        self._scan = scan(
            self._store, "the dataset" if whole else path, target, columns, weight, classes
        )
        self._group_rows: list[int] = [group.rows for group in self._scan.groups]
        self.classes: NDArray[Any] = self._scan.classes
        self.labels: IntArray = self._scan.codes
        self.is_checked = type(self) is ParquetSource  # rows are checked as they are read
        self.feature_names = np.array(self._scan.columns.features, dtype=object)
        self.n_rows = sum(self._group_rows)
        self.n_features = len(self.feature_names)
        self.dtype = self._scan.columns.dtype
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
        return int(np.clip(_READER_BYTES // self._scan.reader_bytes, 2, 8))

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
        cut = strands(self._group_rows, wanted=2 * self._n_open)
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

    def take(self, numbers: IntArray) -> RawRows:
        """The rows with these numbers [k], in this order; only windows that have some are read."""
        wanted, places = np.unique(numbers, return_inverse=True)
        sizes = tiled_windows(self.n_rows, _IN_ORDER_BYTES // self._row_bytes, 1)
        bounds = np.searchsorted(wanted, np.cumsum([0, *sizes]))
        in_order = interleaved(whole_groups(self._group_rows), sizes, n_open=1)
        chosen = [window for window, n in zip(in_order, np.diff(bounds), strict=True) if n]
        X = np.empty((len(wanted), self.n_features), self.dtype)
        weight = None if self._scan.columns.weight is None else np.empty(len(wanted))
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
        return read_windows(
            windows,
            self._scan.groups,
            self._scan.columns,
            self._store,
            row_number_type(self.n_rows),
        )

    def _read_shuffled(
        self, windows: list[Window], seeds: IntArray
    ) -> Generator[tuple[WindowRows, IntArray], None, None]:
        for window, seed in zip(self._read(windows), seeds, strict=True):
            yield window, shuffled(len(window.X), np.random.default_rng(seed))
            del window


class _Part(NamedTuple):
    """A record batch of a table, for errors."""

    name: str
    number: int
    first: int
    rows: int

    def __str__(self) -> str:
        return f"{self.name}, record batch {self.number}"


def is_dataset(X: Any) -> bool:
    """Whether X is a `pyarrow.dataset.Dataset`."""
    module = sys.modules.get("pyarrow.dataset")
    return module is not None and isinstance(X, module.Dataset)


def is_arrow_stream(X: Any) -> bool:
    """Whether X gives up its record batches once only, so that it is nothing but a table."""
    module = sys.modules.get("pyarrow")
    return module is not None and isinstance(X, module.RecordBatchReader)


def is_table(X: Any) -> bool:
    """Whether X is an Arrow table or record batches, or speaks Arrow's C interface (polars, pandas)."""
    if isinstance(X, (list, tuple)):
        return bool(X) and all(hasattr(part, "__arrow_c_array__") for part in X)
    return hasattr(X, "__arrow_c_stream__") or hasattr(X, "__arrow_c_array__")


def table_source(X: Any, target: str, weight: str | None = None) -> ArraySource:
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
        part = _Part(name, number, first, len(batch))
        without_nulls(part, [*used.features, target, *([] if weight is None else [weight])], batch)
        inside = rows[first : first + len(batch)]
        for j, column in enumerate(used.features):
            inside[:, j] = numbers(batch.column(column))
        check_finite(inside, part, used.features)
        some = column_weights(batch, weight, part)
        weights += [] if some is None else [some]
        codes.append(add_labels(labels, batch.column(target), some, part))
        first += len(batch)
    found = labels.finish()
    with np.errstate(over="ignore"):
        check_total_weight(float(found.totals.sum()), f"the weight {weight!r}", name)
    source = ArraySource(
        rows,
        labels.sorted(np.concatenate(codes)),
        np.concatenate(weights) if weights else None,
        classes=found.values,
        feature_names=used.features,
    )
    source.is_checked = True
    return source


def _as_table(X: Any, name: str) -> Any:
    pyarrow, _ = import_pyarrow()
    try:
        if isinstance(X, (list, tuple)):
            return pyarrow.Table.from_batches([pyarrow.record_batch(part) for part in X])
        if isinstance(X, pyarrow.RecordBatchReader):
            return X.read_all()
        return pyarrow.table(X)
    except (TypeError, pyarrow.ArrowException) as error:
        raise SourceError(f"{name}: cannot be read as an Arrow table ({error})") from error
