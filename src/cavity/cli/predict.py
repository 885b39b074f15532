"""The commands that apply a model to a table: `cavity predict`, `cavity evaluate`, `cavity report`."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from cavity.cli.deciding import decision_line, decision_of
from cavity.cli.guard import CommandError, Settings, say, show
from cavity.cli.io import (
    STDOUT,
    checked_output,
    loaded_model,
    opened_table,
    output_stream,
    print_json,
    target_of,
    warn_if_training_rows,
)
from cavity.cli.options import Deciding, Reading
from cavity.cli.progress import Watcher, progress_shown
from cavity.data.locations import DELIMITERS, FORMAT_OF, PARQUET
from cavity.data.table import Table
from cavity.estimators.facts import fit_facts
from cavity.estimators.table import TableClassifier
from cavity.estimators.table_prediction import (
    LabelledTableRows,
    encoded_chunks,
    predictions,
    warn_of_new_columns,
)
from cavity.gp.metrics import Decision, ScoreSums
from cavity.text import printable
from cavity.typing import JsonObject

if TYPE_CHECKING:
    from pyarrow import RecordBatch, Schema
    from pyarrow.csv import CSVWriter
    from pyarrow.parquet import ParquetWriter

_NAMES = {
    "nll": "negative log-likelihood",
    "error": "error",
    "brier": "Brier score",
    "calibration_error": "calibration error (ECE)",
    "auc": "area under the ROC curve",
    "average_precision": "average precision",
    "precision": "precision",
    "recall": "recall",
    "f1": "F1",
    "lift_10": "lift at 10 %",
    "cost": "mean cost",
}
"""Names of the scores, for people."""
_COLUMNS = 80
"""Width of the text of scores."""
MOST_ROWS = 20_000
"""Most rows in a report; from a larger table this many are drawn at random."""
_JSON_LINES = (".jsonl", ".ndjson")


def run_predict(
    model_path: str,
    data: str,
    output: str,
    keep: tuple[str, ...],
    level: float | None,
    jobs: int | None,
    reading: Reading,
    deciding: Deciding,
    settings: Settings,
) -> None:
    """Predict all rows of a table, chunk by chunk; with a `level`, say how uncertain each is."""
    if level is not None and not 0.0 < level < 1.0:
        raise CommandError(f"--level {level:g} is not between 0 and 1; give a number such as 0.9")
    suffix = _checked_suffix(output, settings.json)
    if output != STDOUT:
        checked_output(output, settings.force, (model_path, data))
    model = loaded_model(model_path, jobs)
    decision = decision_of(deciding, model.labels_)
    with opened_table(data, reading) as table:
        for name in keep:
            table.require(name, "column to keep,")
        started, n_rows, writer = time.perf_counter(), 0, None
        with progress_shown(settings.quiet) as watcher, output_stream(output, settings.force) as stream:
            watcher.stage(f"predicting {table.name}")
            try:
                for batch in predictions(model, table, keep, level, decision):
                    writer = _writer(stream, suffix, batch.schema) if writer is None else writer
                    writer.write_batch(batch)
                    n_rows += batch.num_rows
                    watcher.rows(n_rows, table.n_rows)
            finally:
                if writer is not None:
                    writer.close()
    seconds = time.perf_counter() - started
    if settings.json:
        rate = n_rows / seconds
        print_json({"output": output, "rows": n_rows, "seconds": seconds, "rows_per_second": rate})


def _checked_suffix(output: str, prints_json: bool) -> str:
    """The suffix of an output that can be written."""
    if output == STDOUT:
        if prints_json:
            raise CommandError(
                "--json and the predictions cannot both go to standard output; give -o a file name"
            )
        return ".csv"
    suffix = Path(output).suffix.lower()
    if (
        output
        and not Path(output).is_dir()
        and not (suffix in DELIMITERS or suffix in _JSON_LINES or FORMAT_OF.get(suffix) == PARQUET)
    ):
        raise CommandError(
            f"{output}: predictions are written as .parquet, .csv, .tsv or .jsonl; give -o such a file "
            "name"
        )
    return suffix


class _JsonLinesWriter:
    """Writes Arrow record batches as one JSON object a row."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def write_batch(self, batch: RecordBatch) -> None:
        """Write the rows."""
        lines = (json.dumps(row, ensure_ascii=False, default=str) for row in batch.to_pylist())
        self._stream.write("".join(f"{line}\n" for line in lines).encode("utf-8"))

    def close(self) -> None:
        """Nothing is left to write."""


def _writer(
    stream: IO[bytes], suffix: str, schema: Schema
) -> CSVWriter | ParquetWriter | _JsonLinesWriter:
    """A writer of Arrow record batches in the format of the suffix."""
    if suffix in _JSON_LINES:
        return _JsonLinesWriter(stream)
    if FORMAT_OF[suffix] == PARQUET:
        from pyarrow import parquet

        # A dictionary of the numbers, which hardly repeat, would take longer than all the rest.
        return parquet.ParquetWriter(stream, schema, use_dictionary=["label"])
    from pyarrow import csv

    options = csv.WriteOptions(delimiter=DELIMITERS[suffix], quoting_style="needed")
    return csv.CSVWriter(stream, schema, write_options=options)


def run_evaluate(
    model_path: str,
    data: str,
    weight: str | None,
    jobs: int | None,
    reading: Reading,
    deciding: Deciding,
    settings: Settings,
) -> None:
    """Score a model on the rows of a table that have a target."""
    model = loaded_model(model_path, jobs)
    decision = decision_of(deciding, model.labels_)
    with opened_table(data, reading) as table, progress_shown(settings.quiet) as watcher:
        table.require(target_of(model, model_path), "target column")
        check_weight(model, table, weight)
        sums = evaluation(model, table, weight, watcher, decision)
        warn_if_training_rows(model, table.name, sums.rows)
    scores = scores_of(model, sums)
    if settings.json:
        print_json({"model": model_path, "data": data, **scores})
    else:
        show(scores_as_text(scores))


