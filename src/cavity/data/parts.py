"""Parts of tables, such as files and row groups, and reading columns of them.

Parquet files are streamed by `pyarrow.parquet`, because `pyarrow.dataset` decodes whole row groups at
once. Feather files and the fragments of other datasets are read by `pyarrow.dataset`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias

from cavity.data.locations import FEATHER, File, RemoteFile, explain_permission_error, format_of
from cavity.errors import SourceError
from cavity.text import one_line

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.dataset import Dataset, Fragment
    from pyarrow.parquet import ParquetFile

Key: TypeAlias = int | str
"""The value of a key in the name of a hive folder, such as 2013 in ``year=2013``."""


def import_arrow() -> tuple[ModuleType, ModuleType]:
    """The modules pyarrow and pyarrow.compute, which are an optional dependency."""
    try:
        import pyarrow
        import pyarrow.compute
    except ImportError as error:
        raise ImportError("tables are read with pyarrow: pip install 'cavity[parquet]'") from error
    return pyarrow, pyarrow.compute


@dataclass(frozen=True)
class FilePart:
    """Some rows of a table that lie together, such as a file, or a row group of a Parquet file."""

    place: str
    """What errors call them."""
    file: File | None
    """The Parquet file; None if the fragment is read instead."""
    fragment: Fragment | None = None
    """The fragment of a dataset; None for a file outside of one."""
    schema: pa.Schema | None = None
    """The schema that the fragment is read in."""
    row_groups: tuple[int, ...] | None = None
    """Numbers of the row groups; None is all rows of the file."""
    keys: Mapping[str, Key] = field(default_factory=dict)
    """Values of columns that are the same in all rows: the keys of a hive folder."""
    first: int = 0
    """Number of the first row in the table, if it was counted."""
    rows: int = 0
    """Number of rows, if they were counted."""

    def __str__(self) -> str:
        return self.place


def parts_of_files(files: Sequence[File], keys: Sequence[Mapping[str, str]] = ()) -> list[FilePart]:
    """Parquet or Feather files as parts."""
    values = [_typed_keys(some, keys) for some in keys] if keys else [{} for _ in files]
    if format_of(files[0].name) == FEATHER:
        return [_feather_part(file, some) for file, some in zip(files, values, strict=True)]
    return [FilePart(str(file), file, keys=some) for file, some in zip(files, values, strict=True)]


def _typed_keys(keys: Mapping[str, str], every: Sequence[Mapping[str, str]]) -> dict[str, Key]:
    """The keys of a file, as whole numbers where those of all files are."""
    whole = {name: all(re.fullmatch(r"-?\d+", some.get(name, "")) for some in every) for name in keys}
    return {name: int(value) if whole[name] else value for name, value in keys.items()}


def _feather_part(file: File, keys: Mapping[str, Key]) -> FilePart:
    import_arrow()
    from pyarrow import dataset, fs

    if isinstance(file, RemoteFile):
        path, system = file.path, file.filesystem
    else:
        path, system = str(file.absolute()), fs.LocalFileSystem()
    fragment = dataset.IpcFileFormat().make_fragment(path, filesystem=system)
    with reading(str(file)):
        schema = fragment.physical_schema
    return FilePart(str(file), None, fragment, schema, keys=keys)


def parts_of_dataset(dataset: Dataset) -> list[FilePart]:
    """The fragments of a `pyarrow.dataset.Dataset` as parts."""
    from pyarrow.dataset import FileFragment, ParquetFileFragment, get_partition_keys

    try:
        fragments = list(dataset.get_fragments())
    except ValueError as error:
        raise SourceError(
            f"the dataset cannot be read piece by piece ({error}); filter it before: pass "
            "dataset.to_table(), or write it with pyarrow.dataset.write_dataset"
        ) from error
    parts = []
    for number, fragment in enumerate(fragments):
        if isinstance(fragment, ParquetFileFragment):
            file = RemoteFile(fragment.path, fragment.path, fragment.filesystem)
            keys = get_partition_keys(fragment.partition_expression)
            with reading(fragment.path):
                groups = tuple(group.id for group in fragment.row_groups)
            parts.append(FilePart(str(file), file, fragment, dataset.schema, groups, keys))
        else:
            in_file = isinstance(fragment, FileFragment)
            place = fragment.path if in_file else f"the dataset, fragment {number}"
            parts.append(FilePart(place, None, fragment, dataset.schema))
    return parts


@dataclass(frozen=True)
class FileVersion:
    """Size and time of the last change of a file, to notice that it has changed."""

    size: int
    modified: int

    @classmethod
    def of(cls, path: File) -> FileVersion:
        """The version of a file as it is now."""
        if isinstance(path, RemoteFile):
            return cls(*path.size_and_time())
        with explain_permission_error(path):
            status = path.stat()
        return cls(status.st_size, status.st_mtime_ns)


STREAM_BYTES = 65_536
"""Bytes read at a time from each column: without it pyarrow holds whole row groups, compressed."""
_REMOTE_STREAM_BYTES = 2**20
"""The same for remote files, where a request costs more than its bytes."""


def open_parquet(path: File) -> ParquetFile:
    """A Parquet file that streams its row groups."""
    pa, _ = import_arrow()
    from pyarrow import parquet

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
        raise SourceError(f"{path}: cannot be read: there is no such file any more") from error
    except (OSError, pa.ArrowException) as error:
        raise SourceError(
            f"{path}: cannot be opened as a Parquet file ({one_line(error)}); if it is one, it was cut "
            "off or damaged: write it again"
        ) from error


class PartReader:
    """Reads parts of a table in one thread, and keeps at most `most` Parquet files open.

    versions: what the files were when the table was opened; a file that has changed since is refused.
    """

    def __init__(self, most: int = 1, versions: Mapping[File, FileVersion] | None = None) -> None:
        self._most = most
        self._versions = versions
        self._files: dict[File, ParquetFile] = {}

    def batches(self, part: FilePart, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Arrow record batches of at most `rows` rows: some columns of a part, in order."""

        def read(names: list[str]) -> Iterator[pa.RecordBatch]:
            return self._read(part, names, rows)

        def damage() -> str:
            return self._damage(part, columns, rows)

        with reading(part.place, damage):
            batches = read(list(columns))
        while True:
            with reading(part.place, damage):
                batch = next(batches, None)
            if batch is None:
                return
            if len(batch):
                yield batch

    def _read(self, part: FilePart, columns: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        inside = [name for name in columns if name not in part.keys]
        if part.file is None:
            assert part.fragment is not None
            batches = part.fragment.scanner(
                schema=part.schema,
                columns=inside,
                batch_size=rows,
                batch_readahead=1,
                fragment_readahead=1,
                use_threads=False,
            ).to_batches()
        else:
            batches = self._get(part.file).iter_batches(
                rows, row_groups=part.row_groups, columns=inside, use_threads=False
            )
        return (with_keys(batch, part.keys, columns) if part.keys else batch for batch in batches)

    def _damage(self, part: FilePart, columns: Sequence[str], rows: int) -> str:
        """Which row group and column of a part cannot be read, as far as that can be found out."""
        several = [part]
        if part.file is not None and part.row_groups is None:
            groups = range(self._get(part.file).num_row_groups)
            several = [replace(part, row_groups=(group,)) for group in groups]
        for one in several:
            for name in columns:
                try:
                    for _ in self._read(one, [name], rows):
                        pass
                except Exception:  # whatever it is, reading the part has failed already
                    group = "" if one is part else f", row group {(one.row_groups or ())[0]}"
                    return f"{group}, column {name!r}"
        return ""

    def _get(self, path: File) -> ParquetFile:
        """An open Parquet file; raises if it has changed since the table was opened."""
        if path in self._files:
            self._files[path] = self._files.pop(path)
            return self._files[path]
        file = open_parquet(path)
        if self._versions is not None and FileVersion.of(path) != self._versions[path]:
            raise SourceError(f"{path}: has changed since the source was opened; open it again")
        if len(self._files) >= self._most:
            # Not closed here: it may still be read from. It closes with its last reader.
            del self._files[next(iter(self._files))]
        self._files[path] = file
        return file

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()
        self._files.clear()


@contextmanager
def reading(place: str, damage: Callable[[], str] = lambda: "") -> Iterator[None]:
    """Turn what Arrow raises on a damaged file into an error that names the place.

    damage: describes the place more closely, such as the column that cannot be read.
    """
    pa, _ = import_arrow()
    try:
        yield
    except pa.ArrowMemoryError:
        raise
    except FileNotFoundError as error:
        raise SourceError(f"{place}: cannot be read: there is no such file any more") from error
    except (OSError, pa.ArrowException) as error:
        words = one_line(error)
        way_out = "the file is damaged: write it again or leave it out"
        if "conversion error" in words:  # text, whose types were guessed from the first file
            way_out = (
                "give the dataset the types of its columns: pyarrow.dataset.dataset(..., schema=...)"
            )
        raise SourceError(f"{place}{damage()}: cannot be read ({words}); {way_out}") from error


def with_keys(
    batch: pa.RecordBatch,
    keys: Mapping[str, Key],
    columns: Sequence[str] | Mapping[str, pa.DataType],
) -> pa.RecordBatch:
    """A record batch with the keys of its file as columns, in the order of `columns`.

    columns: names, or names with the types that keys are cast to.
    """
    pa, _ = import_arrow()
    types = columns if isinstance(columns, Mapping) else {}
    arrays = []
    for name in columns:
        if name in keys:
            values = pa.repeat(pa.scalar(keys[name]), len(batch))
            arrays.append(values.cast(types[name]) if name in types else values)
        else:
            arrays.append(batch.column(name))
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def schema_and_rows(part: FilePart) -> tuple[pa.Schema, int]:
    """The schema of a part's file and the number of its rows."""
    if part.file is None:
        assert part.fragment is not None
        with reading(part.place):
            return part.schema, part.fragment.count_rows()
    with open_parquet(part.file) as file:
        return file.schema_arrow, file.metadata.num_rows


def row_group_sizes(path: File) -> list[int]:
    """Numbers of rows of the row groups of a Parquet file."""
    with open_parquet(path) as file:
        return [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
