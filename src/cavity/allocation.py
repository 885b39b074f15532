"""Memory that was freed is kept for the next tile: taking it from the system again costs page faults."""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_KEPT_BYTES = 256 * 2**20
_LARGEST_FROM_HEAP = 32 * 2**20
"""The most that glibc takes from its heaps rather than from the system."""


def keep_freed_memory() -> bool:
    """Tell the allocator of this process to keep what is freed; whether it could be told.

    The arrays of a tile take megabytes, which glibc returns to the system when they are freed and maps
    again, page by page, for the next tile: a third of the time of a prediction. It is a setting of the
    whole process, so a command may choose it, and a library may not.

    >>> keep_freed_memory() in (True, False)
    True
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    done = [
        set_option(_MMAP_THRESHOLD, _LARGEST_FROM_HEAP),
        set_option(_TRIM_THRESHOLD, _KEPT_BYTES),
        set_option(_TOP_PAD, _LARGEST_FROM_HEAP),
    ]
    return all(done)
