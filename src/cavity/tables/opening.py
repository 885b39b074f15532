"""From a path or a data frame to a table: what kind of files it means, in which order."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from cavity.errors import SourceError
from cavity.tables.arrow import as_arrow, import_arrow
from cavity.tables.names import listed, suggestion

CHUNK_ROWS = 65_536
"""Rows of a table that are in memory at a time."""

_PARQUET = {".parquet", ".parq", ".pq"}
_TEXT = {".csv": ",", ".tsv": "\t", ".tab": "\t", ".txt": None}
_PACKED = {".gz", ".bz2", ".zst", ".lz4"}


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

    A path is that of a CSV, TSV or Parquet file, or of a folder of files of one of these kinds, which
    are taken in the order of their names. Text files may be compressed (.csv.gz).

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
    path = Path(data)
    files = _files(path)
    if _kind(files[0]) == "parquet":
        from cavity.tables.parquet_table import ParquetTable

        return ParquetTable(files, str(path))
    from cavity.tables.csv_table import CsvTable

    return CsvTable(files, str(path), _TEXT.get(_suffix(files[0])))


def check_columns(columns: Sequence[str], name: str) -> None:
    """Refuse tables in which a column's name does not tell which it is."""
    seen: set[str] = set()
    repeated = sorted({column for column in columns if column in seen or seen.add(column)})  # type: ignore[func-returns-value]
    if repeated:
        raise SourceError(f"{name} has more than one column named {listed(repeated)}; rename them")
    if not columns:
        raise SourceError(f"{name} has no columns")


def check_same_columns(path: Path, columns: Sequence[str], first: Path, wanted: Sequence[str]) -> None:
    """Refuse a file of a folder that lacks columns which the first file has, or has more of them."""
    missing = [name for name in wanted if name not in columns]
    more = [name for name in columns if name not in wanted]
    if missing or more:
        what = f"has no column {listed(missing)}" if missing else f"has a column {listed(more)} more"
        raise SourceError(
            f"{path} {what}, unlike {first.name}; the files of a folder need the same columns"
        )


def _files(path: Path) -> list[Path]:
    if not path.exists():
        folder = path.parent
        near = sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []
        words = suggestion(path.name, near)
        raise SourceError(f"{path}: there is no such file or folder{words if 'mean' in words else ''}")
    if not path.is_dir():
        if _kind(path) is None:
            raise SourceError(
                f"{path}: its name does not say what it is; CSV (.csv), TSV (.tsv) and Parquet "
                "(.parquet) files can be read"
            )
        return [_with_bytes(path)]
    files = sorted(p for p in path.iterdir() if _kind(p) and p.name[0] not in "._" and p.is_file())
    kinds = {_kind(file) for file in files}
    if not files:
        raise SourceError(f"{path}: the folder has no CSV, TSV or Parquet files of its own")
    if len(kinds) > 1:
        raise SourceError(
            f"{path}: the folder has files of several kinds ({files[0].name}, "
            f"{next(f.name for f in files if _kind(f) != _kind(files[0]))}); keep one kind a folder"
        )
    return [_with_bytes(file) for file in files]


def _with_bytes(path: Path) -> Path:
    try:
        with path.open("rb") as file:
            empty = not file.read(1)
    except OSError as error:
        raise SourceError(f"{path}: cannot be read ({error.strerror})") from error
    if empty:
        raise SourceError(f"{path}: the file is empty")
    return path


def _suffix(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in _PACKED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def _kind(path: Path) -> str | None:
    suffix = _suffix(path)
    if suffix in _PARQUET:
        return "parquet"
    return "text" if suffix in _TEXT else None
