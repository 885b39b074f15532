"""Tables: named columns of any kind, read chunk by chunk from files, data frames or Arrow data."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cavity.data.dialect import HEAD_BYTES, MISSING_WORDS, Dialect
from cavity.data.frames import as_arrow, check_column_names
from cavity.data.locations import (
    EXCEL,
    FORMATS,
    JSON,
    TEXT,
    File,
    RemoteFile,
    absolute,
    find_files,
    format_of,
    hive_keys,
)
from cavity.data.parts import (
    FilePart,
    PartReader,
    import_arrow,
    parts_of_files,
    row_group_sizes,
    schema_and_rows,
    with_keys,
)
from cavity.errors import SourceError
from cavity.text import listed, one_line, suggestion
from cavity.typing import InputRows, IntArray

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import NativeFile
    from pyarrow.csv import CSVStreamingReader

CHUNK_ROWS = 65_536
"""Rows of a table that are in memory at a time."""
BLOCK_BYTES = 4_000_000
"""Bytes of a file of text that are parsed at a time."""


class Table(ABC):
    """Named columns of rows, read in chunks."""

    name: str
    """What errors call the table."""
    columns: list[str]
    """Names of the columns, in the order of the table."""
    typed: bool = True
    """Whether the columns have types of their own; those of text files have none."""
    n_rows: int | None = None
    """Number of rows, if it is known without reading them."""
    decimal: str | None = None
    """The sign before the decimals of numbers that are text, if it is known."""
    missing_words: tuple[str, ...] = MISSING_WORDS
    """What stands for a missing value in columns of words, besides null."""

    @abstractmethod
    def chunks(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Arrow record batches with these columns, of at most `CHUNK_ROWS` rows, all rows in order.

        Columns of text files come as strings.
        """

    def numbered(self, columns: Sequence[str]) -> Iterator[tuple[IntArray, pa.RecordBatch]]:
        """The same record batches, each with the numbers [t] that its rows have in the whole table."""
        first = 0
        for chunk in self.chunks(columns):
            yield np.arange(first, first + chunk.num_rows), chunk
            first += chunk.num_rows

    def require(self, name: str, role: str) -> None:
        """Raise unless the table has a column of this name; role: what errors call the column.

        >>> open_table({"late": [True, False]}).require("lat", "target column")
        Traceback (most recent call last):
        cavity.errors.SourceError: the data frame has no target column 'lat'; did you mean 'late'?
        """
        if name not in self.columns:
            words = suggestion(name, self.columns)
            raise SourceError(f"{self.name} has no {role} {name!r}{words}")


def open_table(
    data: InputRows,
    *,
    sep: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    na_values: Iterable[str] | None = None,
) -> Table:
    """The table that a path, URL, pattern, list of these, or data frame means.

    A path, URL or pattern is that of a CSV, TSV, JSON lines, Parquet or Feather file, or of a folder of
    files of one of these formats, which are read in the order of their names; or that of one Excel file.
    The files of a list are read in its order.
    Text files and JSON lines may be compressed (.csv.gz). The keys of a hive folder
    (``year=2013/part-0.parquet``) are columns.

    The other arguments are those of a `cavity.data.dialect.Dialect` of text files; what is not given is
    found in the beginning of the first file, and the decimal sign in each column. A model remembers the
    decimal signs of its columns; pass the others again to read other files of that dialect.

    >>> open_table({"age": [31, 47], "late": [True, False]}).columns
    ['age', 'late']
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "flights.csv").write_text("age,late\\n31,yes\\n47,no\\n")
    ...     open_table(f"{folder}/flights.csv").columns
    ['age', 'late']
    """
    dialect = Dialect(sep, decimal, encoding, None if na_values is None else tuple(na_values))
    if not is_paths(data):
        dialect.refuse("a data frame or table")
        return data if isinstance(data, Table) else FrameTable(data)
    paths = [data] if isinstance(data, (str, os.PathLike)) else data
    name = os.fspath(paths[0]) + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")
    places = [(path, file) for path in paths for file in find_files(path)]
    files = [file for _, file in places]
    other = next((f for f in files if format_of(f.name) != format_of(files[0].name)), None)
    if other is not None:
        raise SourceError(
            f"{name}: {other} has another format than {files[0]}; pass files of one format"
        )
    if format_of(files[0].name) is None:
        raise SourceError(
            f"{name}: its name does not say what it is; {', '.join((*FORMATS, EXCEL))} files can be "
            "read (.csv, .tsv, .jsonl, .parquet, .feather, .xlsx)"
        )
    for file in files:
        _require_bytes(file)
    keys, kind = [hive_keys(path, file) for path, file in places], format_of(files[0].name)
    if kind == TEXT:
        return TextTable(files, name, dialect, keys)
    dialect.refuse(f"{name}, which is no text")
    if kind in (JSON, EXCEL):
        from cavity.data.records import JsonTable, excel_table

        if kind == JSON:
            return JsonTable(files, name, keys)
        if len(files) > 1:
            raise SourceError(f"{name}: there are {len(files)} Excel files; pass one of them")
        return excel_table(files[0], name)
    return ArrowTable(parts_of_files(files, keys), name)


