"""Memory: settings of the allocator, how much is available, and slices of rows that fit in a cache."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import NamedTuple

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
"""Parameters of glibc's `mallopt`."""
_KEPT_BYTES = 256 * 2**20
"""Freed memory that `keep_freed_memory` lets a process keep."""
_LARGEST_FROM_HEAP = 32 * 2**20
"""Largest array that glibc can take from its heap instead of mapping it."""
_DEFAULT_THRESHOLD = 128 * 2**10
"""glibc's initial thresholds for mapping and trimming."""
_PAGE = 4096


def expect_large_arrays() -> None:
    """Prepare the allocator of this process for arrays of up to 32 MB.

    It allocates and frees one such array. glibc then takes arrays of up to that size from its heap and
    keeps up to twice as much freed memory. The array is never touched, so it costs nothing. Every
    program that uses arrays of that size has the same effect on the allocator.

    >>> expect_large_arrays()
    """
    import numpy as np  # not above: `cavity --help` imports this module and must not load NumPy

    np.empty(_LARGEST_FROM_HEAP - 2 * _PAGE, dtype=np.uint8)


def keep_freed_memory() -> bool:
    """Let the allocator of this process keep freed memory; return whether that is possible.

    The arrays of a tile take megabytes. By default glibc returns them to the system when they are freed
    and maps them again, page by page, for the next tile, which takes a third of the time of a
    prediction. The setting concerns the whole process, so a command may change it, but a library must
    not.

    >>> keep_freed_memory() in (True, False)
    True
    """
    return _set_allocator(_LARGEST_FROM_HEAP, _KEPT_BYTES, _LARGEST_FROM_HEAP)


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Keep freed memory inside the block, and return it to the system at the end.

    >>> with freed_memory_kept():
    ...     pass
    """
    known = keep_freed_memory()
    try:
        yield
    finally:
        if known:
            trim = int(os.environ.get("MALLOC_TRIM_THRESHOLD_", _DEFAULT_THRESHOLD))
            _set_allocator(_DEFAULT_THRESHOLD, trim, 0)
            return_freed_memory()


def return_freed_memory() -> None:
    """Return freed memory to the system, if the C library is glibc.

    >>> return_freed_memory()
    """
    library = _glibc()
    if library is not None:
        library.malloc_trim(0)


def _set_allocator(mmap_threshold: int, trim_threshold: int, top_pad: int) -> bool:
    library = _glibc()
    if library is None:
        return False
    done = [
        library.mallopt(_MMAP_THRESHOLD, mmap_threshold),
        library.mallopt(_TRIM_THRESHOLD, trim_threshold),
        library.mallopt(_TOP_PAD, top_pad),
    ]
    return all(done)


def _glibc() -> ctypes.CDLL | None:
    """The C library if it is glibc, else None."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        library = ctypes.CDLL(None)
        library.mallopt, library.malloc_trim  # noqa: B018  (other C libraries have neither)
    except (OSError, AttributeError):
        return None
    return library


class _GroupFiles(NamedTuple):
    """Names of the files in which a version of control groups records the memory of a group."""

    controller: str
    """Its name in /proc/self/cgroup; in version 2 it is empty."""
    mounts: tuple[str, ...]
    """Folders in /sys/fs/cgroup where it may be mounted."""
    limit: str
    """File with the limit."""
    used: str
    """File with the memory in use."""
    reclaimable: str
    """Entry of memory.stat with cached files, which the system drops when memory is needed."""


_CGROUPS = (
    _GroupFiles("", ("", "unified"), "memory.max", "memory.current", "inactive_file"),
    _GroupFiles(
        "memory",
        ("memory",),
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        "total_inactive_file",
    ),
)


def available_bytes(root: Path = Path("/")) -> int | None:
    """Memory in bytes that is available without swapping; None where that is not known (not Linux).

    In a container, or any other control group, it is at most what the group may still use. `root` is the
    folder that contains /proc and /sys.
    """
    known = [value for value in (_free_in_machine(root), _left_in_cgroups(root)) if value is not None]
    return min(known, default=None)


def _free_in_machine(root: Path) -> int | None:
    """Memory that the machine has available."""
    lines = _lines_of(root / "proc/meminfo")
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    return found[0] if found else None


def _left_in_cgroups(root: Path) -> int | None:
    """Memory that the control group of this process, and all groups around it, may still use."""
    left = []
    for line in _lines_of(root / "proc/self/cgroup"):
        _, controllers, place = line.split(":", 2)
        for files in _CGROUPS:
            if files.controller in controllers.split(","):
                for mount in files.mounts:
                    left += _left_in_group(root / "sys/fs/cgroup" / mount, place, files)
    return min(left, default=None)


def _left_in_group(base: Path, place: str, files: _GroupFiles) -> list[int]:
    """Memory that a group and each of its parents may still use."""
    left = []
    group = PurePosixPath(place.lstrip("/"))
    # A container may see the path of its group on the host; its own limits are then at the root.
    for name in (group, *group.parents):
        limit, used = _limit_in(base / name / files.limit), _limit_in(base / name / files.used)
        if limit is not None and used is not None:
            stat = dict(line.split(" ", 1) for line in _lines_of(base / name / "memory.stat"))
            left.append(max(0, limit - used + int(stat.get(files.reclaimable, 0))))
    return left


def _limit_in(path: Path) -> int | None:
    lines = _lines_of(path)
    return int(lines[0]) if lines and lines[0].isdigit() else None  # "max" means no limit


def _lines_of(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return []


def peak_bytes() -> int | None:
    """Largest resident size of this process so far in bytes; None on Windows."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)


def require_memory(needed: int, what: str, instead: str) -> None:
    """Raise `MemoryError` if `what` needs more bytes than are available; `instead` is the way out."""
    available = available_bytes()
    if available is not None and needed > available:
        raise MemoryError(
            f"{what} needs {needed:,} bytes, and {available:,} are available; use {instead}"
        )


_CACHE_BYTES = 400_000
"""Part of a core's cache that the rows of a slice may fill."""


def cached_rows(n_rows: int, row_bytes: int) -> Iterator[slice]:
    """Split n_rows rows into consecutive slices that fit in a core's cache.

    >>> [(rows.start, rows.stop) for rows in cached_rows(5, 200_000)]
    [(0, 2), (2, 4), (4, 5)]
    """
    size = max(1, _CACHE_BYTES // max(1, row_bytes))
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))
