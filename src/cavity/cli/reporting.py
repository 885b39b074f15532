"""`cavity report`."""

from __future__ import annotations

from typing import Any

import numpy as np

from cavity.cli.bar import progress_shown
from cavity.cli.guard import say
from cavity.cli.models import loaded_model, warn_of_training_rows, with_target
from cavity.cli.outputs import checked_output, print_json

MOST_ROWS = 20_000
"""Rows that a report is made of; of more, so many are drawn at random."""


def run_report(
    model_path: str, data: str, output: str, training: str | None, force: bool, json: bool
) -> None:
    """Write the report on a model and the rows of a table."""
    path = checked_output(output, force)
    from cavity.report import write_report
    from cavity.tables import open_table
    from cavity.tables.labelled_rows import LabelledRows

    model = loaded_model(model_path)
    table = with_target(model, model_path, open_table(data), data)
    with progress_shown() as watcher:
        watcher.stage(f"reading {data}")
        rows = LabelledRows(model, table)
        warn_of_training_rows(model, data, np.bincount(rows.codes, minlength=len(model.classes_)))
        before: dict[str, Any] = {}
        if training is not None:
            watcher.stage(f"reading {training}")
            whole = with_target(model, model_path, open_table(training), training)
            fitted = LabelledRows(model, whole, getattr(model, "weight_", None))
            before = {"X_train": fitted, "y_train": fitted.labels}
        watcher.stage("writing the report")
        title = f"Predicting {model.target_}"
        write_report(model, path, rows, rows.labels, max_rows=MOST_ROWS, title=title, **before)
    n_rows = rows.shape[0]
    if n_rows > MOST_ROWS:
        say(f"the report is made of {MOST_ROWS:,} of {n_rows:,} rows, drawn at random")
    if json:
        used = min(MOST_ROWS, n_rows)
        print_json({"report": output, "rows": used, "rows_available": n_rows})
