"""Write files atomically: a file is either complete or not there."""

from __future__ import annotations

import errno
import os
import re
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # Windows, where an open file cannot be removed anyway
    fcntl = None  # type: ignore[assignment]


@contextmanager
def written_atomically(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a binary file that replaces `path` when the block ends without an error.

    The bytes go to a temporary file in the same folder, which is flushed to the disk before it is
    renamed. So `path` is always either the old file or the complete new one. An error, such as a full
    disk or a missing permission, leaves the old file as it was.
    """
    target = Path(path)
    name, descriptor = _unfinished(target)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if fcntl is not None:  # still locked, so that `remove_unfinished` elsewhere leaves it alone
                name.replace(target)
        if fcntl is None:
            name.replace(target)
    except BaseException as error:
        with suppress(OSError):
            name.unlink()
        if isinstance(error, OSError) and error.filename is None:  # a full disk, for instance
            error.filename = os.fspath(path)
        raise


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise the `OSError` that writing to `path` would raise, without changing the file."""
    name, descriptor = _unfinished(Path(path))
    os.close(descriptor)
    name.unlink()


def remove_unfinished(path: str | os.PathLike[str]) -> None:
    """Remove temporary files that killed processes have left beside `path`.

    Files that another process is writing at the moment stay, where the file system supports locks.
    """
    target = Path(path)
    pattern = re.compile(re.escape(f".{target.name}.") + r"[0-9a-f]{8}\.part")
    for name in os.listdir(target.parent):
        if pattern.fullmatch(name):
            with suppress(FileNotFoundError):
                _remove_unless_locked(target.parent / name)


def _unfinished(target: Path) -> tuple[Path, int]:
    """Create a temporary file beside `target`, open for writing and locked."""
    # The user's umask decides who may read it, as for any other file.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    if sys.platform == "win32":
        flags |= os.O_BINARY
    while True:
        name = target.parent / f".{target.name}.{secrets.token_hex(4)}.part"
        descriptor = os.open(name, flags, 0o666)
        _lock(descriptor)
        if os.fstat(descriptor).st_nlink:
            return name, descriptor
        os.close(descriptor)  # another process removed it before it was locked


def _lock(descriptor: int) -> None:
    """Lock a file for as long as it is open, to show other processes that it is in use."""
    if fcntl is not None:
        with suppress(OSError):  # some file systems have no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)


def _remove_unless_locked(name: Path) -> None:
    """Remove a file that no other process has locked."""
    descriptor = os.open(name, os.O_RDONLY)
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        name.unlink()
    except BlockingIOError:
        return
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL):
            raise
        name.unlink()
    finally:
        os.close(descriptor)
