"""Files from the network: cached, resumed where they were cut off, and checked."""

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
from typing import Any

from cavity.errors import DatasetError
from cavity.version import __version__

_BLOCK = 2**20
_ATTEMPTS = 4
"""How often a download that is cut off goes on, before it is left to the next call."""
_SECONDS = 30.0
"""Without a byte, after which a connection is given up."""


@dataclass(frozen=True)
class Checksum:
    """What a file must hash to."""

    algorithm: str
    """A name that `hashlib` knows."""
    value: str

    def matches(self, path: Path) -> bool:
        """Whether the file does."""
        found = hashlib.new(self.algorithm, usedforsecurity=False)
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                found.update(block)
        return found.hexdigest() == self.value.lower()


def cache_folder() -> Path:
    """Where downloads are kept: CAVITY_CACHE, or ~/.cache/cavity."""
    return Path(os.environ.get("CAVITY_CACHE") or Path.home() / ".cache" / "cavity")


def in_cache(name: str) -> Path:
    """Where a file of that name is kept, or will be."""
    return cache_folder() / name


def fetch(url: str, name: str, checksum: Checksum | None = None) -> Path:
    """The file behind a URL, from the cache if it is there under that name.

    It grows as `name.part` and gets its name when it is complete and has the right checksum. A
    download that was cut off goes on where it stopped; without a checksum, which would tell if the file
    has changed meanwhile, it starts again.
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
                f"{url} was cut off {_ATTEMPTS} times; what came is kept: call again to go on from there"
            )
        if checksum is not None and not checksum.matches(part):
            part.unlink()
            raise DatasetError(
                f"{url} does not have the {checksum.algorithm} {checksum.value} that it should have; "
                "the download was removed: try again later, in case it was damaged on its way"
            )
        part.replace(path)
    except OSError as error:
        raise DatasetError(f"could not write {str(path)!r}: {error}") from error
    return path


def fetch_json(url: str) -> Any:
    """What a web service answers; not cached."""
    with _answer(url, {"Accept": "application/json"}) as answer:
        try:
            return json.loads(answer.read())
        except (ValueError, OSError, http.client.HTTPException) as error:
            raise DatasetError(f"{url} gave no readable answer: {error}") from error


def _download(url: str, part: Path) -> bool:
    """Add to the part what is missing; whether it is complete now."""
    have = part.stat().st_size if part.exists() else 0
    with _answer(url, {"Range": f"bytes={have}-"} if have else {}) as answer:
        if answer.status == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            # Nothing is missing, or the file is another one now: the checksum tells.
            if answer.headers.get("Content-Range") == f"bytes */{have}":
                return True
            part.unlink()
            return False
        if answer.status != http.client.PARTIAL_CONTENT or not _starts_at(answer, have):
            have = 0  # all of it comes, whatever was asked for
        length = answer.headers.get("Content-Length")
        expected = None if length is None else have + int(length)
        with part.open("ab" if have else "wb") as file:
            try:
                while block := answer.read(_BLOCK):
                    have += file.write(block)
            except (ConnectionError, TimeoutError, http.client.HTTPException):
                return False
    return expected is None or have == expected


def _starts_at(answer: Any, start: int) -> bool:
    return str(answer.headers.get("Content-Range", "")).startswith(f"bytes {start}-")


@contextmanager
def _answer(url: str, headers: dict[str, str]) -> Iterator[Any]:
    if not url.startswith(("http://", "https://")):
        raise DatasetError(f"{url} is not an address on the web")
    request = urllib.request.Request(url, headers={"User-Agent": f"cavity/{__version__}", **headers})
    try:
        answer = urllib.request.urlopen(request, timeout=_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code != http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            error.close()
            raise DatasetError(f"{url} answered {error.code} ({error.reason})") from error
        answer = error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise DatasetError(f"{url} could not be reached ({reason})") from error
    with answer:
        yield answer
