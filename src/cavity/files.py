"""The one place that writes files: whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


@contextmanager
def written_atomically(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A binary file that takes the place of `path` when the block ends well, and only then.

    The bytes go to a temporary file in the same folder and reach the disk before it is renamed, so at
    every moment `path` is either the old file or the new one. A full disk or a missing permission
    raises and leaves the old file as it was.
    """
    target = Path(path)
    name = target.parent / f".{target.name}.{secrets.token_hex(4)}.part"
    # The user's umask says who may read it, as of any other file.
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        name.replace(target)
    except BaseException as error:
        with suppress(OSError):
            name.unlink()
        if isinstance(error, OSError) and error.filename is None:  # of a full disk, for instance
            error.filename = os.fspath(path)
        raise
