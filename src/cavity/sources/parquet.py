"""Rows from Parquet files that need not fit in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.sources.arrow_tables import is_dataset
from cavity.sources.blocks import LoadedBlock, batch_count, even_parts, row_number_type, shuffled
from cavity.sources.dataset_store import DatasetFragments
from cavity.sources.locations import find_files
from cavity.sources.parquet_read import WindowRows, read_windows
from cavity.sources.parquet_scan import scan
from cavity.sources.parquet_store import ParquetFiles
from cavity.sources.protocol import Block, RawRows
from cavity.sources.readahead import read_ahead
from cavity.sources.shuffling import (
    Window,
    balanced,
    equal_windows,
    interleaved,
    strands,
    tiled_windows,
    whole_groups,
)
from cavity.sources.stores import Store
from cavity.typing import IntArray

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


class ParquetSource:
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
        self.feature_names = np.array(self._scan.columns.features, dtype=object)
        self.n_rows = sum(self._group_rows)
        self.n_features = len(self.feature_names)
        self.dtype = self._scan.columns.dtype
        self.class_totals = self._scan.class_totals
        self.total_weight = float(self.class_totals.sum())

    @property
    def labels(self) -> IntArray:
        """[n]: the class codes of all rows."""
        return self._scan.codes

    @property
    def arrangement(self) -> str:
        """On what the order of minibatches depends, besides seed, size and number of rows."""
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

    def sample(self, size: int, rng: np.random.Generator) -> RawRows:
        """Rows drawn at random without replacement, in one pass over those windows that have any."""
        wanted = np.sort(rng.choice(self.n_rows, size=min(size, self.n_rows), replace=False))
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
        return RawRows(X, self._scan.codes[wanted], weight)

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
