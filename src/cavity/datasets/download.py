"""Download files: cached, resumed after a broken connection, and checked."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from cavity.errors import DatasetError
from cavity.typing import JsonObject
from cavity.version import __version__

Response: TypeAlias = http.client.HTTPResponse | urllib.error.HTTPError
"""An answer of a server; an error is one too, since it has a status, headers and a body."""
_BLOCK = 2**20
"""Bytes that are read at a time."""
_ATTEMPTS = 4
"""Number of connections that one call makes for a file."""
_TIMEOUT = 30.0
"""Seconds without data after which a connection is closed."""


@dataclass(frozen=True)
class Checksum:
    """Expected checksum of a file."""

    algorithm: str
    """A name that `hashlib` knows."""
    value: str

    def matches(self, path: Path) -> bool:
        """Whether the file has this checksum."""
        found = hashlib.new(self.algorithm, usedforsecurity=False)
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                found.update(block)
        return found.hexdigest() == self.value.lower()


def cache_folder() -> Path:
    """Folder of the downloads: CAVITY_CACHE, or ~/.cache/cavity."""
    return Path(os.environ.get("CAVITY_CACHE") or Path.home() / ".cache" / "cavity")


def in_cache(name: str) -> Path:
    """Path of a file of that name in the cache, whether or not it exists."""
    return cache_folder() / name


def download_file(url: str, name: str, checksum: Checksum | None = None) -> Path:
    """Download the file at a URL, unless the cache has a file of that name, and return its path.

    The data are written to `name.part`, which is renamed when it is complete and has the right checksum.
    A download that was cut off is resumed. Without a checksum it starts again, because the file may have
    changed in the meantime.
    """
    path = in_cache(name)
    if path.exists():
        return path
    part = path.with_name(f"{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if checksum is None:
            part.unlink(missing_ok=True)
        for _ in range(_ATTEMPTS):
            if _download(url, part):
                break
        else:
            raise DatasetError(
                f"the download of {url} was cut off {_ATTEMPTS} times; call again to resume it"
            )
        if checksum is not None and not checksum.matches(part):
            part.unlink()
            raise DatasetError(
                f"{url} does not have the expected {checksum.algorithm} {checksum.value}; the download "
                "was removed: try again later, in case it was damaged in transit"
            )
        part.replace(path)
    except OSError as error:
        raise DatasetError(
            f"could not write {str(path)!r}: {error}; set CAVITY_CACHE to a folder with room for it"
        ) from error
    return path


def download_json(url: str) -> JsonObject:
    """Download and parse JSON; it is not cached."""
    with _response(url, {"Accept": "application/json"}) as response:
        try:
            parsed: JsonObject = json.loads(response.read())
        except (ValueError, OSError, http.client.HTTPException) as error:
            raise DatasetError(f"{url} did not return readable JSON: {error}") from error
    return parsed


def _download(url: str, part: Path) -> bool:
    """Download what the part still lacks, and return whether it is complete now."""
    have = part.stat().st_size if part.exists() else 0
    with _response(url, {"Range": f"bytes={have}-"} if have else {}) as response:
        if response.status == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            # Either the part is complete, which the checksum will confirm, or the file has changed.
            if response.headers.get("Content-Range") == f"bytes */{have}":
                return True
            part.unlink()
            return False
        if response.status != http.client.PARTIAL_CONTENT or not _starts_at(response, have):
            have = 0  # the server sends the whole file
        length = response.headers.get("Content-Length")
        expected = None if length is None else have + int(length)
        with part.open("ab" if have else "wb") as file:
            try:
                while block := response.read(_BLOCK):
                    have += file.write(block)
            except (ConnectionError, TimeoutError, http.client.HTTPException):
                return False
    return expected is None or have == expected


def _starts_at(response: Response, start: int) -> bool:
    """Whether a partial response begins at that byte."""
    return str(response.headers.get("Content-Range", "")).startswith(f"bytes {start}-")


@contextmanager
def _response(url: str, headers: dict[str, str]) -> Iterator[Response]:
    if not url.startswith(("http://", "https://")):
        raise DatasetError(f"{url} is not a web address; it must begin with http:// or https://")
    request = urllib.request.Request(url, headers={"User-Agent": f"cavity/{__version__}", **headers})
    try:
        response: Response = urllib.request.urlopen(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            error.close()
            raise DatasetError(f"{url} answered {error.code} ({error.reason})") from error
        response = error
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise DatasetError(f"{url} could not be reached ({reason})") from error
    with response:
        yield response
