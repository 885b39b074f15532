"""The command `cavity fit --continue-from`: a model learns the rows of another table, too.

The posterior of a model is a Gaussian factor that stands for all rows that it has seen. New rows are
learned as those of a stream (`partial_fit`): their factors are found and multiplied with the old one,
and the kernel moves by steps whose length shrinks with the number of rows. So every row counts alike,
the old ones are not forgotten, and the table of the first fit is not needed.
"""

from __future__ import annotations

import time
from dataclasses import fields
from pathlib import Path

from cavity.cli.deciding import decision_of
from cavity.cli.fit import print_summary, save_model
from cavity.cli.guard import CommandError, Settings, SignalledError, ending_early, say
from cavity.cli.holdout import held_out_scores, holdout_parts, in_a_line
from cavity.cli.io import checked_output, loaded_model, opened_table, print_json, target_of
from cavity.cli.options import Deciding, FitRequest, Reading
from cavity.cli.predict import check_weight, scores_of
from cavity.cli.progress import Watcher, progress_shown
from cavity.data.source import RawRows
from cavity.data.table import Table
from cavity.estimators.streaming import StreamingGPClassifier
from cavity.estimators.table import TableClassifier
from cavity.estimators.table_prediction import encoded_chunks, warn_of_new_columns
from cavity.estimators.table_stream import absorb_rows
from cavity.gp.metrics import ScoreSums

_FOLLOWED = {"data", "output_path", "target", "continue_from", "weight", "holdout", "seed", "jobs"}
"""Options that go with `--continue-from`; the model keeps what the others would set."""


def run_continued_fit(request: FitRequest, reading: Reading, settings: Settings) -> None:
    """Let a model learn the rows of another table, save it and print a summary."""
    assert request.continue_from is not None
    _check_options(request)
    # The model itself may be replaced by what it becomes; the table may not.
    output = checked_output(request.output, settings.force, (request.data,))
    model = loaded_model(request.continue_from, request.jobs)
    _check_model(model, request.continue_from, request.target)
    started = time.perf_counter()
    with opened_table(request.data, reading) as table:
        table.require(target_of(model, request.continue_from), "target column")
        weight = model.weight_ if request.weight is None else request.weight
        check_weight(model, table, weight)
        warn_of_new_columns(model.preprocessor_, table, weight)
        held_out = None
        if request.holdout is not None:
            table, held_out = holdout_parts(table, request.holdout, request.seed)
        with progress_shown(settings.quiet) as watcher, ending_early() as first:
            before = _learn(model, table, weight, watcher)
            first.is_only_noted = True  # nothing that was learned is lost any more
            model.note_costs(model.fit_seconds_ + time.perf_counter() - started)
            save_model(model, Path(output))
        scores = {"new_rows_before": scores_of(model, before)}
        summary = {**print_summary(model, request.output, settings), **scores}
        n_new = scores["new_rows_before"]["rows"]
        if not settings.json:
            say(f"the new rows before they were learned, {in_a_line(scores['new_rows_before'])}")
        if first.number is not None:
            words = f"{n_new:,} rows of {table.name} were learned, and {request.output} was written"
            raise SignalledError(first.number, words, summary)
        if held_out is not None:
            summary["holdout"] = held_out_scores(model, held_out, weight, settings.quiet)
    if settings.json:
        print_json(summary)
    elif held_out is not None:
        say(f"holdout, {in_a_line(summary['holdout'])}")


def _learn(model: TableClassifier, table: Table, weight: str | None, watcher: Watcher) -> ScoreSums:
    """Learn the rows of a table, chunk by chunk, and score each chunk before it is learned.

    Ctrl-C ends it after the last chunk that is learned; before the first, it is raised.
    """
    watcher.stage(f"learning from {table.name}")
    labels = model.labels_
    sums, n_learned = ScoreSums(len(labels.values), decision_of(Deciding(), labels)), 0
    try:
        for chunk in encoded_chunks(model.preprocessor_, table, [labels.target], weight):
            codes = labels.codes(chunk.rows.column(labels.target))
            known = codes >= 0
            if not known.any():
                continue
            rows = RawRows(chunk.features, codes, chunk.weights).take(known)
            with model.compute_context() as threads:
                _, _, log_proba = model.moments_and_log_proba(rows.X, threads, chunk.numbers[known])
            absorb_rows(model, rows, weight)
            sums.add(log_proba, rows.labels, rows.weight)
            n_learned += len(rows.X)
            watcher.rows(n_learned, table.n_rows)
    except KeyboardInterrupt:
        if not n_learned:
            raise
    if not n_learned:
        raise CommandError(f"{table.name}: no row has a target, so there is nothing to learn")
    return sums


def _check_options(request: FitRequest) -> None:
    for field in fields(request):
        if field.name not in _FOLLOWED and vars(request)[field.name] != field.default:
            option = f"--{field.name.replace('_', '-')}"
            raise CommandError(
                f"{option} cannot be used with --continue-from, which keeps the settings of the model; "
                "leave it out, or fit all rows together"
            )


def _check_model(model: TableClassifier, path: str, target: str | None) -> None:
    """Refuse models that cannot learn more rows, and another target."""
    known = target_of(model, path)
    if target not in (None, known):
        raise CommandError(f"--target {target!r}: {path} predicts {known!r}; leave --target out")
    classifier = model.estimator_
    if not isinstance(classifier, StreamingGPClassifier):
        raise CommandError(
            f"{path}: a {type(classifier).__name__} cannot learn more rows; fit all rows together, or "
            "begin with --method sep or svi"
        )
    if classifier.class_weight == "balanced":
        raise CommandError(
            f"{path}: was fitted with --class-weight balanced, which depends on all rows; fit all rows "
            "together, or begin with weights such as --class-weight yes=2"
        )
