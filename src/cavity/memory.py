"""How much memory there is, and saying no before it is gone."""

from __future__ import annotations

import sys
from pathlib import Path, PurePosixPath
from typing import NamedTuple


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
