"""Memory that was freed is kept for the next tile: taking it from the system again costs page faults."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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
