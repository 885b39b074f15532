"""CSV and TSV files as a table, read block by block."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from cavity.errors import SourceError
from cavity.sources.locations import File, RemoteFile
from cavity.tables.arrow import import_arrow, one_line
from cavity.tables.opening import CHUNK_ROWS, check_columns, check_same_columns

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