def is_paths(data: InputRows) -> bool:
    """Whether data is a path, URL or pattern, or a list of some.

    >>> is_paths("flights.csv"), is_paths(["a.csv", "b.csv"]), is_paths([["AA", "DL"]])
    (True, True, False)
    """
    if isinstance(data, (list, tuple)):
        return bool(data) and all(isinstance(path, (str, os.PathLike)) for path in data)
    return isinstance(data, (str, os.PathLike))


def _require_bytes(path: File) -> None:
    if not isinstance(path, Path):
        return
    try:
        with path.open("rb") as file:
            empty = not file.read(1)
    except OSError as error:
        raise SourceError(f"{path}: cannot be read ({error.strerror})") from error
    if empty:
        raise SourceError(f"{path}: the file is empty; write it again")


class FrameTable(Table):
    """A table that is in memory."""

    def __init__(self, data: InputRows, name: str = "the data frame") -> None:
        self.name = name
        self.table = as_arrow(data)
        self.columns = self.table.schema.names
        self.n_rows = self.table.num_rows
        check_column_names(self.columns, name)
        if self.table.num_rows == 0:
            raise SourceError(f"{name} has no rows")

    def chunks(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Record batches of at most `CHUNK_ROWS` rows."""
        pa, _ = import_arrow()
        table = self.table.select(list(columns)).combine_chunks()
        if not columns:
            return
        for batch in table.to_batches(max_chunksize=CHUNK_ROWS):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=batch.schema)


_RAGGED = re.compile(r"CSV parse error: Row #(\d+): Expected (\d+) columns, got (\d+)")


class TextTable(Table):
    """Text files with a line of names and the same columns, one after the other."""

    typed = False

    def __init__(
        self,
        files: Sequence[File],
        name: str,
        dialect: Dialect,
        keys: Sequence[Mapping[str, str]] = (),
    ) -> None:
        self.files = list(files)
        self.keys = [dict(some) for some in keys] or [{} for _ in files]
        """Values of the keys of a hive folder, for each file."""
        self.name = name
        with _reading_text(self.files[0]), unpacked_stream(self.files[0]) as stream:
            head = stream.read(HEAD_BYTES)
        self.dialect = dialect.completed(head, self.files[0])
        self.decimal = self.dialect.decimal
        if self.dialect.na_values is not None:
            self.missing_words = self.dialect.missing
        names = self._header(self.files[0])
        check_column_names(names, str(self.files[0]))
        for path in self.files[1:]:
            check_same_columns(path, self._header(path), self.files[0], names)
        self.columns = [*names, *(key for key in self.keys[0] if key not in names)]

    def pieces(self) -> list[TextTable]:
        """A table for each file, by paths that do not depend on the current folder."""
        return [
            TextTable([absolute(file)], str(absolute(file)), self.dialect, [keys])
            for file, keys in zip(self.files, self.keys, strict=True)
        ]

    def chunks(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Record batches of about 4 MB of text, cut to at most `CHUNK_ROWS` rows."""
        found = False
        for path, keys in zip(self.files, self.keys, strict=True):
            inside = [name for name in columns if name not in keys]
            with _reading_text(path), self._open(path, inside) as reader:
                while (batch := next(reader, None)) is not None:
                    found = found or batch.num_rows > 0
                    whole = with_keys(batch, keys, columns) if keys else batch
                    for start in range(0, batch.num_rows, CHUNK_ROWS):
                        yield whole.slice(start, CHUNK_ROWS)
        if not found:
            raise SourceError(f"{self.name} has no rows below its line of names")

    def _open(self, path: File, columns: Sequence[str] | None) -> CSVStreamingReader:
        """A reader of some columns; None is all of them, with names that may be no UTF-8."""
        pa, _ = import_arrow()
        from pyarrow import csv

        dialect = self.dialect
        convert = csv.ConvertOptions(check_utf8=False)
        if columns is not None:
            convert = csv.ConvertOptions(
                include_columns=list(columns),
                column_types=dict.fromkeys(columns, pa.string()),
                null_values=list(dialect.missing),
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
            )
        return csv.open_csv(
            unpacked_stream(path),
            read_options=csv.ReadOptions(
                block_size=BLOCK_BYTES, use_threads=False, encoding=dialect.encoding
            ),
            parse_options=csv.ParseOptions(delimiter=dialect.sep, newlines_in_values=True),
            convert_options=convert,
        )

    def _header(self, path: File) -> list[str]:
        with _reading_text(path):
            reader = self._open(path, None)
            names = list(reader.schema.names)
            reader.close()
        return names


def unpacked_stream(path: File) -> NativeFile:
    """The bytes of a file, unpacked if its name says that they are packed."""
    if isinstance(path, RemoteFile):
        return path.filesystem.open_input_stream(path.path, compression="detect")
    pa, _ = import_arrow()
    return pa.input_stream(str(path), compression="detect")


_NOT_ENCODED = (
    "is not text in the encoding that its beginning has; name the encoding, for instance with "
    'open_table(path, encoding="cp1252")'
)


@contextmanager
def _reading_text(path: File) -> Iterator[None]:
    """Turn what Arrow raises on a damaged file into an error that names it."""
    pa, _ = import_arrow()
    try:
        yield
    except UnicodeError as error:
        raise SourceError(f"{path}: {_NOT_ENCODED}") from error
    except pa.ArrowInvalid as error:
        words = one_line(error)
        if "UTF8" in words or "UTF-8" in words:
            words = _NOT_ENCODED
        elif row := _RAGGED.search(words):
            words = (
                f"row {row[1]}, counting the names, has {row[3]} cells, but there are {row[2]} names; "
                "write as many in every row, and cells with the separator in quotation marks"
            )
        elif "straddl" in words:
            words = (
                f"has a line of more than {BLOCK_BYTES // 1_000_000} MB; shorten such cells, or close "
                "a quotation mark that is open"
            )
        elif "Empty CSV" in words:
            words = "the file is empty"
        else:
            words = f"cannot be read as a table ({words})"
        raise SourceError(f"{path}: {words}") from error
    except (OSError, pa.ArrowException) as error:
        raise SourceError(f"{path}: cannot be read ({one_line(error)})") from error


class ArrowTable(Table):
    """Parquet or Feather files with the same columns, one after the other."""

    def __init__(self, parts: Sequence[FilePart], name: str) -> None:
        self.parts = list(parts)
        self.name = name
        pa, _ = import_arrow()
        self.n_rows = 0
        for part in self.parts:
            schema, n_rows = schema_and_rows(part)
            self.n_rows += n_rows
            # pandas writes the index of a frame as a column; it is not a column of the frame.
            index = (schema.pandas_metadata or {}).get("index_columns", [])
            columns = [name for name in schema.names if name not in index]
            if part is self.parts[0]:
                check_column_names(columns, part.place)
                keys = {key: pa.scalar(value).type for key, value in part.keys.items()}
                self.types = {**{name: schema.field(name).type for name in columns}, **keys}
                self.columns = list(self.types)
            else:
                check_same_columns(part.place, [*columns, *part.keys], self.parts[0], self.columns)
        if self.n_rows == 0:
            raise SourceError(f"{name} has no rows")

    def pieces(self, most: int) -> Iterator[ArrowTable]:
        """Tables of neighbouring row groups with about `most` rows together, or of whole files.

        Their paths do not depend on the current folder.
        """
        for part in self.parts:
            file = None if part.file is None else absolute(part.file)
            for groups in [None] if file is None else _runs(row_group_sizes(file), most):
                piece = copy(self)
                piece.parts = [replace(part, file=file, row_groups=groups)]
                piece.n_rows = None
                yield piece

    def chunks(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Record batches of at most `CHUNK_ROWS` rows."""
        wanted = {name: self.types[name] for name in columns}
        reader = PartReader()
        try:
            for part in self.parts:
                for batch in reader.batches(part, list(columns), CHUNK_ROWS):
                    yield _as_the_first(batch.select(list(columns)), wanted, part.place)
        finally:
            reader.close()


def _runs(sizes: Sequence[int], most: int) -> Iterator[tuple[int, ...]]:
    """Numbers of neighbouring row groups, with about `most` rows together.

    >>> list(_runs([300_000, 300_000, 300_000], 500_000))
    [(0, 1), (2,)]
    """
    run: list[int] = []
    rows = 0
    for number, size in enumerate(sizes):
        run.append(number)
        rows += size
        if rows >= most:
            yield tuple(run)
            run, rows = [], 0
    if run:
        yield tuple(run)


def _as_the_first(
    batch: pa.RecordBatch, types: Mapping[str, pa.DataType], path: object
) -> pa.RecordBatch:
    """The batch in the types of the first file; a column without any value may have another type."""
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
                f"{path}: column {name!r} is {array.type}, but {kind} in the first file of its folder; "
                "write it in one type"
            ) from error
    return pa.RecordBatch.from_arrays(arrays, names=list(types))


def check_same_columns(
    path: object, columns: Sequence[str], first: object, wanted: Sequence[str]
) -> None:
    """Raise for a file of a folder whose columns are not those of the first file."""
    missing = [name for name in wanted if name not in columns]
    more = [name for name in columns if name not in wanted]
    if missing or more:
        what = f"has no column {listed(missing)}" if missing else f"has a column {listed(more)} more"
        name = str(first).rpartition("/")[2]
        raise SourceError(f"{path} {what}, unlike {name}; the files of a folder need the same columns")
