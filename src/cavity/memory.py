"""Memory that was freed is kept for the next tile: taking it from the system again costs page faults.

How much memory there is, and saying no before it is gone.

Slices of rows that fit in a core's cache, for several passes over the same rows.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_KEPT_BYTES = 256 * 2**20
_LARGEST_FROM_HEAP = 32 * 2**20
"""The most that glibc takes from its heaps rather than from the system."""
_DEFAULT_THRESHOLD = 128 * 2**10
_PAGE = 4096


def expect_large_arrays() -> None:
    """Let the allocator of this process see that arrays of up to 32 MB come and go.

    glibc adapts: after such an array has been freed it takes others of up to that size from its heap and
    keeps twice as much of what is freed. One that is never touched costs nothing, and what it changes is
    what any program that handles arrays of that size has changed already.

    >>> expect_large_arrays()
    """
    import numpy as np  # not above: the command's help needs this room, but no arrays

    np.empty(_LARGEST_FROM_HEAP - 2 * _PAGE, dtype=np.uint8)


def keep_freed_memory() -> bool:
    """Tell the allocator of this process to keep what is freed; whether it could be told.

    The arrays of a tile take megabytes, which glibc returns to the system when they are freed and maps
    again, page by page, for the next tile: a third of the time of a prediction. It is a setting of the
    whole process, so a command may choose it, and a library may not.

    >>> keep_freed_memory() in (True, False)
    True
    """
    return _set(_LARGEST_FROM_HEAP, _KEPT_BYTES, _LARGEST_FROM_HEAP)


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """For a while: what was kept goes back to the system at the end.

    >>> with freed_memory_kept():
    ...     pass
    """
    known = keep_freed_memory()
    try:
        yield
    finally:
        if known:
            trim = int(os.environ.get("MALLOC_TRIM_THRESHOLD_", _DEFAULT_THRESHOLD))
            _set(_DEFAULT_THRESHOLD, trim, 0)
            return_freed_memory()


def return_freed_memory() -> None:
    """Give back to the system what was freed and is not needed again soon, where there is a way.

    >>> return_freed_memory()
    """
    library = _glibc()
    if library is not None:
        library.malloc_trim(0)


def _set(mmap_threshold: int, trim_threshold: int, top_pad: int) -> bool:
    library = _glibc()
    if library is None:
        return False
    done = [
        library.mallopt(_MMAP_THRESHOLD, mmap_threshold),
        library.mallopt(_TRIM_THRESHOLD, trim_threshold),
        library.mallopt(_TOP_PAD, top_pad),
    ]
    return all(done)


def _glibc() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    try:
        library = ctypes.CDLL(None)
        library.mallopt, library.malloc_trim  # noqa: B018  (another C library has neither)
    except (OSError, AttributeError):
        return None
    return library


class _Files(NamedTuple):
    """How a version of control groups names what is known of a group's memory."""

    controller: str
    """In /proc/self/cgroup; the second version has but one, without a name."""
    mounts: tuple[str, ...]
    limit: str
    used: str
    reclaimable: str
    """In memory.stat: of files, which make room when memory is needed."""


_CGROUPS = (
    _Files("", ("", "unified"), "memory.max", "memory.current", "inactive_file"),
    _Files(
        "memory",
        ("memory",),
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        "total_inactive_file",
    ),
)


def available_bytes(root: Path = Path("/")) -> int | None:
    """Memory that can be had without swapping, where the system tells (Linux); else None.

    In a container, or any other control group, no more than the group is allowed; `root` is the place
    that /proc and /sys are in.
    """
    known = [value for value in (_free(root), _left_in_cgroups(root)) if value is not None]
    return min(known, default=None)


def _free(root: Path) -> int | None:
    lines = _lines(root / "proc/meminfo")
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    return found[0] if found else None


def _left_in_cgroups(root: Path) -> int | None:
    """The least that is left to this process's control group and those that it is in."""
    left = []
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, place = line.split(":", 2)
        for files in _CGROUPS:
            if files.controller in controllers.split(","):
                for mount in files.mounts:
                    left += _left(root / "sys/fs/cgroup" / mount, place, files)
    return min(left, default=None)


def _left(base: Path, place: str, files: _Files) -> list[int]:
    left = []
    group = PurePosixPath(place.lstrip("/"))
    # A container may see a path of the host that is not there: its own limits are then at the root.
    for name in (group, *group.parents):
        limit, used = _number(base / name / files.limit), _number(base / name / files.used)
        if limit is not None and used is not None:
            stat = dict(line.split(" ", 1) for line in _lines(base / name / "memory.stat"))
            left.append(max(0, limit - used + int(stat.get(files.reclaimable, 0))))
    return left


def _number(path: Path) -> int | None:
    lines = _lines(path)
    return int(lines[0]) if lines and lines[0].isdigit() else None  # "max" is no limit


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return []


def peak_bytes() -> int | None:
    """The largest resident size of this process so far, where the system tells."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)


def require_memory(needed: int, what: str, instead: str) -> None:
    """Raise `MemoryError`, with bytes and a way out, if `needed` bytes are more than there are."""
    available = available_bytes()
    if available is not None and needed > available:
        raise MemoryError(
            f"{what} needs {needed:,} bytes, and {available:,} are available; use {instead}"
        )


_CACHE_BYTES = 400_000


def cached_rows(n_rows: int, row_bytes: int) -> Iterator[slice]:
    """Consecutive slices that cover n_rows rows.

    >>> [(rows.start, rows.stop) for rows in cached_rows(5, 200_000)]
    [(0, 2), (2, 4), (4, 5)]
    """
    size = max(1, _CACHE_BYTES // max(1, row_bytes))
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))
