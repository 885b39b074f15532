"""Tables: named columns of any kind, read chunk by chunk from files, data frames or Arrow data."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cavity.data.locations import (
    FORMATS,
    TEXT,
    File,
    RemoteFile,
    find_files,
    format_of,
    hive_keys,
    usual_delimiter,
)
from cavity.data.parts import (
    FilePart,
    PartReader,
    import_arrow,
    one_line,
    parts_of_files,
    row_group_sizes,
    schema_and_rows,
    with_keys,
)
from cavity.errors import SourceError
from cavity.text import listed
from cavity.typing import InputRows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import NativeFile
    from pyarrow.csv import CSVStreamingReader

CHUNK_ROWS = 65_536
"""Rows of a table that are in memory at a time."""


def as_arrow(data: InputRows) -> pa.Table:
    """A data frame (pandas, polars, Arrow or a dictionary of columns) as an Arrow table.

    >>> as_arrow({"age": [31, None], "name": ["Ada", "Bob"]}).schema.names
    ['age', 'name']
    """
    pa, _ = import_arrow()
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    is_pandas = type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns")
    if is_pandas or isinstance(data, dict):
        _check_names(list(data.columns if is_pandas else data))
    try:
        if isinstance(data, dict):
            return pa.table(data)
        if is_pandas:
            return pa.Table.from_pandas(data, preserve_index=False)
        if hasattr(data, "__arrow_c_stream__"):
            return _without_views(pa.table(data))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise SourceError(f"the data frame cannot be read: {_reason(data, error)}") from error
    raise TypeError(
        f"a {type(data).__name__} is not a table; pass a data frame, an Arrow table or a dict of columns"
    )


def _without_views(table: pa.Table) -> pa.Table:
    """The table with views of strings, which polars has, as strings: Arrow cannot filter views."""
    pa, _ = import_arrow()
    for i, field in enumerate(table.schema):
        column = table.column(i)
        if pa.types.is_string_view(field.type):
            table = table.set_column(i, field.name, column.cast(pa.large_string()))
        elif pa.types.is_dictionary(field.type) and pa.types.is_string_view(field.type.value_type):
            chunks = [
                pa.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(pa.string()))
                for chunk in column.chunks
            ]
            kind = pa.dictionary(field.type.index_type, pa.string())
            table = table.set_column(i, field.name, pa.chunked_array(chunks, kind))
    return table


def _check_names(names: list[object]) -> None:
    """Raise for names of columns that are not strings, or not all different."""
    strange = [name for name in names if not isinstance(name, str)]
    if strange:
        raise SourceError(
            f"the data frame has a column named {strange[0]!r}, which is not a string; rename it, for "
            "instance with frame.rename(columns=str)"
        )
    check_column_names([str(name) for name in names], "the data frame")


def _reason(data: InputRows, error: Exception) -> str:
    """Why a data frame or dictionary cannot be read: a column of it, and the kinds of its cells."""
    pa, _ = import_arrow()
    for name in data if hasattr(data, "keys") else ():
        try:
            pa.array(data[name], from_pandas=True)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as cause:
            kinds = sorted({type(cell).__name__ for cell in data[name]})
            return (
                f"column {name!r} has cells of the kinds {listed(kinds)} ({one_line(cause)}); make them "
                "all numbers of at most 64 bits, strings, truth values or dates, or drop the column"
            )
    return one_line(error)


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

    @abstractmethod
    def chunks(
        self, columns: Sequence[str], types: Mapping[str, pa.DataType]
    ) -> Iterator[pa.RecordBatch]:
        """Arrow record batches with these columns, of at most `CHUNK_ROWS` rows, all rows in order.

        types: Arrow types in which to read columns of text files; columns without one come as strings.
        """


def open_table(data: InputRows) -> Table:
    """The table that a path, URL, pattern or data frame means.

    A path, URL or pattern is that of a CSV, TSV, Parquet or Feather file, or of a folder of files of one
    of these formats, which are read in the order of their names. Text files may be compressed (.csv.gz).
    The keys of a hive folder (``year=2013/part-0.parquet``) are columns.

    >>> open_table({"age": [31, 47], "late": [True, False]}).columns
    ['age', 'late']
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "flights.csv").write_text("age,late\\n31,yes\\n47,no\\n")
    ...     open_table(f"{folder}/flights.csv").columns
    ['age', 'late']
    """
    if isinstance(data, Table):
        return data
    if not isinstance(data, (str, os.PathLike)):
        return FrameTable(data)
    name, files = os.fspath(data), find_files(data)
    if format_of(files[0].name) is None:
        raise SourceError(
            f"{name}: its name does not say what it is; {', '.join(FORMATS)} files can be read (.csv, "
            ".tsv, .parquet, .feather)"
        )
    for file in files:
        _require_bytes(file)
    keys = [hive_keys(data, file) for file in files]
    if format_of(files[0].name) == TEXT:
        return TextTable(files, name, usual_delimiter(files[0].name), keys)
    return ArrowTable(parts_of_files(files, keys), name)


def _require_bytes(path: File) -> None:
    if not isinstance(path, Path):
        return
    try:
        with path.open("rb") as file:
            empty = not file.read(1)
    except OSError as error:
        raise SourceError(f"{path}: cannot be read ({error.strerror})") from error
    if empty:
        raise SourceError(f"{path}: the file is empty")


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

    def chunks(
        self, columns: Sequence[str], types: Mapping[str, pa.DataType]
    ) -> Iterator[pa.RecordBatch]:
        """Record batches of at most `CHUNK_ROWS` rows."""
        pa, _ = import_arrow()
        table = self.table.select(list(columns)).combine_chunks()
        if not columns:
            return
        for batch in table.to_batches(max_chunksize=CHUNK_ROWS):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=batch.schema)


_BLOCK_BYTES = 4_000_000
_CANDIDATES = ",\t;|"
"""Characters that may separate the cells of a line."""
MISSING = ("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None", "#N/A", "n/a", "-nan", "<NA>", "?")
"""Cells that stand for a missing value."""
_BAD_CELL = re.compile(
    r"In CSV column #(\d+): Row #(\d+): CSV conversion error to (\w+).*: invalid value ('.*')"
)
_RAGGED = re.compile(r"CSV parse error: Row #(\d+): Expected (\d+) columns, got (\d+)")
_KINDS = {"double": "numeric", "int64": "whole numbers", "bool": "boolean", "timestamp": "dates"}


class TextTable(Table):
    """Text files with a line of names and the same columns, one after the other."""

    typed = False

    def __init__(
        self,
        files: Sequence[File],
        name: str,
        delimiter: str | None,
        keys: Sequence[Mapping[str, str]] = (),
    ) -> None:
        self.files = list(files)
        self.keys = [dict(some) for some in keys] or [{} for _ in files]
        """Values of the keys of a hive folder, for each file."""
        self.name = name
        self.delimiter = self._guessed(delimiter)
        names = self._header(self.files[0])
        check_column_names(names, str(self.files[0]))
        for path in self.files[1:]:
            check_same_columns(path, self._header(path), self.files[0], names)
        self.columns = [*names, *(key for key in self.keys[0] if key not in names)]

    def pieces(self) -> list[TextTable]:
        """A table for each file, by paths that do not depend on the current folder."""
        return [
            TextTable([_absolute(file)], str(_absolute(file)), self.delimiter, [keys])
            for file, keys in zip(self.files, self.keys, strict=True)
        ]

    def chunks(
        self, columns: Sequence[str], types: Mapping[str, pa.DataType]
    ) -> Iterator[pa.RecordBatch]:
        """Record batches of about 4 MB of text, cut to at most `CHUNK_ROWS` rows."""
        pa, _ = import_arrow()
        wanted = {name: types.get(name, pa.string()) for name in columns}
        found = False
        for path, keys in zip(self.files, self.keys, strict=True):
            inside = {name: kind for name, kind in wanted.items() if name not in keys}
            with _reading_text(path, self.columns), self._open(path, inside) as reader:
                while (batch := next(reader, None)) is not None:
                    found = found or batch.num_rows > 0
                    whole = with_keys(batch, keys, wanted) if keys else batch
                    for start in range(0, batch.num_rows, CHUNK_ROWS):
                        yield whole.slice(start, CHUNK_ROWS)
        if not found:
            raise SourceError(f"{self.name} has no rows below its line of names")

    def _open(self, path: File, types: Mapping[str, pa.DataType]) -> CSVStreamingReader:
        import_arrow()
        from pyarrow import csv

        return csv.open_csv(
            _stream(path),
            read_options=csv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False),
            parse_options=csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
            convert_options=csv.ConvertOptions(
                include_columns=list(types),
                column_types=dict(types),
                null_values=list(MISSING),
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
                true_values=["true", "True", "TRUE", "1"],
                false_values=["false", "False", "FALSE", "0"],
            ),
        )

    def _header(self, path: File) -> list[str]:
        import_arrow()
        from pyarrow import csv

        text = csv.ConvertOptions(check_utf8=False)
        with _reading_text(path):
            reader = csv.open_csv(
                _stream(path),
                read_options=csv.ReadOptions(block_size=_BLOCK_BYTES, use_threads=False),
                parse_options=csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
                convert_options=text,
            )
            names = list(reader.schema.names)
            reader.close()
        return names

    def _guessed(self, delimiter: str | None) -> str:
        """The delimiter of the kind of file, or that of its first line if it has none of that kind."""
        with _reading_text(self.files[0]), _stream(self.files[0]) as stream:
            head = stream.read(65_536).split(b"\n", 1)[0]
        if b"\0" in head:
            raise SourceError(
                f"{self.files[0]}: is compressed or not UTF-8 text, as NULs in its first line show; "
                "unpack it, or convert it, for instance with iconv"
            )
        line = head.decode("utf-8", errors="replace")
        if delimiter is not None and delimiter in line:
            return delimiter
        counts = {mark: line.count(mark) for mark in _CANDIDATES}
        best = max(counts, key=lambda mark: counts[mark])
        return best if counts[best] else delimiter or ","


def _stream(path: File) -> NativeFile:
    """The bytes of a file, unpacked if its name says that they are packed."""
    if isinstance(path, RemoteFile):
        return path.filesystem.open_input_stream(path.path, compression="detect")
    pa, _ = import_arrow()
    return pa.input_stream(str(path), compression="detect")


@contextmanager
def _reading_text(path: File, columns: Sequence[str] = ()) -> Iterator[None]:
    """Turn what Arrow raises on a damaged file into an error that names it, and the column."""
    pa, _ = import_arrow()
    try:
        yield
    except UnicodeDecodeError as error:
        raise SourceError(f"{path}: is not UTF-8 text; convert it, for instance with iconv") from error
    except pa.ArrowInvalid as error:
        words = one_line(error)
        if "UTF8" in words or "UTF-8" in words:
            words = "is not UTF-8 text; convert it, for instance with iconv"
        elif row := _RAGGED.search(words):
            words = (
                f"row {row[1]}, counting the names, has {row[3]} cells, but there are {row[2]} names; "
                "write as many in every row, and cells with the separator in quotation marks"
            )
        elif "straddl" in words:
            words = (
                f"has a line of more than {_BLOCK_BYTES // 1_000_000} MB; shorten such cells, or close "
                "a quotation mark that is open"
            )
        elif "Empty CSV" in words:
            words = "the file is empty"
        elif (cell := _BAD_CELL.search(words)) and int(cell[1]) < len(columns):
            kind = _KINDS.get(cell[3], cell[3])
            words = (
                f"column {columns[int(cell[1])]!r} should be {kind}, but has the value {cell[4]} in "
                f"line {cell[2]}; correct such cells or leave them empty"
            )
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
            file = None if part.file is None else _absolute(part.file)
            for groups in [None] if file is None else _runs(row_group_sizes(file), most):
                piece = copy(self)
                piece.parts = [replace(part, file=file, row_groups=groups)]
                piece.n_rows = None
                yield piece

    def chunks(
        self, columns: Sequence[str], types: Mapping[str, pa.DataType]
    ) -> Iterator[pa.RecordBatch]:
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


def _absolute(path: File) -> File:
    return path.absolute() if isinstance(path, Path) else path


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
                f"{path}: column {name!r} is {array.type}, but {kind} in the first file of its folder"
            ) from error
    return pa.RecordBatch.from_arrays(arrays, names=list(types))


def check_column_names(columns: Sequence[str], name: str) -> None:
    """Raise for a table without columns, or with several columns of the same name."""
    repeated = sorted(column for column, count in Counter(columns).items() if count > 1)
    if repeated:
        raise SourceError(f"{name} has more than one column named {listed(repeated)}; rename them")
    if not columns:
        raise SourceError(f"{name} has no columns")


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
