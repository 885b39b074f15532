"""Opening Parquet files and reading columns of their row groups, with errors that name the place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from cavity.errors import SourceError
from cavity.sources.denied import permitted
from cavity.sources.locations import File, RemoteFile
from cavity.sources.parquet_schema import import_pyarrow
from cavity.sources.stores import Group, without_nulls

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
        with permitted(path):
            status = path.stat()
        return cls(status.st_size, status.st_mtime_ns)


def open_parquet(path: File) -> Any:
    """A `pyarrow.parquet.ParquetFile` that streams its row groups."""
    pyarrow, parquet = import_pyarrow()
    remote = isinstance(path, RemoteFile)
    try:
        with permitted(path):
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
