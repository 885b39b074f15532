"""The commands `cavity evaluate` and `cavity report`."""

from __future__ import annotations

import numpy as np

from cavity.cli.guard import CommandError, Settings, say, show
from cavity.cli.io import checked_output, loaded_model, print_json, warn_if_training_rows, with_target
from cavity.cli.progress import progress_shown
from cavity.data.table import Table, open_table
from cavity.estimators.table import TableClassifier
from cavity.estimators.table_prediction import LabelledRows, encoded_chunks, warn_of_new_columns
from cavity.gp.metrics import ScoreSums
from cavity.text import printable, suggestion
from cavity.typing import JsonObject

_NAMES = {
    "nll": "negative log-likelihood",
    "error": "error",
    "brier": "Brier score",
    "calibration_error": "calibration error",
    "auc": "area under the ROC curve",
}


def run_evaluate(
    model_path: str, data: str, weight: str | None, jobs: int | None, settings: Settings
) -> None:
    """Score a model on the rows of a table that have a target."""
    model = loaded_model(model_path, jobs)
    table = with_target(model, model_path, open_table(data), data)
    _check_weight(model, table, weight)
    sums = evaluation(model, table, weight, settings.quiet)
    warn_if_training_rows(model, data, sums.rows)
    classes = [str(value) for value in model.labels_.values]
    scores = {"classes": classes, **sums.scores(model.labels_.totals)}
    if settings.json:
        print_json({"model": model_path, "data": data, **scores})
    else:
        show(as_text(scores))


def _check_weight(model: TableClassifier, table: Table, weight: str | None) -> None:
    """Refuse the weight columns that a fit refuses."""
    if weight is not None and weight not in table.columns:
        raise CommandError(
            f"{table.name} has no weight column {weight!r}{suggestion(weight, table.columns)}"
        )
    if weight is not None and weight == model.target_:
        raise CommandError(f"{weight!r} is named as the weight column, but it is the target")


def evaluation(model: TableClassifier, table: Table, weight: str | None, quiet: bool) -> ScoreSums:
    """Sum the scores of a model over a table, in one streaming pass."""
    labels = model.labels_
    sums, read, missing, weightless = ScoreSums(len(labels.values)), 0, 0, 0
    warn_of_new_columns(model.preprocessor_, table, weight)
    with progress_shown(quiet) as watcher, model.compute_context() as threads:
        watcher.stage(f"evaluating on {table.name}")
        for chunk in encoded_chunks(
            model.preprocessor_, table, {labels.target: labels.arrow_type}, weight
        ):
            codes = labels.codes(chunk.rows.column(labels.target))
            known = codes >= 0
            if known.any():
                _, _, log_proba = model.moments_and_log_proba(chunk.features[known], threads)
                weights = None if chunk.weights is None else chunk.weights[known]
                sums.add(log_proba, codes[known], weights)
            missing += len(codes) - int(known.sum())
            weightless += chunk.n_read - len(codes)
            read += chunk.n_read
            watcher.rows(read, table.n_rows)
    if missing:
        say(f"{missing:,} rows without a target are left out")
    if weightless:
        say(f"{weightless:,} rows of weight 0 are left out")
    if not sums.rows.any():
        lacking = "a target" if weight is None else "a target and a weight above 0"
        raise CommandError(f"{table.name}: no row has {lacking}, so there is nothing to score")
    return sums


def as_text(scores: JsonObject) -> str:
    """Format the scores as a table."""
    weighted = isinstance(scores["confusion"][0][0], float)
    total = f" with a total weight of {scores['weight']:,.15g}" if weighted else ""
    lines = [f"{scores['rows']:,} rows{total}", "", f"{'':26}{'model':>10}{'class frequencies':>20}"]
    for key, name in _NAMES.items():
        value, base = scores[key], scores["baseline"].get(key)
        if value is not None:
            lines.append(f"{name:26}{value:10.4f}{'' if base is None else f'{base:.4f}':>20}")
    words = [printable(word) for word in scores["classes"]]
    classes = [word if len(word) <= 12 else f"{word[:11]}…" for word in words]
    what = "weight of the rows" if weighted else "rows"
    lines += ["", f"{what} of each class (lines), by predicted label (columns):"]
    lines.append(" " * 14 + "".join(f"{word:>14}" for word in classes))
    for word, counts in zip(classes, scores["confusion"], strict=True):
        lines.append(f"{word:14}" + "".join(f"{count:14,.15g}" for count in counts))
    return "\n".join(lines)


MOST_ROWS = 20_000
"""Most rows in a report; from a larger table this many are drawn at random."""


def run_report(
    model_path: str, data: str, output: str, training: str | None, settings: Settings
) -> None:
    """Write the report on a model and the rows of a table."""
    path = checked_output(output, settings.force)
    from cavity.report import write_report  # not for `cavity evaluate`

    model = loaded_model(model_path)
    table = with_target(model, model_path, open_table(data), data)
    with progress_shown(settings.quiet) as watcher:
        watcher.stage(f"reading {data}")
        rows = LabelledRows(model, table)
        warn_if_training_rows(model, data, np.bincount(rows.codes, minlength=len(model.classes_)))
        fitted = None
        if training is not None:
            watcher.stage(f"reading {training}")
            whole = with_target(model, model_path, open_table(training), training)
            fitted = LabelledRows(model, whole, model.weight_)
        watcher.stage("writing the report")
        title = f"Predicting {model.target_}"
        write_report(
            model,
            path,
            rows,
            rows.labels,
            X_train=fitted,
            y_train=None if fitted is None else fitted.labels,
            max_rows=MOST_ROWS,
            title=title,
        )
    n_rows = len(rows)
    if n_rows > MOST_ROWS:
        say(f"the report uses {MOST_ROWS:,} of {n_rows:,} rows, drawn at random")
    if settings.json:
        used = min(MOST_ROWS, n_rows)
        print_json({"report": output, "rows": used, "rows_available": n_rows})
