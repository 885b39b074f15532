"""Parquet files as a table, read batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any

from cavity.errors import SourceError
from cavity.sources.locations import File
from cavity.sources.parquet_files import damaged_column, open_parquet
from cavity.tables.arrow import import_arrow, one_line
from cavity.tables.opening import CHUNK_ROWS, check_columns, check_same_columns


class ParquetTable:
    """Parquet files with the same columns, one after the other."""

    typed = True

    def __init__(self, files: Sequence[File], name: str) -> None:
        self.files = list(files)
        self.name = name
        n_rows = 0
        for path in self.files:
            file = open_parquet(path)
            n_rows += file.metadata.num_rows
            schema = file.schema_arrow
            # pandas writes the index of a frame as a column; it is not a column of the frame.
            index = [
                i for i in (schema.pandas_metadata or {}).get("index_columns", []) if i in schema.names
            ]
            columns = [name for name in schema.names if name not in index]
            if path == self.files[0]:
                check_columns(columns, str(path))
                self.columns = columns
                self.types = {name: schema.field(name).type for name in columns}
            else:
                check_same_columns(path, columns, self.files[0], self.columns)
            file.close()
        if n_rows == 0:
            raise SourceError(f"{name} has no rows")
        self.n_rows: int | None = n_rows
        self.row_groups: list[int] | None = None

    def piece(self, path: File, row_groups: list[int]) -> ParquetTable:
        """Some row groups of one of the files."""
        part = copy(self)
        part.files, part.row_groups, part.n_rows = [path], row_groups, None
        return part

    def chunks(self, columns: Sequence[str], types: Mapping[str, Any]) -> Iterator[Any]:
        """Record batches of at most `CHUNK_ROWS` rows."""
        pa, _ = import_arrow()
        wanted = {name: self.types[name] for name in columns}
        for path in self.files:
            file = open_parquet(path)
            try:
                for batch in file.iter_batches(
                    CHUNK_ROWS,
                    row_groups=self.row_groups,
                    columns=list(columns),
                    use_threads=False,
                ):
                    yield _as_the_first(batch.select(list(columns)), wanted, path)
            except (OSError, pa.ArrowException) as error:
                place = _damaged_place(file, self.row_groups, columns)
                raise SourceError(
                    f"{path}{place}: cannot be read ({one_line(error)}); the file is damaged: write it "
                    "again"
                ) from error
            finally:
                file.close()


def _damaged_place(file: Any, row_groups: Sequence[int] | None, columns: Sequence[str]) -> str:
    """The first row group that cannot be read, and which of its columns, as an error names them."""
    for number in range(file.num_row_groups) if row_groups is None else row_groups:
        name = damaged_column(columns, partial(_batches_of, file, number))
        if name is not None:
            return f", row group {number}, column {name!r}"
    return ""


def _batches_of(file: Any, row_group: int, columns: list[str]) -> Iterator[Any]:
    batches: Iterator[Any] = file.iter_batches(
        CHUNK_ROWS, row_groups=[row_group], columns=columns, use_threads=False
    )
    return batches


def _as_the_first(batch: Any, types: Mapping[str, Any], path: File) -> Any:
    """The batch in the types of the first file: a part whose column is all missing has another."""
    if all(batch.schema.field(name).type == kind for name, kind in types.items()):
        return batch
    pa, _ = import_arrow()
    arrays = []
    for name, kind in types.items():
        array = batch.column(name)
        try:
            arrays.append(array if array.type == kind else array.cast(kind))
        except pa.ArrowException as error:
            raise SourceError(
                f"{path}: column {name!r} is {array.type}, but {kind} in the first file of its folder"
            ) from error
    return pa.RecordBatch.from_arrays(arrays, names=list(types))
