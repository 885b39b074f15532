"""`cavity evaluate`."""

from __future__ import annotations

from typing import Any

import numpy as np

from cavity.cli.bar import progress_shown
from cavity.cli.guard import CommandError, say
from cavity.cli.models import loaded_model, warn_of_training_rows, with_target
from cavity.cli.outputs import print_json

_NAMES = {
    "nll": "negative log-likelihood",
    "error": "error",
    "brier": "Brier score",
    "calibration_error": "calibration error",
    "auc": "area under the ROC curve",
}


def run_evaluate(model_path: str, data: str, jobs: int | None, json: bool) -> None:
    """Score a model on the rows of a table that have a target."""
    from cavity.tables import open_table

    model = loaded_model(model_path, jobs)
    table = with_target(model, model_path, open_table(data), data)
    scores = evaluation(model, table)
    warn_of_training_rows(model, data, np.sum(scores["confusion"], axis=1))
    if json:
        print_json({"model": model_path, "data": data, **scores})
    else:
        print(as_text(scores))


def evaluation(model: Any, table: Any) -> dict[str, Any]:
    """The scores of a model on a table, in one streaming pass."""
    from cavity.tables.prediction import encoded_chunks, warn_of_new_columns
    from cavity.tables.scores import ScoreSums

    labels = model.labels_
    sums, missing = ScoreSums(len(labels.values)), 0
    warn_of_new_columns(model, table)
    with progress_shown() as watcher, model.computing() as threads:
        watcher.stage(f"evaluating on {table.name}")
        done = 0
        for features, chunk in encoded_chunks(model, table, {labels.target: labels.arrow_type}):
            codes = labels.codes(chunk.column(labels.target))
            known = codes >= 0
            missing += len(codes) - int(known.sum())
            if known.any():
                _, _, log_proba = model.moments_and_log_proba(features[known], threads)
                sums.add(log_proba, codes[known])
            done += len(codes)
            watcher.rows(done, getattr(table, "n_rows", None))
    if missing:
        say(f"{missing:,} rows without a target are left out")
    if not sums.confusion.sum():
        raise CommandError(f"{table.name}: no row has a target, so there is nothing to compare with")
    return {"classes": [str(value) for value in labels.values], **sums.scores(labels.counts)}


def as_text(scores: dict[str, Any]) -> str:
    """The scores as a table for people."""
    lines = [f"{scores['rows']:,} rows", "", f"{'':26}{'model':>10}{'class frequencies':>20}"]
    for key, name in _NAMES.items():
        value, base = scores[key], scores["baseline"].get(key)
        if value is not None:
            lines.append(f"{name:26}{value:10.4f}{'' if base is None else f'{base:.4f}':>20}")
    classes = [word if len(word) <= 12 else f"{word[:11]}…" for word in scores["classes"]]
    lines += ["", "rows of each class, by the label they were given:"]
    lines.append(" " * 14 + "".join(f"{word:>14}" for word in classes))
    for word, counts in zip(classes, scores["confusion"], strict=True):
        lines.append(f"{word:14}" + "".join(f"{count:14,}" for count in counts))
    return "\n".join(lines)
