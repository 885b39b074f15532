"""Files that a path, pattern or URL means: which they are, of what format, and in which order."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from glob import glob
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import unquote, urlparse
from urllib.request import url2pathname

from cavity.errors import SourceError
from cavity.text import did_you_mean

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

PARQUET, FEATHER, TEXT, JSON, EXCEL = "Parquet", "Feather", "CSV", "JSON lines", "Excel"
FORMATS = (TEXT, JSON, PARQUET, FEATHER)
"""Formats of the files of a folder; an Excel file is read if it is named."""
FORMAT_OF = {
    ".parquet": PARQUET,
    ".parq": PARQUET,
    ".pq": PARQUET,
    ".feather": FEATHER,
    ".arrow": FEATHER,
    ".ipc": FEATHER,
    ".csv": TEXT,
    ".tsv": TEXT,
    ".tab": TEXT,
    ".txt": TEXT,
    ".jsonl": JSON,
    ".ndjson": JSON,
    ".xlsx": EXCEL,
}
"""The format of files, by the suffix of their names."""
DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
"""The character between the cells of text files, by suffix."""
_COMPRESSED = {".gz", ".bz2", ".zst", ".lz4"}
_MOST_NESTED = 10_000
"""Number of files and folders that are searched for files in subfolders."""
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")  # two letters at least: C:// is a drive


def format_of(name: str) -> str | None:
    """The format that the name of a file stands for, or None.

    >>> format_of("flights.csv.gz"), format_of("flights.pq"), format_of("flights.ods")
    ('CSV', 'Parquet', None)
    """
    return FORMAT_OF.get(_suffix(name))


def usual_delimiter(name: str) -> str | None:
    """The character between the cells of text files of this name, if the name tells.

    >>> usual_delimiter("flights.tsv.gz")
    '\\t'
    """
    return DELIMITERS.get(_suffix(name))


def _suffix(name: str) -> str:
    suffixes = [suffix.lower() for suffix in PurePosixPath(name).suffixes]
    if suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


@contextmanager
def explain_permission_error(path: object) -> Iterator[None]:
    """Turn a missing permission into an error that says what to change."""
    try:
        yield
    except PermissionError as error:
        raise SourceError(
            f"{path}: may not be read (Permission denied); change its permissions, or those of the "
            "folders that it lies in"
        ) from error


@dataclass(frozen=True)
class RemoteFile:
    """A file in some file system that pyarrow can read from."""

    url: str
    path: str
    """The path in the file system."""
    filesystem: FileSystem

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    def __str__(self) -> str:
        return self.url

    def __hash__(self) -> int:
        return hash(self.url)

    def size_and_time(self) -> tuple[int, int]:
        """Size in bytes and time of the last change, as far as the file system knows them."""
        info = self.filesystem.get_file_info(self.path)
        return info.size or 0, info.mtime_ns or 0


File: TypeAlias = Path | RemoteFile


def absolute(file: File) -> File:
    """The file, by a path that does not depend on the current folder."""
    return file.absolute() if isinstance(file, Path) else file


def local_path(path: str | os.PathLike[str]) -> Path | None:
    """The path on this machine that is meant, or None if it is a URL that leads elsewhere.

    >>> local_path("file:///tmp/flights.parquet").as_posix(), local_path("s3://bucket/flights")
    ('/tmp/flights.parquet', None)
    """
    text = os.fspath(path)
    if not _URL.match(text):
        return Path(text)
    parts = urlparse(text)
    return Path(url2pathname(parts.path)) if parts.scheme == "file" else None


def find_files(path: str | os.PathLike[str], formats: Sequence[str] = FORMATS) -> list[File]:
    """The files of one of the formats that a path means, sorted by name.

    A path is that of a file, of a folder, a pattern such as ``flights-*.csv``, or a URL of a file or
    folder. A folder means the files in it; a folder of `key=value` subfolders (a hive folder) means all
    files in them.
    """
    place = os.fspath(path)
    local = local_path(path)
    if local is None:
        return _of_one_format(place, [*_remote_files(place, formats)], formats)
    with explain_permission_error(local):
        if not local.exists():
            return _of_one_format(place, _matching(local, place), formats)
        if local.is_file():
            return [local]
        own = _of_formats(local, local.iterdir(), formats)
        nested = _nested_file(local, formats)
        if not own and nested is not None and is_hive(local, nested):
            own = _of_formats(local, local.rglob("*"), formats)
        elif own and nested is not None:
            warnings.warn(
                f"{local}: only the {len(own)} {format_of(own[0].name)} files in the folder itself are "
                f"read, and none of its subfolders, such as {str(nested)!r}; to read all of them pass "
                f"pyarrow.dataset.dataset({str(local)!r})",
                UserWarning,
                stacklevel=3,
            )
    if not own and nested is not None:
        raise SourceError(
            f"{local}: the folder has no {_words(formats)} files of its own, only in its subfolders, "
            f"such as {str(nested)!r}; pass one of these"
        )
    return _of_one_format(place, [*own], formats)


def _matching(pattern: Path, place: str) -> list[File]:
    """The files that match a pattern; raises if there are none."""
    matches = sorted(Path(found) for found in glob(str(pattern)) if Path(found).is_file())
    if matches:
        return [*matches]
    if set(pattern.name) & set("*?["):
        raise SourceError(f"{place}: no file matches this pattern")
    folder = pattern.parent
    near = sorted(other.name for other in folder.iterdir()) if folder.is_dir() else []
    raise SourceError(f"{place}: there is no such file or folder{did_you_mean(pattern.name, near)}")


def _of_formats(folder: Path, paths: Iterable[Path], formats: Sequence[str]) -> list[Path]:
    """Those of the paths in a folder that are files of one of the formats; hidden ones are left out."""
    return sorted(
        path
        for path in paths
        if format_of(path.name) in formats and _is_plain(path.relative_to(folder)) and path.is_file()
    )


def _nested_file(folder: Path, formats: Sequence[str]) -> Path | None:
    """A file of one of the formats in a subfolder, if there is one; hidden ones are left out."""
    for path in islice(folder.rglob("*"), _MOST_NESTED):
        inside = path.relative_to(folder)
        if len(inside.parts) > 1 and format_of(path.name) in formats and _is_plain(inside):
            return path
    return None


def _is_plain(path: Path) -> bool:
    return all(part[0] not in "._" for part in path.parts)


def is_hive(folder: Path, file: Path) -> bool:
    """Whether all folders between a folder and a file in it are named `key=value`."""
    return all("=" in part for part in file.relative_to(folder).parts[:-1])


def hive_keys(path: str | os.PathLike[str], file: File) -> dict[str, str]:
    """What the names of folders between a path and a file in it say: values by key.

    >>> hive_keys("flights", Path("flights/year=2013/month=1/part-0.parquet"))
    {'year': '2013', 'month': '1'}
    """
    root = local_path(path)
    if root is None or not isinstance(file, Path) or root not in file.parents:
        return {}
    pairs = [part.split("=", 1) for part in file.relative_to(root).parts[:-1] if "=" in part]
    return {key: unquote(value) for key, value in pairs}


def _of_one_format(place: str, files: list[File], formats: Sequence[str]) -> list[File]:
    if not files:
        raise SourceError(f"{place}: the folder has no {_words(formats)} files")
    found = [format_of(file.name) for file in files]
    other = next((f.name for f, kind in zip(files, found, strict=True) if kind != found[0]), None)
    if other is not None:
        raise SourceError(
            f"{place}: there are files of several formats ({files[0].name}, {other}); keep one format a "
            "folder"
        )
    return files


def _words(formats: Sequence[str]) -> str:
    return " or ".join([", ".join(formats[:-1]), formats[-1]]) if len(formats) > 1 else formats[0]


def _remote_files(url: str, formats: Sequence[str]) -> list[RemoteFile]:
    """The file at a URL, or those of the formats in that folder, sorted by name."""
    url = url.rstrip("/")
    filesystem, root = _file_system(url)
    from pyarrow.fs import FileSelector, FileType

    try:
        kind = filesystem.get_file_info(root).type
        if kind == FileType.File:
            return [RemoteFile(url, root, filesystem)]
        inside = (
            filesystem.get_file_info(FileSelector(root, recursive=False))
            if kind == FileType.Directory
            else None
        )
    except Exception as error:  # each file system has errors of its own
        raise SourceError(f"{url}: cannot be reached ({type(error).__name__}: {error})") from error
    if inside is None:
        what = "file, or its server does not answer" if _is_web(url) else "file or folder"
        raise SourceError(f"{url}: there is no such {what}")
    names = sorted(
        info.base_name
        for info in inside
        if info.is_file and format_of(info.base_name) in formats and info.base_name[0] not in "._"
    )
    return [RemoteFile(f"{url}/{name}", f"{root}/{name}", filesystem) for name in names]


def _file_system(url: str) -> tuple[FileSystem, str]:
    """A pyarrow file system and the path in it: through fsspec, or pyarrow's own."""
    from pyarrow.fs import FileSystem, FSSpecHandler, PyFileSystem

    try:
        from fsspec.core import url_to_fs

        if _is_web(url):
            # A local copy: some servers cannot send parts of a file, and every epoch reads it again.
            copy = {"simplecache": {"skip_instance_cache": True}}
            filesystem, root = url_to_fs(f"simplecache::{url}", **copy)
        else:
            filesystem, root = url_to_fs(url)
        return PyFileSystem(FSSpecHandler(filesystem)), root
    except Exception as error:  # fsspec, or what it needs for this scheme, may not be installed
        if _is_web(url) and isinstance(error, ImportError):
            raise SourceError(
                f"{url}: files of the web are read with fsspec and aiohttp: pip install 'fsspec[http]'"
            ) from error
        try:
            return FileSystem.from_uri(url)  # type: ignore[no-any-return]
        except Exception as other:
            raise SourceError(
                f"{url}: cannot be reached, neither with fsspec ({error}) nor with pyarrow ({other})"
            ) from error


def _is_web(url: str) -> bool:
    return urlparse(url).scheme.lower() in ("http", "https")
