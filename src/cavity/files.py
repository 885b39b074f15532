"""The one place that writes files: whole or not at all."""

from __future__ import annotations

import errno
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # Windows, where a file that is open cannot be removed anyway
    fcntl = None  # type: ignore[assignment]


@contextmanager
def written_atomically(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A binary file that takes the place of `path` when the block ends well, and only then.

    The bytes go to a temporary file in the same folder and reach the disk before it is renamed, so at
    every moment `path` is either the old file or the new one. A full disk or a missing permission
    raises and leaves the old file as it was.
    """
    target = Path(path)
    name, descriptor = _unfinished(target)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if fcntl is not None:  # while it is held: `remove_unfinished` of others leaves it alone
                name.replace(target)
        if fcntl is None:
            name.replace(target)
    except BaseException as error:
        with suppress(OSError):
            name.unlink()
        if isinstance(error, OSError) and error.filename is None:  # of a full disk, for instance
            error.filename = os.fspath(path)
        raise


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise the `OSError` that writing to `path` would, without touching what is there."""
    name, descriptor = _unfinished(Path(path))
    os.close(descriptor)
    name.unlink()


def remove_unfinished(path: str | os.PathLike[str]) -> None:
    """Remove what a process that was killed while it wrote `path` has left beside it.

    What another process is writing at this moment stays, where the system tells.
    """
    target = Path(path)
    pattern = re.compile(re.escape(f".{target.name}.") + r"[0-9a-f]{8}\.part")
    for name in os.listdir(target.parent):
        if pattern.fullmatch(name):
            with suppress(FileNotFoundError):
                _remove_unless_held(target.parent / name)


def _unfinished(target: Path) -> tuple[Path, int]:
    """A new file beside `target` for what is to become it, open for writing and held."""
    # The user's umask says who may read it, as of any other file.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    while True:
        name = target.parent / f".{target.name}.{secrets.token_hex(4)}.part"
        descriptor = os.open(name, flags, 0o666)
        _hold(descriptor)
        if os.fstat(descriptor).st_nlink:
            return name, descriptor
        os.close(descriptor)  # it was taken for one that was left, just before it was held


def _hold(descriptor: int) -> None:
    """Show others that a file is in use, for as long as it is open: the lock goes with the process."""
    if fcntl is not None:
        with suppress(OSError):  # not on this file system
            fcntl.flock(descriptor, fcntl.LOCK_EX)


def _remove_unless_held(name: Path) -> None:
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
