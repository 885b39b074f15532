"""Models from files, as the commands need them.

Where results go: checked before the work starts, whole or not at all.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from cavity.cli.guard import CommandError, say

if TYPE_CHECKING:
    from cavity.estimators.table import TableClassifier


def loaded_model(path: str, jobs: int | None = None) -> TableClassifier:
    """The model of a table in a file."""
    from cavity.estimators.table import TableClassifier
    from cavity.export.model_file import load
    from cavity.text import suggestion

    place = Path(path)
    if not place.exists():
        near = sorted(p.name for p in place.parent.iterdir()) if place.parent.is_dir() else []
        words = suggestion(place.name, near)
        raise CommandError(f"{path}: there is no such model file{words if 'mean' in words else ''}")
    model = load(path)
    if not isinstance(model, TableClassifier):
        raise CommandError(
            f"{path}: holds a {type(model).__name__}, which was fitted to arrays and knows no columns; "
            "use cavity.load in Python, or fit a model with cavity fit"
        )
    if jobs is not None:
        model.classifier_.set_params(n_jobs=jobs)
    return model


def with_target(model: TableClassifier, model_path: str, table: Any, data: str) -> Any:
    """The table, which must have the target of the model."""
    from cavity.text import suggestion

    if model.target_ not in table.columns:
        raise CommandError(
            f"{data}: has no column {model.target_!r}, the target of {model_path}, to compare with"
            f"{suggestion(str(model.target_), table.columns)}"
        )
    return table


def warn_of_training_rows(model: TableClassifier, data: str, counts: Any) -> None:
    """Warn if a table has as many rows of each class [C] as training had: it may be the same."""
    if counts.tolist() == model.labels_.counts.tolist():
        say(
            f"warning: {data} has as many rows of each class as the table of the fit; if they are "
            "the same rows, the scores flatter the model: use rows that took no part in the fit"
        )


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
