"""From a path, a URL or a data frame to a table."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from cavity.errors import SourceError
from cavity.sources.locations import File
from cavity.tables.arrow import as_arrow, import_arrow
from cavity.tables.names import listed
from cavity.tables.table_files import kind_of_file, table_files, usual_delimiter

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
        from cavity.tables.parquet_table import ParquetTable

        return ParquetTable(files, name)
    from cavity.tables.csv_table import CsvTable

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
