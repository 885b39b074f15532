"""What a table on disk is to its reader: groups of rows that are read one after the other.

Opening Parquet files and reading columns of their row groups, with errors that name the place.

Parquet files as one table: their row groups, in the order of the files.

A pyarrow dataset as a table: its fragments, cut into row groups where they have any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from cavity.data.locations import (
    Columns,
    File,
    RemoteFile,
    check_no_more_columns,
    check_same_schema,
    explain_permission_error,
    find_columns,
    import_pyarrow,
)
from cavity.errors import SourceError

PAGE_BYTES = 2**20
"""Of a page, by pyarrow's default: what a reader has to hold of each column."""


class Group(Protocol):
    """Some rows that lie together; as text, where."""

    @property
    def first(self) -> int:
        """Number of the first row in the source."""
        ...

    @property
    def rows(self) -> int:
        """How many there are."""
        ...


class Footers(NamedTuple):
    """What is known of a table before a row of it is read."""

    columns: Columns
    groups: list[Any]
    """`Group`s, none of them empty."""
    reader_bytes: int
    """What reading one group holds in memory, about."""


class OpenStore(Protocol):
    """A store that is being read, by one thread."""

    def batches(self, group: Any, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """Arrow record batches of at most `rows` rows: some columns of one group, in order."""
        ...

    def close(self) -> None:
        """Let go of what is open."""
        ...


class Store(Protocol):
    """A table on disk."""

    def footers(self, target: str, columns: Sequence[str] | None, weight: str | None) -> Footers:
        """Read and check all but the rows."""
        ...

    def opened(self, most: int) -> OpenStore:
        """Open it for reading, with at most so many files open at a time."""
        ...


def without_nulls(group: Group, columns: Sequence[str], batch: Any) -> Any:
    """The record batch, if none of these columns has null values."""
    for name in columns:
        # Counted here and not in the footer: its statistics are optional.
        check_nulls(group, name, batch.column(name).null_count, at_least=True)
    return batch


def check_nulls(group: Group, column: str, count: int, *, at_least: bool = False) -> None:
    """Refuse null values."""
    if count:
        raise SourceError(
            f"{group}: column {column!r} has {'at least ' if at_least else ''}{count} null values; "
            "impute them or drop their rows"
        )


STREAM_BYTES = 65_536
"""Read at a time from each column: without it pyarrow holds the whole of a row group, compressed."""
_REMOTE_STREAM_BYTES = 2**20
"""The same far away, where a request costs more than its bytes."""


class RowGroup(NamedTuple):
    """Where some rows lie."""

    path: File
    number: int
    """Of the row group in its file."""
    first: int
    """Number of its first row in the source."""
    rows: int

    def __str__(self) -> str:
        return f"{self.path}, row group {self.number}"


@dataclass(frozen=True)
class Stamp:
    """By which a file is known to be the one that was scanned."""

    size: int
    modified: int

    @classmethod
    def of(cls, path: File) -> Stamp:
        """The stamp of a file as it is now."""
        if isinstance(path, RemoteFile):
            return cls(*path.size_and_time())
        with explain_permission_error(path):
            status = path.stat()
        return cls(status.st_size, status.st_mtime_ns)


def open_parquet(path: File) -> Any:
    """A `pyarrow.parquet.ParquetFile` that streams its row groups."""
    pyarrow, parquet = import_pyarrow()
    remote = isinstance(path, RemoteFile)
    try:
        with explain_permission_error(path):
            return parquet.ParquetFile(
                path.path if isinstance(path, RemoteFile) else path,
                filesystem=path.filesystem if isinstance(path, RemoteFile) else None,
                buffer_size=_REMOTE_STREAM_BYTES if remote else STREAM_BYTES,
                pre_buffer=False,
                page_checksum_verification=True,
            )
    except FileNotFoundError as error:
        raise SourceError(f"{path}: there is no such file") from error
    except (OSError, pyarrow.ArrowException) as error:
        raise SourceError(
            f"{path}: cannot be opened as a Parquet file ({_line(error)}); if it is one, it was cut off "
            "or damaged: write it again"
        ) from error


@contextmanager
def reading(group: Group | str, damaged: Callable[[], str | None] = lambda: None) -> Iterator[None]:
    """Turn what Arrow raises on a damaged file into an error that names the place.

    `damaged` finds the column that cannot be read, if it is one alone.
    """
    pyarrow, _ = import_pyarrow()
    try:
        yield
    except pyarrow.ArrowMemoryError:
        raise
    except FileNotFoundError as error:
        raise SourceError(f"{group}: cannot be read, for there is no such file any more") from error
    except (OSError, pyarrow.ArrowException) as error:
        name, words = damaged(), _line(error)
        place = f"{group}" if name is None else f"{group}, column {name!r}"
        way_out = "the file is damaged: write it again or leave it out"
        if "conversion error" in words:  # of text, whose types were guessed from the first file
            way_out = (
                "give the dataset the types of its columns: pyarrow.dataset.dataset(..., schema=...)"
            )
        raise SourceError(f"{place}: cannot be read ({words}); {way_out}") from error


def _line(error: BaseException) -> str:
    """What Arrow says, on one line."""
    return " ".join(str(error).split())


def damaged_column(columns: Sequence[str], batches: Callable[[list[str]], Iterator[Any]]) -> str | None:
    """The first of the columns that cannot be read alone, given what reads some of them."""
    for name in columns:
        try:
            for _ in batches([name]):
                pass
        except Exception:  # whatever it is, the whole has failed already
            return name
    return None


class OpenFiles:
    """The files that are in use, the oldest dropped when there are too many; for one thread."""

    def __init__(self, stamps: dict[File, Stamp], most: int) -> None:
        self._stamps = stamps
        self._most = most
        self._files: dict[File, Any] = {}

    def batches(self, group: RowGroup, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """Arrow record batches of at most `rows` rows: some columns of one row group, in order."""
        file = self._get(group.path)

        def read(names: list[str]) -> Iterator[Any]:
            batches: Iterator[Any] = file.iter_batches(
                rows, row_groups=[group.number], columns=names, use_threads=False
            )
            return batches

        def damaged() -> str | None:
            return damaged_column(columns, read)

        with reading(group, damaged):
            batches = read(list(columns))
        while True:
            with reading(group, damaged):
                batch = next(batches, None)
            if batch is None:
                return
            yield without_nulls(group, columns, batch)

    def _get(self, path: File) -> Any:
        """An open file that is still as it was when it was scanned."""
        if path in self._files:
            self._files[path] = self._files.pop(path)
            return self._files[path]
        file = open_parquet(path)
        if Stamp.of(path) != self._stamps[path]:
            raise SourceError(f"{path}: has changed since the source was opened; open it again")
        if len(self._files) >= self._most:
            # Not closed here: a row group of it may still be read from; it closes with its last reader.
            del self._files[next(iter(self._files))]
        self._files[path] = file
        return file

    def close(self) -> None:
        """Close them all."""
        for file in self._files.values():
            file.close()
        self._files.clear()


@dataclass(frozen=True)
class ParquetFiles:
    """Files with the same columns, as they were when they were stamped."""

    stamps: dict[File, Stamp]

    @classmethod
    def of(cls, files: Sequence[File]) -> ParquetFiles:
        """Files as they are now."""
        return cls({file: Stamp.of(file) for file in files})

    def footers(self, target: str, columns: Sequence[str] | None, weight: str | None) -> Footers:
        """Read the footers of all files and check that they agree."""
        files = list(self.stamps)
        groups: list[RowGroup] = []
        first = used = None
        n_rows = reader_bytes = 0
        for path in files:
            with open_parquet(path) as file:
                schema = file.schema_arrow
                if used is None:
                    first, used = schema, find_columns(schema, path, target, columns, weight)
                check_same_schema(schema, path, first, files[0], used)
                if columns is None:
                    check_no_more_columns(schema, path, first, files[0])
                for number in range(file.num_row_groups):
                    metadata = file.metadata.row_group(number)
                    group = RowGroup(path, number, n_rows, metadata.num_rows)
                    if group.rows > 0:
                        groups.append(group)
                        n_rows += group.rows
                        reader_bytes = max(reader_bytes, _check_footer(metadata, group, used))
        assert used is not None
        return Footers(used, groups, reader_bytes)

    def opened(self, most: int) -> OpenFiles:
        """Open them for reading."""
        return OpenFiles(self.stamps, most)


def _check_footer(metadata: Any, group: RowGroup, used: Columns) -> int:
    """Refuse nulls that the statistics tell of; returns the bytes that reading the row group holds."""
    names = {*used.features, used.target, used.weight}
    held = 0
    for column in map(metadata.column, range(metadata.num_columns)):
        if column.path_in_schema in names:
            held += min(PAGE_BYTES, column.total_uncompressed_size)
            if column.is_stats_set and column.statistics.has_null_count:
                check_nulls(group, column.path_in_schema, column.statistics.null_count)
    return max(held, 1)


class FragmentRows(NamedTuple):
    """Where some rows lie."""

    fragment: Any
    place: str
    first: int
    rows: int

    def __str__(self) -> str:
        return self.place


@dataclass(frozen=True)
class DatasetFragments:
    """A `pyarrow.dataset.Dataset`: of any format, in any file system, partitioned or not."""

    dataset: Any

    def footers(self, target: str, columns: Sequence[str] | None, weight: str | None) -> Footers:
        """Columns of the dataset's schema, partitions among them, and the rows of its fragments."""
        used = find_columns(self.dataset.schema, "the dataset", target, columns, weight)
        groups: list[FragmentRows] = []
        n_rows = 0
        for fragment, place, rows in self._fragments():
            if rows > 0:
                groups.append(FragmentRows(fragment, place, n_rows, rows))
                n_rows += rows
        return Footers(used, groups, PAGE_BYTES * len(used.features))

    def opened(self, most: int) -> DatasetFragments:
        """The dataset opens and closes its files itself."""
        return self

    def batches(self, group: FragmentRows, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """Arrow record batches of at most `rows` rows: some columns of one group, in order."""

        def read(names: list[str]) -> Iterator[Any]:
            scanner = group.fragment.scanner(
                schema=self.dataset.schema,
                columns=names,
                batch_size=rows,
                batch_readahead=1,
                fragment_readahead=1,
                fragment_scan_options=_scan_options(group.fragment),
                use_threads=False,
            )
            batches: Iterator[Any] = scanner.to_batches()
            return batches

        def damaged() -> str | None:
            return damaged_column(columns, read)

        with reading(group, damaged):
            batches = read(list(columns))
        while True:
            with reading(group, damaged):
                batch = next(batches, None)
            if batch is None:
                return
            if len(batch):
                yield without_nulls(group, columns, batch)

    def close(self) -> None:
        """Nothing is left open."""

    def _fragments(self) -> Iterator[tuple[Any, str, int]]:
        """Row groups of Parquet files, whole fragments of other formats, with their names and rows."""
        try:
            fragments = list(self.dataset.get_fragments())
        except ValueError as error:
            raise SourceError(
                f"the dataset cannot be read piece by piece ({error}); filter it before: pass "
                "dataset.to_table(), or write it with pyarrow.dataset.write_dataset"
            ) from error
        for number, fragment in enumerate(fragments):
            place = getattr(fragment, "path", None) or f"the dataset, fragment {number}"
            if not hasattr(fragment, "split_by_row_group"):
                with reading(place):
                    rows = fragment.count_rows()
                yield fragment, place, rows
                continue
            with reading(place):
                parts = fragment.split_by_row_group()
            for part in parts:
                group = part.row_groups[0]
                yield part, f"{place}, row group {group.id}", group.num_rows


def _scan_options(fragment: Any) -> Any:
    """For Parquet: columns are streamed instead of held as a whole."""
    import_pyarrow()
    from pyarrow import dataset

    if not isinstance(fragment, dataset.ParquetFileFragment):
        return None
    return dataset.ParquetFragmentScanOptions(
        use_buffered_stream=True, buffer_size=STREAM_BYTES, pre_buffer=False
    )
