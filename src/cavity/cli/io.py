"""Files of the commands: models and tables that are read, outputs that are written."""

from __future__ import annotations

import codecs
import io
import json
import operator
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

from cavity.cli.guard import CommandError, say
from cavity.text import did_you_mean, printable_json, printable_lines

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from cavity.cli.options import Reading
    from cavity.data.table import Table
    from cavity.estimators.table import TableClassifier
    from cavity.typing import IntArray, JsonObject


def loaded_model(path: str, jobs: int | None = None) -> TableClassifier:
    """Load a table classifier from a file."""
    from cavity.estimators.table import TableClassifier
    from cavity.export.model_file import load

    place = Path(path)
    if not place.exists():
        near = sorted(p.name for p in place.parent.iterdir()) if place.parent.is_dir() else []
        raise CommandError(f"{path}: there is no such model file{did_you_mean(place.name, near)}")
    model = load(path)
    if not isinstance(model, TableClassifier):
        raise CommandError(
            f"{path}: holds a {type(model).__name__}, which was fitted to arrays and has no column "
            "names; use cavity.load in Python, or fit a model with cavity fit"
        )
    if jobs is not None:
        model.estimator_.set_params(n_jobs=jobs)
    return model


STDIN = "-"
"""Name of a table that means standard input."""
_STDIN_NAME = "standard input"
"""What messages call it."""
_SUFFIXES = {b"PAR1": ".parquet", b"ARROW1": ".feather", b"\x1f\x8b": ".csv.gz", b"{": ".jsonl"}
"""Suffixes of files by their first bytes; others are text."""


@contextmanager
def opened_table(data: str, reading: Reading) -> Iterator[Table]:
    """The table that an argument means, for as long as the block lasts.

    Standard input is kept in a temporary file, since most commands go over the rows several times.
    """
    from cavity.data.table import open_table
    from cavity.errors import SourceError

    tab = reading.sep is not None and reading.sep.lower() in ("tab", "\\t")
    opened = partial(
        open_table,
        sep="\t" if tab else reading.sep,
        decimal=reading.decimal,
        encoding=reading.encoding,
        na_values=reading.na or None,
    )
    if data != STDIN:
        yield opened(data)
        return
    if sys.stdin.isatty():
        raise CommandError(
            "- is standard input, and that is this terminal; pipe a table into the command, as in "
            "zcat flights.csv.gz | cavity predict flights.cavity -"
        )
    with tempfile.TemporaryDirectory(prefix="cavity-") as folder:
        start = sys.stdin.buffer.read(_FIRST_BYTES)
        suffix = next((end for mark, end in _SUFFIXES.items() if start.startswith(mark)), ".csv")
        path = Path(folder, f"standard-input{suffix}")
        with path.open("wb") as file:
            file.write(start)
            shutil.copyfileobj(sys.stdin.buffer, file)
        try:
            table = opened(path)
        except SourceError as error:
            raise SourceError(str(error).replace(str(path), _STDIN_NAME)) from None
        table.name = _STDIN_NAME
        yield table


_FIRST_BYTES = 16
"""Bytes of standard input that tell what it is."""


def target_of(model: TableClassifier, path: str) -> str:
    """Name of the target of a model that was read from a path."""
    if model.target_ is None:
        raise CommandError(f"{path}: was fitted to labels without a name; fit it with cavity fit")
    return model.target_


def warn_if_training_rows(model: TableClassifier, data: str, counts: IntArray) -> None:
    """Warn if the rows of each class [C] are as many as in training: it may be the same table."""
    if counts.tolist() == model.labels_.counts.tolist():
        say(
            f"warning: {data} has as many rows of each class as the training table; if they are "
            "the same rows, the scores are too good: use rows that the model has not seen"
        )


STDOUT = "-"
"""Name of an output that means standard output."""


def checked_output(path: str, force: bool, inputs: Sequence[str | None] = ()) -> Path:
    """Return the path if it can be written to; unless `force`, it must not exist.

    inputs: files that the command reads, which it does not replace in any case.
    """
    target = Path(path)
    folder = target.parent
    if not path:
        raise CommandError("the name of the output is empty; give -o a file name")
    if target.is_dir():
        raise CommandError(f"{path}: is a folder; give a file name inside it")
    for read in inputs:
        if read is not None and target.exists() and os.path.exists(read) and target.samefile(read):
            raise CommandError(f"{path}: is a file that this command reads; choose another name")
    if target.exists() and not force:
        raise CommandError(f"{path}: exists already; choose another name, or replace it with --force")
    if not folder.is_dir():
        raise CommandError(f"{path}: there is no folder {str(folder)!r}; create it first")
    probe = folder / f".{target.name}.{os.getpid()}.part"
    try:
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise CommandError(f"{path}: cannot be written there ({error.strerror})") from error
    return target


def print_json(values: JsonObject) -> None:
    """Print one JSON document on standard output."""
    numpy_values = operator.methodcaller("tolist")
    text = json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False, default=numpy_values)
    print(printable_json(text))


class _Terminal(io.BytesIO):
    """A stream of UTF-8 text that is shown on a terminal, with control characters escaped."""

    def __init__(self) -> None:
        super().__init__()
        self._text = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def write(self, content: Buffer) -> int:
        """Show the text of some bytes, of which the last may be part of a character."""
        sys.stdout.write(printable_lines(self._text.decode(bytes(content))))
        return len(memoryview(content))


@contextmanager
def output_stream(path: str, force: bool) -> Iterator[IO[bytes]]:
    """Open a binary stream to standard output, or to a file that appears when the block succeeds."""
    if path == STDOUT:
        yield _Terminal() if sys.stdout.isatty() else sys.stdout.buffer
        sys.stdout.flush()
        return
    from cavity.files import written_atomically

    with written_atomically(checked_output(path, force)) as file:
        yield file
