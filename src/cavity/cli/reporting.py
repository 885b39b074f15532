"""`cavity report`."""

from __future__ import annotations

from typing import Any

import numpy as np

from cavity.cli.bar import progress_shown
from cavity.cli.guard import CommandError, say
from cavity.cli.models import loaded_model, with_target
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

    model = loaded_model(model_path)
    table = with_target(model, model_path, open_table(data), data)
    with progress_shown() as watcher:
        watcher.stage(f"reading {data}")
        X, y, n_rows = labelled_rows(model, table, MOST_ROWS)
        before: dict[str, Any] = {}
        if training is not None:
            watcher.stage(f"reading {training}")
            rows = with_target(model, model_path, open_table(training), training)
            X_train, y_train, _ = labelled_rows(model, rows, None)
            before = {"X_train": X_train, "y_train": y_train}
        watcher.stage("writing the report")
        title = f"{model.target_}: {', '.join(map(str, model.classes_[:4]))}"
        write_report(model, path, X, y, max_rows=MOST_ROWS, title=title, **before)
    if n_rows > MOST_ROWS:
        say(f"the report is made of {MOST_ROWS:,} of {n_rows:,} rows, drawn at random")
    if json:
        print_json({"report": output, "rows": len(y), "rows_available": n_rows})


def labelled_rows(model: Any, table: Any, most: int | None) -> tuple[Any, Any, int]:
    """Rows of a table that have a target: a data frame, the labels, and how many there are.

    At most `most` rows, every one as likely as any other: those with the smallest random numbers.
    """
    import pyarrow as pa

    labels, preprocessor = model.labels_, model.preprocessor_
    columns = [*preprocessor.columns_, labels.target]
    types = {**preprocessor.text_types(), labels.target: labels.arrow_type}
    rng = np.random.default_rng(0)
    kept, codes, keys, n_rows = None, np.empty(0, int), np.empty(0), 0
    for chunk in table.chunks(columns, types):
        some = labels.codes(chunk.column(labels.target))
        known = np.flatnonzero(some >= 0)
        n_rows += len(known)
        rows = pa.Table.from_batches([chunk]).select(preprocessor.columns_).take(pa.array(known))
        kept = rows if kept is None else pa.concat_tables([kept, rows])
        codes = np.concatenate([codes, some[known]])
        keys = np.concatenate([keys, rng.random(len(known))])
        if most is not None and len(keys) > most:
            chosen = np.sort(np.argpartition(keys, most)[:most])
            kept, codes, keys = kept.take(pa.array(chosen)), codes[chosen], keys[chosen]
    if kept is None or not n_rows:
        raise CommandError(f"{table.name}: no row has a target, so there is nothing to report")
    return kept.to_pandas(), model.classes_[codes], n_rows
