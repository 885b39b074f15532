"""Models from files, as the commands need them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cavity.cli.guard import CommandError, say

if TYPE_CHECKING:
    from cavity.tables import TableClassifier


def loaded_model(path: str, jobs: int | None = None) -> TableClassifier:
    """The model of a table in a file."""
    from cavity.persistence import load
    from cavity.tables import TableClassifier
    from cavity.tables.names import suggestion

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
    from cavity.tables.names import suggestion

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
