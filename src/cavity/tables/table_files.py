"""The files that a path or URL means: of what kind they are, and in which order."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from cavity.errors import SourceError
from cavity.sources.locations import File, local_path, remote_files
from cavity.tables.names import suggestion

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
