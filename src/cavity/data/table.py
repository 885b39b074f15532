"""Arrow, the one form that tables have in here: its types say what a column is, and what is missing.

The files that a path or URL means: of what kind they are, and in which order.

CSV and TSV files as a table, read block by block.

Parquet files as a table, read batch by batch.

From a path, a URL or a data frame to a table.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from cavity.data.locations import File, RemoteFile, local_path, remote_files
from cavity.data.parquet_store import damaged_column, open_parquet
from cavity.errors import SourceError
from cavity.text import listed, suggestion


def import_arrow() -> tuple[Any, Any]:
    """The modules pyarrow and pyarrow.compute, which are an optional dependency."""
    try:
        import pyarrow
        import pyarrow.compute
    except ImportError as error:
        raise ImportError("tables are read with pyarrow: pip install 'cavity[parquet]'") from error
    return pyarrow, pyarrow.compute


def as_arrow(data: Any) -> Any:
    """A data frame (pandas, polars, Arrow or a dictionary of columns) as an Arrow table.

    >>> as_arrow({"age": [31, None], "name": ["Ada", "Bob"]}).schema.names
    ['age', 'name']
    """
    pa, _ = import_arrow()
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    try:
        if isinstance(data, dict):
            return pa.table(data)
        if type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns"):
            _check_names(list(data.columns))
            return pa.Table.from_pandas(data, preserve_index=False)
        if hasattr(data, "__arrow_c_stream__"):
            return pa.table(data)
    except (pa.ArrowException, TypeError, ValueError) as error:
        if isinstance(error, SourceError):
            raise
        raise SourceError(f"the data frame cannot be read: {one_line(error)}") from error
    raise TypeError(
        f"a {type(data).__name__} is no table; pass a data frame, an Arrow table or a dict of columns"
    )


def _check_names(names: list[Any]) -> None:
    strange = [name for name in names if not isinstance(name, str)]
    if strange:
        raise SourceError(
            f"the data frame has a column named {strange[0]!r}, which is no string; rename it, for "
            "instance with frame.rename(columns=str)"
        )


def one_line(error: BaseException) -> str:
    """What a library says, on one line, without its full stop and what no terminal should get."""
    words = " ".join(str(error).split()).rstrip(".")
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in words)


_PARQUET = {".parquet", ".parq", ".pq"}
_TEXT = {".csv": ",", ".tsv": "\t", ".tab": "\t", ".txt": None}
_PACKED = {".gz", ".bz2", ".zst", ".lz4"}


def table_files(path: str | os.PathLike[str]) -> list[File]:
    """The file at a path or URL, or the files of one kind in that folder, sorted by name."""
    place = os.fspath(path)
    local = local_path(path)
    if local is None:
        files: list[File] = [*remote_files(place, lambda name: kind_of_file(name) is not None)]
        return _of_one_kind(place, files)
    if not local.exists():
        folder = local.parent
        near = sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []
        words = suggestion(local.name, near)
        raise SourceError(f"{place}: there is no such file or folder{words if 'mean' in words else ''}")
    inside = [local]
    if local.is_dir():
        inside = sorted(
            p for p in local.iterdir() if kind_of_file(p.name) and p.name[0] not in "._" and p.is_file()
        )
    found = _of_one_kind(place, inside)
    for file in inside:
        _require_bytes(file)
    return found


def kind_of_file(name: str) -> str | None:
    """What the name of a file says that it is: "parquet", "text" or None.

    >>> kind_of_file("flights.csv.gz"), kind_of_file("flights.pq"), kind_of_file("flights.xlsx")
    ('text', 'parquet', None)
    """
    suffix = _suffix(name)
    if suffix in _PARQUET:
        return "parquet"
    return "text" if suffix in _TEXT else None


def usual_delimiter(name: str) -> str | None:
    """What is between the cells of text files of this name, if the name tells.

    >>> usual_delimiter("flights.tsv.gz")
    '\\t'
    """
    return _TEXT.get(_suffix(name))


def _of_one_kind(place: str, files: Sequence[File]) -> list[File]:
    if not files:
        raise SourceError(f"{place}: the folder has no CSV, TSV or Parquet files of its own")
    kinds = [kind_of_file(file.name) for file in files]
    if kinds[0] is None:
        raise SourceError(
            f"{place}: its name does not say what it is; CSV (.csv), TSV (.tsv) and Parquet "
            "(.parquet) files can be read"
        )
    other = next((f.name for f, kind in zip(files, kinds, strict=True) if kind != kinds[0]), None)
    if other is not None:
        raise SourceError(
            f"{place}: the folder has files of several kinds ({files[0].name}, {other}); keep one kind "
            "a folder"
        )
    return [*files]


def _require_bytes(path: Path) -> None:
    try:
        with path.open("rb") as file:
            empty = not file.read(1)
    except OSError as error:
        raise SourceError(f"{path}: cannot be read ({error.strerror})") from error
    if empty:
        raise SourceError(f"{path}: the file is empty")


def _suffix(name: str) -> str:
    suffixes = [suffix.lower() for suffix in PurePosixPath(name).suffixes]
    if suffixes and suffixes[-1] in _PACKED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


_BLOCK_BYTES = 4_000_000
_DELIMITERS = ",\t;|"
MISSING = ("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None", "#N/A", "n/a", "-nan", "<NA>", "?")
"""Cells that stand for a missing value."""
_BAD_CELL = re.compile(
    r"In CSV column #(\d+): Row #(\d+): CSV conversion error to (\w+).*: invalid value ('.*')"
)
_KINDS = {"double": "numeric", "int64": "whole numbers", "bool": "boolean", "timestamp": "dates"}


class CsvTable:
    """Text files with a line of names and the same columns, one after the other."""

    typed = False

    def __init__(self, files: Sequence[File], name: str, delimiter: str | None) -> None:
        self.files = list(files)
        self.name = name
        self.delimiter = self._guessed(delimiter)
        self.columns: list[str] = self._header(self.files[0])
        check_columns(self.columns, str(self.files[0]))
        for path in self.files[1:]:
            check_same_columns(path, self._header(path), self.files[0], self.columns)

    def chunks(self, columns: Sequence[str], types: Mapping[str, Any]) -> Iterator[Any]:
        """Record batches of about 4 MB of text, cut to at most `CHUNK_ROWS` rows."""
        pa, _ = import_arrow()
        wanted = {name: types.get(name, pa.string()) for name in columns}
        found = False
        for path in self.files:
            with _reading(path, self.columns), self._open(path, wanted) as reader:
                while (batch := next(reader, None)) is not None:
                    found = found or batch.num_rows > 0
                    for start in range(0, batch.num_rows, CHUNK_ROWS):
                        yield batch.slice(start, CHUNK_ROWS)
        if not found:
            raise SourceError(f"{self.name} has no rows below its line of names")

    def _open(self, path: File, types: Mapping[str, Any]) -> Any:
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
        with _reading(path):
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
        with _reading(self.files[0]), _stream(self.files[0]) as stream:
            line = stream.read(65_536).split(b"\n", 1)[0].decode("utf-8", errors="replace")
        if delimiter is not None and delimiter in line:
            return delimiter
        counts = {mark: line.count(mark) for mark in _DELIMITERS}
        best = max(counts, key=lambda mark: counts[mark])
        return best if counts[best] else delimiter or ","


def _stream(path: File) -> Any:
    """The bytes of a file, unpacked if its name says that they are packed."""
    if isinstance(path, RemoteFile):
        return path.filesystem.open_input_stream(path.path, compression="detect")
    pa, _ = import_arrow()
    return pa.input_stream(str(path), compression="detect")


@contextmanager
def _reading(path: File, columns: Sequence[str] = ()) -> Iterator[None]:
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


CHUNK_ROWS = 65_536
"""Rows of a table that are in memory at a time."""


class Table(Protocol):
    """Named columns of rows, read in chunks."""

    @property
    def name(self) -> str:
        """What to call it in messages."""
        ...

    @property
    def columns(self) -> Sequence[str]:
        """The names, in the order of the table."""
        ...

    def chunks(self, columns: Sequence[str], types: Mapping[str, Any]) -> Iterator[Any]:
        """Arrow record batches with these columns, all rows in order.

        `types` has the Arrow types in which to read columns of text files, which have none of their own;
        columns that it does not name come as strings.
        """
        ...

    @property
    def typed(self) -> bool:
        """Whether columns have types of their own; text files have not."""
        ...


class FrameTable:
    """A table that is in memory."""

    typed = True

    def __init__(self, data: Any, name: str = "the data frame") -> None:
        self.name = name
        self.table = as_arrow(data)
        self.columns: list[str] = self.table.schema.names
        check_columns(self.columns, name)
        if self.table.num_rows == 0:
            raise SourceError(f"{name} has no rows")

    def chunks(self, columns: Sequence[str], types: Mapping[str, Any]) -> Iterator[Any]:
        """Record batches of at most `CHUNK_ROWS` rows."""
        pa, _ = import_arrow()
        table = self.table.select(list(columns)).combine_chunks()
        if not columns:
            return
        for batch in table.to_batches(max_chunksize=CHUNK_ROWS):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=batch.schema)


def open_table(data: Any) -> Table:
    """The table that a path or a data frame means.

    A path or URL is that of a CSV, TSV or Parquet file, or of a folder of files of one of these kinds,
    which are taken in the order of their names. Text files may be compressed (.csv.gz).

    >>> open_table({"age": [31, 47], "late": [True, False]}).columns
    ['age', 'late']
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "flights.csv").write_text("age,late\\n31,yes\\n47,no\\n")
    ...     open_table(f"{folder}/flights.csv").columns
    ['age', 'late']
    """
    if not isinstance(data, (str, os.PathLike)):
        return FrameTable(data)
    files = table_files(data)
    name = os.fspath(data)
    if kind_of_file(files[0].name) == "parquet":
        return ParquetTable(files, name)

    return CsvTable(files, name, usual_delimiter(files[0].name))


def is_table(data: Any) -> bool:
    """Whether it has been opened already."""
    return hasattr(data, "chunks") and hasattr(data, "typed")


def check_columns(columns: Sequence[str], name: str) -> None:
    """Refuse tables in which a column's name does not tell which it is."""
    seen: set[str] = set()
    repeated = sorted({column for column in columns if column in seen or seen.add(column)})  # type: ignore[func-returns-value]
    if repeated:
        raise SourceError(f"{name} has more than one column named {listed(repeated)}; rename them")
    if not columns:
        raise SourceError(f"{name} has no columns")


def check_same_columns(path: File, columns: Sequence[str], first: File, wanted: Sequence[str]) -> None:
    """Refuse a file of a folder that lacks columns which the first file has, or has more of them."""
    missing = [name for name in wanted if name not in columns]
    more = [name for name in columns if name not in wanted]
    if missing or more:
        what = f"has no column {listed(missing)}" if missing else f"has a column {listed(more)} more"
        raise SourceError(
            f"{path} {what}, unlike {first.name}; the files of a folder need the same columns"
        )
