"""Where Parquet files lie: in a folder of this machine, or anywhere that a URL leads to."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlparse
from urllib.request import url2pathname

from cavity.errors import SourceError
from cavity.sources.parquet_schema import import_pyarrow, is_parquet_name, list_files, nested_file

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")  # two letters at least: C:// is a drive


@dataclass(frozen=True)
class RemoteFile:
    """A file in some file system that pyarrow can read from."""

    url: str
    path: str
    """In its file system."""
    filesystem: Any

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


def find_files(path: str | os.PathLike[str]) -> list[File]:
    """The Parquet files that a path or URL means: itself, or those in that folder, sorted by name."""
    local = local_path(path)
    if local is not None:
        own = list_files(local)
        if local.is_dir() and (nested := nested_file(local)) is not None:
            warnings.warn(
                f"{local}: only the {len(own)} Parquet files in the folder itself are read, and none "
                f"of its subfolders, such as {str(nested)!r}; to read all of them pass "
                f"pyarrow.dataset.dataset({str(local)!r})",
                UserWarning,
                stacklevel=3,
            )
        return [*own]
    url = os.fspath(path).rstrip("/")
    files = remote_files(url, lambda name: is_parquet_name(Path(name)))
    if not files:
        raise SourceError(f"{url}: the folder has no Parquet files (*.parquet)")
    return [*files]


def remote_files(url: str, is_wanted: Callable[[str], bool]) -> list[RemoteFile]:
    """The file at a URL, or those in that folder whose names are wanted, sorted by name."""
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
        if info.is_file and is_wanted(info.base_name) and info.base_name[0] not in "._"
    )
    return [RemoteFile(f"{url}/{name}", f"{root}/{name}", filesystem) for name in names]


def _file_system(url: str) -> tuple[Any, str]:
    """A pyarrow file system and the path in it: through fsspec, or pyarrow's own."""
    import_pyarrow()
    from pyarrow.fs import FileSystem, FSSpecHandler, PyFileSystem

    try:
        from fsspec.core import url_to_fs

        if _is_web(url):
            # A copy, for as long as it is read: servers may send no parts, and every epoch asks again.
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