def check_weight(model: TableClassifier, table: Table, weight: str | None) -> None:
    """Refuse the weight columns that a fit refuses."""
    if weight is None:
        return
    table.require(weight, "weight column")
    if weight == model.target_:
        raise CommandError(f"--weight {weight!r} is the target of the model; name another column")


def evaluation(
    model: TableClassifier,
    table: Table,
    weight: str | None,
    watcher: Watcher | None,
    decision: Decision | None = None,
) -> ScoreSums:
    """Sum the scores of a model over a table, in one streaming pass.

    watcher: shows the progress; decision: how labels are predicted, by default the likeliest ones.
    """
    labels = model.labels_
    decision = decision_of(Deciding(), labels) if decision is None else decision
    sums, read, missing, weightless = ScoreSums(len(labels.values), decision), 0, 0, 0
    warn_of_new_columns(model.preprocessor_, table, weight)
    if watcher is not None:
        watcher.stage(f"evaluating on {table.name}")
    with model.compute_context() as threads:
        for chunk in encoded_chunks(model.preprocessor_, table, [labels.target], weight):
            codes = labels.codes(chunk.rows.column(labels.target))
            known = codes >= 0
            if known.any():
                _, _, log_proba = model.moments_and_log_proba(
                    chunk.features[known], threads, chunk.numbers[known]
                )
                weights = None if chunk.weights is None else chunk.weights[known]
                sums.add(log_proba, codes[known], weights)
            missing += len(codes) - int(known.sum())
            weightless += chunk.n_read - len(codes)
            read += chunk.n_read
            if watcher is not None:
                watcher.rows(read, table.n_rows)
    if missing:
        say(f"{missing:,} rows without a target are left out")
    if weightless:
        say(f"{weightless:,} rows of weight 0 are left out")
    if not sums.rows.any():
        lacking = "a target" if weight is None else "a target and a weight above 0"
        raise CommandError(f"{table.name}: no row has {lacking}, so there is nothing to score")
    return sums


def scores_of(model: TableClassifier, sums: ScoreSums) -> JsonObject:
    """The scores, and those of a forecast by the class frequencies of training."""
    words, decision = [str(value) for value in model.labels_.values], sums.decision
    about: JsonObject = {"classes": words}
    if len(words) == 2:
        about["positive"] = words[decision.positive]
        about["threshold"] = decision.least_probability
    about["decision"] = decision_line(decision, words)
    return {**about, **sums.scores(model.labels_.totals)}


def scores_as_text(scores: JsonObject) -> str:
    """Format the scores as a table."""
    weighted = isinstance(scores["confusion"][0][0], float)
    total = f" with a total weight of {scores['weight']:,.15g}" if weighted else ""
    lines = [f"{scores['rows']:,} rows{total}", "", f"{'':26}{'model':>10}{'class frequencies':>20}"]
    for key, name in _NAMES.items():
        value, base = scores.get(key), scores["baseline"].get(key)
        if value is not None:
            lines.append(f"{name:26}{value:10.4f}{'' if base is None else f'{base:20.4f}'}")
    words = [printable(word) for word in scores["classes"]]
    if scores["decision"] is not None:
        lines.append(printable(scores["decision"]))
    lines += ["", "reliability: how often the likeliest class was right, by its probability in %"]
    for name, key in (("probability", "confidence"), ("was right", "accuracy")):
        numbers = (f"{100 * part[key]:4.0f}" for part in scores["reliability"])
        lines.append(f"{name:14}" + "".join(numbers))
    width = min(14, max(5, (_COLUMNS - 14) // len(words)))
    classes = [word if len(word) <= 12 else f"{word[:11]}…" for word in words]
    what = "weight of the rows" if weighted else "rows"
    lines += ["", f"{what} of each class (lines), by predicted label (columns):"]
    lines.append(" " * 14 + "".join(f"{word[: width - 1]:>{width}}" for word in classes))
    for word, counts in zip(classes, scores["confusion"], strict=True):
        lines.append(f"{word:14}" + "".join(f"{count:{width},.15g}" for count in counts))
    return "\n".join(lines)


def run_report(
    model_path: str,
    data: str,
    output: str,
    training: str | None,
    reading: Reading,
    settings: Settings,
) -> None:
    """Write the report on a model and the rows of a table."""
    path = checked_output(output, settings.force, (model_path, data, training))
    from cavity.report import write_report  # not for `cavity evaluate`
    from cavity.report.write import check_path

    check_path(path)
    model = loaded_model(model_path)
    with ExitStack() as stack:
        watcher = stack.enter_context(progress_shown(settings.quiet))
        table = stack.enter_context(opened_table(data, reading))
        table.require(target_of(model, model_path), "target column")
        watcher.stage(f"reading {table.name}")
        rows = LabelledTableRows(model, table)
        counts = np.bincount(rows.codes, minlength=len(model.classes_))
        warn_if_training_rows(model, table.name, counts)
        fitted = None
        if training is not None:
            whole = stack.enter_context(opened_table(training, reading))
            watcher.stage(f"reading {whole.name}")
            whole.require(target_of(model, model_path), "target column")
            fitted, known = LabelledTableRows(model, whole, model.weight_), fit_facts(model).rows
            if len(fitted) != known:
                raise CommandError(
                    f"--training {training} has {len(fitted):,} rows, and the model was fitted to "
                    f"{known:,}; give the table of the fit, or leave --training out: a fit with "
                    "--holdout has left rows of its table out"
                )
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
