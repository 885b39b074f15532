"""Which code a number was measured with: digests of files, and whether the tree is as committed."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import cavity

ROOT = Path(__file__).parents[1]
SOURCE = Path(cavity.__file__).parent
ROUND_ABOUT = ("cli", "datasets", "export", "plot", "report")
"""Rooms that no fit and no prediction passes through: a change there makes no measurement old."""
MEASURED = ("src", "benchmarks/*.py", "benchmarks/*.txt")
"""What may not differ from the commit that a record names (a star also stands for folders)."""


class NotCleanError(RuntimeError):
    """The code that would be measured is not that of a commit."""


def digest(files: Iterable[Path]) -> str:
    """A short fingerprint of the contents of files, in their order."""
    total = hashlib.sha256()
    for file in files:
        content = file.read_bytes()
        total.update(f"{file.name} {len(content)} ".encode() + content)
    return total.hexdigest()[:12]


@lru_cache(maxsize=1)
def ours() -> str:
    """The fingerprint of the library that is imported here."""
    files = sorted(SOURCE.rglob("*.py"))
    return digest(f for f in files if f.relative_to(SOURCE).parts[0] not in ROUND_ABOUT)


def commit() -> str:
    """The commit that is measured, with a plus if the measured files differ from it."""
    try:
        name = _git("rev-parse", "--short", "HEAD").strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return name + "+" * bool(changed())


def changed() -> list[str]:
    """Tracked files of the library or the benchmarks that differ from the last commit."""
    lines = _git("status", "--porcelain", "--untracked-files=no", "--", *MEASURED).splitlines()
    return [line[3:] for line in lines]


def check_clean() -> None:
    """Raise `NotCleanError` unless the library comes from this tree, and the tree is as committed."""
    if SOURCE != ROOT / "src" / "cavity":
        raise NotCleanError(
            f"cavity is imported from {SOURCE}, not from this tree, so a record would name the wrong "
            "commit; set PYTHONPATH=src, or try the benchmark with --quick"
        )
    try:
        files = changed()
    except (OSError, subprocess.CalledProcessError) as error:
        raise NotCleanError(
            "the commit is not known, as git does not answer here; records name their commit. "
            "Try the benchmark with --quick"
        ) from error
    if files:
        more = f" and {len(files) - 3} more" if len(files) > 3 else ""
        raise NotCleanError(
            f"{', '.join(files[:3])}{more} differ from the last commit, and a record names a commit; "
            "commit them first, or try the benchmark with --quick"
        )


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
