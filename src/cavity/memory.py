"""How much memory there is, and saying no before it is gone."""

from __future__ import annotations

import sys
from pathlib import Path


def available_bytes() -> int | None:
    """Memory that can be had without swapping, where the system tells (Linux); else None."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    return found[0] if found else None


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
