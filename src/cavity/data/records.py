"""Tables of records: files of JSON lines, and sheets of Excel."""

from __future__ import annotations

import datetime
import io
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING

from cavity.data.frames import check_column_names
from cavity.data.locations import File, RemoteFile, absolute
from cavity.data.parts import import_arrow, with_keys
from cavity.data.table import (
    BLOCK_BYTES,
    CHUNK_ROWS,
    FrameTable,
    Table,
    unpacked_stream,
)
from cavity.errors import SourceError, warn_user
from cavity.text import listed, one_line

if TYPE_CHECKING:
    import pyarrow as pa


class JsonTable(Table):
    """Files with one JSON object a line; the columns are all names that occur.

    The files are read once to find the names and their types: what is missing in some objects may be
    there in others, and a column of whole numbers may have a fraction far below.
    """

    def __init__(self, files: Sequence[File], name: str, keys: Sequence[Mapping[str, str]] = ()) -> None:
        pa, _ = import_arrow()
        self.files, self.name = list(files), name
        self.keys = [dict(some) for some in keys] or [{} for _ in files]
        """Values of the keys of a hive folder, for each file."""
        self.n_rows, schema = 0, pa.schema([])
        for path in self.files:
            for block in _blocks(path):
                found = _parsed(path, block)
                self.n_rows += found.num_rows
                schema = _joined(path, schema, found.schema)
        if self.n_rows == 0:
            raise SourceError(f"{name} has no rows")
        self.types = {field.name: field.type for field in schema}
        self.columns = [*self.types, *(key for key in self.keys[0] if key not in self.types)]
        check_column_names(self.columns, name)

    def pieces(self) -> list[JsonTable]:
        """A table for each file, by paths that do not depend on the current folder."""
        found = []
        for file, keys in zip(self.files, self.keys, strict=True):
            piece = copy(self)
            piece.files, piece.keys, piece.n_rows = [absolute(file)], [keys], None
            found.append(piece)
        return found

    def chunks(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Record batches of about 4 MB of text, cut to at most `CHUNK_ROWS` rows."""
        pa, _ = import_arrow()
        for path, keys in zip(self.files, self.keys, strict=True):
            inside = [name for name in columns if name not in keys]
            schema = pa.schema({name: self.types[name] for name in inside})
            for block in _blocks(path):
                table = _parsed(path, block, schema).combine_chunks()
                for batch in table.to_batches(max_chunksize=CHUNK_ROWS):
                    yield with_keys(batch, keys, columns) if keys else batch


def _blocks(path: File) -> Iterator[bytes]:
    """Pieces of a file of about 4 MB, each of whole lines."""
    rest = b""
    with unpacked_stream(path) as stream:
        while content := stream.read(BLOCK_BYTES):
            whole, mark, rest_of = (rest + content).rpartition(b"\n")
            rest = rest_of
            if whole.strip():
                yield whole + mark
        if rest.strip():
            yield rest


def _parsed(path: File, block: bytes, schema: pa.Schema | None = None) -> pa.Table:
    """The rows of some lines; with a schema, its columns alone, in its types."""
    pa, _ = import_arrow()
    from pyarrow import json

    options = json.ParseOptions(newlines_in_values=False)
    if schema is not None:
        options.explicit_schema = schema
        options.unexpected_field_behavior = "ignore"
    read = json.ReadOptions(use_threads=False, block_size=max(len(block), 1))
    try:
        return json.read_json(io.BytesIO(block), read_options=read, parse_options=options)
    except pa.ArrowInvalid as error:
        words = one_line(error)
        if block.lstrip()[:1] == b"[":
            words = "it begins with [, as one array of all rows does"
        raise SourceError(
            f"{path}: cannot be read as JSON lines ({words}); write one object a line, whose values "
            "under a name are all of one kind"
        ) from error


def _joined(path: File, before: pa.Schema, found: pa.Schema) -> pa.Schema:
    """The schema of two blocks: numbers with fractions, or text among dates, where one has any."""
    pa, _ = import_arrow()
    types = {field.name: field.type for field in before}
    for field in found:
        kind, other = field.type, types.get(field.name, field.type)
        if {kind, other} == {pa.string(), pa.timestamp("s")}:
            types[field.name] = pa.string()
            continue
        try:
            pair = [pa.schema({field.name: one}) for one in (other, kind)]
            types[field.name] = pa.unify_schemas(pair, promote_options="permissive").field(0).type
        except pa.ArrowException as error:
            raise SourceError(
                f"{path}: the values of {field.name!r} are {other} in some lines and {kind} in others; "
                "write them all as numbers, strings, truth values or dates"
            ) from error
    return pa.schema(types)


def excel_table(path: File, name: str) -> Table:
    """The first sheet of an Excel file, whose first row has the names of the columns, in memory."""
    try:
        import openpyxl
    except ImportError as error:
        raise ImportError("Excel files are read with openpyxl: pip install 'cavity[excel]'") from error
    if isinstance(path, RemoteFile):
        raise SourceError(f"{name}: Excel files are read from this machine; download it first")
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    except Exception as error:  # zipfile, XML and openpyxl raise many kinds for a damaged file
        raise SourceError(f"{name}: cannot be read as an Excel file ({one_line(error)})") from error
    try:
        sheet = book.worksheets[0]
        if len(book.worksheets) > 1:
            others = listed([other.title for other in book.worksheets[1:]])
            warn_user(f"{name}: only the first sheet, {sheet.title!r}, is read, and not {others}")
        rows = iter(sheet.iter_rows(values_only=True))
        names = [None if cell is None else str(cell).strip() for cell in next(rows, ())]
        cells = [row for row in rows if any(cell is not None for cell in row)]
    finally:
        book.close()
    columns = {}
    for j, column in enumerate(names):
        values = [row[j] if j < len(row) else None for row in cells]
        if column:
            if column in columns:
                raise SourceError(f"{name} has more than one column named {column!r}; rename them")
            columns[column] = [_cell(value) for value in values]
        elif any(value is not None for value in values):
            raise SourceError(f"{name}: column {j + 1} has no name in the first row; name it")
    check_column_names(list(columns), name)
    return FrameTable(columns, name)


def _cell(value: object) -> object:
    """A cell as Arrow knows it; a formula that failed, such as #DIV/0!, is missing."""
    if isinstance(value, str) and value.startswith("#") and value.endswith(("!", "?", "/A")):
        return None
    if isinstance(value, datetime.time):
        return value.isoformat()
    return value
