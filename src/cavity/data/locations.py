"""Files and folders that may not be read: an error of its own, for their contents may be sound.

Parquet files, their columns and whether these can be trained on; no row is read here.

Where Parquet files lie: in a folder of this machine, or anywhere that a URL leads to.
"""

from __future__ import annotations

import difflib
import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlparse
from urllib.request import url2pathname

import numpy as np

from cavity.data.source import tile_precision
from cavity.errors import SourceError


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


_MOST_NESTED = 10_000
"""Files and folders that are looked at for Parquet files in subfolders."""
_SUFFIXES = {".parquet", ".parq", ".pq"}


def import_pyarrow() -> tuple[Any, Any]:
    """The modules pyarrow and pyarrow.parquet, which are an optional dependency."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError("reading Parquet needs pyarrow: pip install 'cavity[parquet]'") from error
    return pyarrow, pyarrow.parquet


@dataclass(frozen=True)
class Columns:
    """The columns of a Parquet source, by role."""

    features: tuple[str, ...]
    target: str
    weight: str | None
    dtype: np.dtype[Any]
    """Precision of the features: float32 or float64."""


def is_parquet_name(path: Path) -> bool:
    """Whether the name of a file says that it is a Parquet file."""
    return path.suffix.lower() in _SUFFIXES


def list_files(path: str | os.PathLike[str]) -> list[Path]:
    """The Parquet files that a path means: itself, or those in that folder, sorted by name."""
    path = Path(path)
    with explain_permission_error(path):
        if not path.exists():
            near = path.parent.iterdir() if path.parent.is_dir() else ()
            hint = _pattern_hint(path) or _suggest(path.name, near)
            raise SourceError(f"{path}: there is no such file or folder{hint}")
        if not path.is_dir():
            return [path]
        files = sorted(p for p in path.iterdir() if is_parquet_name(p) and p.name[0] not in "._")
    if not files:
        nested = nested_file(path) is not None
        raise SourceError(
            f"{path}: the folder has no Parquet files (*.parquet)"
            + (" of its own, only in its subfolders; pass one of these" if nested else "")
        )
    return files


def nested_file(folder: Path) -> Path | None:
    """A Parquet file in a subfolder, if there is one; hidden ones and those of other tools aside."""
    for path in islice(folder.rglob("*"), _MOST_NESTED):
        inside = path.relative_to(folder)
        if len(inside.parts) > 1 and is_parquet_name(path) and _is_plain(inside) and path.is_file():
            return path
    return None


def _is_plain(path: Path) -> bool:
    return all(part[0] not in "._" for part in path.parts)


def _pattern_hint(path: Path) -> str:
    if not set(path.name) & set("*?["):
        return ""
    return (
        f"; patterns are not expanded: pass the folder {str(path.parent)!r}, whose *.parquet files are "
        "read as one table"
    )


def find_columns(
    schema: Any, path: Any, target: str, columns: Sequence[str] | None, weight: str | None
) -> Columns:
    """The columns to be used of a file with that schema."""
    names: list[str] = schema.names
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise SourceError(f"{path}: has more than one column named {sorted(repeated)}")
    for role, name in (("target", target), ("weight", weight)):
        if name is not None and name not in names:
            raise SourceError(f"{path}: has no {role} column {name!r}{_suggest(name, names)}")
    if columns is None:
        features = [name for name in names if name not in (target, weight, *_index_columns(schema))]
    else:
        features = [columns] if isinstance(columns, str) else list(columns)
    for name in features:
        if name not in names:
            raise SourceError(f"{path}: has no feature column {name!r}{_suggest(name, names)}")
        if name == target or features.count(name) > 1:
            what = "is the target" if name == target else "is listed twice"
            raise SourceError(f"columns={features}: {name!r} {what}; leave it out")
    if not features:
        raise SourceError(f"{path}: has no feature columns besides the target {target!r}")
    dtypes = _feature_dtypes(schema, path, features)
    if weight is not None:
        _feature_dtypes(schema, path, [weight])
    return Columns(tuple(features), target, weight, tile_precision(np.result_type(*dtypes)))


def check_same_schema(schema: Any, path: Any, first: Any, first_path: Any, columns: Columns) -> None:
    """Refuse a file whose used columns are not those of the first."""
    names = [*columns.features, columns.target, *([columns.weight] if columns.weight else [])]
    for name in names:
        if name not in schema.names:
            raise SourceError(f"{path}: has no column {name!r}, which {first_path.name} has")
        ours, theirs = schema.field(name).type, first.field(name).type
        if ours != theirs:
            raise SourceError(
                f"{path}: column {name!r} is {ours}, but {theirs} in {first_path.name}; the files of a "
                "folder need the same types: cast it"
            )


def check_no_more_columns(schema: Any, path: Any, first: Any, first_path: Any) -> None:
    """Refuse a file that has columns which the first has not: are they features?"""
    extra = [name for name in schema.names if name not in (*first.names, *_index_columns(schema))]
    if extra:
        raise SourceError(
            f"{path}: has columns {extra}, which {first_path.name} has not; name the features, as in "
            "ParquetSource(path, target, columns=[...]), or write the files with the same columns"
        )


def _feature_dtypes(schema: Any, path: Any, names: Sequence[str]) -> list[np.dtype[Any]]:
    types = import_pyarrow()[0].types
    dtypes: list[np.dtype[Any]] = []
    refused = []
    for name in names:
        kind = schema.field(name).type
        if types.is_decimal(kind):
            dtypes.append(np.dtype(np.float64))
        elif types.is_boolean(kind):
            dtypes.append(np.dtype(np.uint8))
        elif types.is_integer(kind) or types.is_floating(kind):
            dtypes.append(np.dtype(kind.to_pandas_dtype()))
        else:
            refused.append(f"{name!r} ({kind})")
    if refused:
        raise SourceError(
            f"{path}: columns that are not numeric: {', '.join(refused)}; encode them as numbers before "
            "writing the file (sklearn.preprocessing.OneHotEncoder, OrdinalEncoder or TargetEncoder; "
            "dates as days), or leave them out (of files, by ParquetSource(path, target, columns=[...]))"
        )
    return dtypes


def _suggest(name: str, among: Any) -> str:
    names = [str(getattr(other, "name", other)) for other in among]
    near = difflib.get_close_matches(name, names, n=1) or difflib.get_close_matches(
        name.lower(), [other.lower() for other in names], n=1
    )
    if not near:
        return f"; it has {', '.join(map(repr, names[:20]))}" if 0 < len(names) <= 20 else ""
    original = next(other for other in names if near[0] in (other, other.lower()))
    return f"; did you mean {original!r}?"


def _index_columns(schema: Any) -> list[str]:
    """What pandas writes of the index of a frame; it is not a feature of the frame."""
    index = (schema.pandas_metadata or {}).get("index_columns", [])
    return [name for name in index if isinstance(name, str)]


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
