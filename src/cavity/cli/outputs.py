"""Where results go: checked before the work starts, whole or not at all."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from cavity.cli.guard import CommandError

STDOUT = "-"


def checked_output(path: str, force: bool) -> Path:
    """A path that can be written to, and does not exist unless `force`."""
    target = Path(path)
    folder = target.parent
    if not path:
        raise CommandError("the output has an empty name; give it one")
    if target.is_dir():
        raise CommandError(f"{path}: is a folder; give the output a name inside it")
    if target.exists() and not force:
        raise CommandError(f"{path}: exists already; choose another name, or --force to replace it")
    if not folder.is_dir():
        raise CommandError(f"{path}: there is no folder {str(folder)!r}; make it first")
    probe = folder / f".{target.name}.{os.getpid()}.part"
    try:
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise CommandError(f"{path}: cannot be written there ({error.strerror})") from error
    return target


def print_json(values: Any) -> None:
    """One JSON document on standard output."""
    print(json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False, default=_plain))


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays as Python's."""
    return value.tolist()


@contextmanager
def output_stream(path: str, force: bool) -> Iterator[IO[bytes]]:
    """A binary stream to standard output, or to a file that appears when the block ends well."""
    if path == STDOUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    from cavity.files import written_atomically

    with written_atomically(checked_output(path, force)) as file:
        yield file
