"""Compute everything that the page of a report shows."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

import numpy as np
import scipy
import sklearn

from cavity.data.source import Source
from cavity.estimators.facts import training_source
from cavity.plot.partial_dependence import Effect, partial_effect
from cavity.report import figures, tables
from cavity.report.scores import Evaluation, held_out_evaluation, left_out_evaluation, scores
from cavity.report.target import GivenRows, ReportRows, ReportTarget, rows_at, sample_index
from cavity.typing import Array, InputLabels, InputRows, IntArray
from cavity.version import __version__

_MAX_FEATURES = 20
"""Features in the table of the data and in the figure of their relevance."""
_MAX_COLUMNS = 8
"""Columns in the table of the hardest rows."""


LabelledInput: TypeAlias = tuple[InputRows, InputLabels]
"""Rows X [n, d] and their labels y [n] as the user gave them; both None if there are none."""
PageVariables: TypeAlias = dict[str, object]
"""Variables of the template, by name."""


@dataclass(frozen=True)
class ReportOptions:
    """Sizes of the parts of a report."""

    max_rows: int
    n_hardest: int
    n_effects: int
    seed: int


@dataclass(frozen=True)
class ReportData:
    """The rows that a report is made from."""

    rows: ReportRows
    """Rows for summaries and figures."""
    rows_are_training: bool
    n_rows: int
    """Number of rows from which they were drawn."""
    evaluation: Evaluation | None
    hardest: ReportRows
    """Rows with the least probable labels."""
    hardest_log_proba: Array
    """[k]: log probabilities of these labels."""
    hardest_left_out: bool
    """Whether these are leave-one-out probabilities of training rows."""


def contents(
    target: ReportTarget, held_out: LabelledInput, training: LabelledInput, options: ReportOptions
) -> PageVariables:
    """Compute the variables of the template from held-out and training rows."""
    data = collect_data(target, held_out, training, options)
    page: PageVariables = {
        "facts": tables.fitted_facts(target),
        "kernel": str(target.classifier.kernel_),
        "parameters": tables.chosen_parameters(target.classifier),
        "costs": tables.time_and_memory(target),
        "convergence": figures.convergence(target) if target.classifier.history_ else None,
        "versions": versions(),
        "written": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "relevance": figures.relevance(target, _MAX_FEATURES),
        **performance_part(target, data),
    }
    if data is None:
        unseen = tables.unseen_surprises(target, options.n_hardest)
        return page | {"data": None, "effects": [], "plane": None, "surprises": unseen}
    order: IntArray = np.argsort(-target.classifier.relevance_.value, kind="stable")
    return page | {
        "data": data_part(target, data, order),
        "effects": effects_part(target, data.rows.X, order, options),
        "plane": (
            figures.plane(target, data.rows, two_features(data.rows.X, order))
            if len(order) > 1
            else None
        ),
        "surprises": surprises_part(target, data, order),
    }


def collect_data(
    target: ReportTarget, held_out: LabelledInput, training: LabelledInput, options: ReportOptions
) -> ReportData | None:
    """Draw the rows of a report; None if there are neither held-out nor training rows."""
    evaluation, shown = None, None
    if held_out[0] is not None:
        given = GivenRows(target, *held_out)
        shown = rows_at(given, sample_index(given.n_rows, options.max_rows, options.seed))
        evaluation = held_out_evaluation(target, shown, given.n_rows)
    trained = training_rows(target, *training)
    if trained is not None:
        return _training_data(target, trained, evaluation, options)
    if shown is None or evaluation is None:
        return None
    log_proba = evaluation.true_log_proba
    hardest = tables.lowest(log_proba, options.n_hardest)
    return ReportData(
        shown,
        False,
        evaluation.n_available,
        evaluation,
        shown.at(hardest),
        log_proba[hardest],
        False,
    )


def _training_data(
    target: ReportTarget,
    training: GivenRows | Source,
    evaluation: Evaluation | None,
    options: ReportOptions,
) -> ReportData:
    loo = np.asarray(target.classifier.loo_log_proba_, dtype=np.float64)
    lowest = tables.lowest(loo, options.n_hardest)
    sample = sample_index(training.n_rows, options.max_rows, options.seed)
    found = rows_at(training, np.concatenate([sample, lowest]))
    rows, hardest = found.numbered(sample), found.numbered(lowest)
    return ReportData(
        rows,
        True,
        training.n_rows,
        evaluation or left_out_evaluation(target, rows),
        hardest,
        loo[hardest.index],
        True,
    )


def training_rows(target: ReportTarget, X: InputRows, y: InputLabels) -> GivenRows | Source | None:
    """Return the training rows: those given, or those that the classifier still holds."""
    if X is None:
        return training_source(target.classifier)
    given, known = GivenRows(target, X, y), target.facts.rows
    if given.n_rows != known:
        raise ValueError(
            f"X_train has {given.n_rows:,} rows, but the classifier was fitted to {known:,}; pass the "
            "same rows as to fit, in the same order"
        )
    return given


def performance_part(target: ReportTarget, data: ReportData | None) -> PageVariables:
    """Scores and curves; empty if there are no predictions to judge."""
    evaluation = None if data is None else data.evaluation
    if evaluation is None:
        return {"evaluation": None, "scores": [], "reliability": None, "curves": []}
    several = len(np.unique(evaluation.codes)) > 1
    return {
        "evaluation": evaluation,
        "scores": scores(evaluation),
        "reliability": figures.reliability(target, evaluation),
        "curves": (
            [figures.roc(target, evaluation), figures.precision_recall(target, evaluation)]
            if several
            else []
        ),
    }


def data_part(target: ReportTarget, data: ReportData, order: IntArray) -> PageVariables:
    """Classes and features of the data; order [d]: the features, the most relevant first."""
    return {
        "training": data.rows_are_training,
        "n_rows": data.n_rows,
        "n_shown": len(data.rows.index),
        "classes": tables.class_shares(data.rows.codes, target),
        "columns": tables.columns_of(data.rows.X, target.names, order[:_MAX_FEATURES]),
        "n_features": len(target.names),
    }


def effects_part(
    target: ReportTarget, X: Array, order: IntArray, options: ReportOptions
) -> list[tuple[Effect, figures.Figure]]:
    """Partial dependence on the most relevant features."""
    effects = [
        partial_effect(target.classifier, X, int(feature), seed=options.seed)
        for feature in order[: options.n_effects]
    ]
    return [(effect, figures.partial_dependence(target, effect)) for effect in effects]


def surprises_part(target: ReportTarget, data: ReportData, order: IntArray) -> tables.Surprises:
    """The rows with the least probable labels."""
    hardest, left_out = data.hardest, data.hardest_left_out
    if hardest.frame is None:
        cells = tables.cells_of_features(hardest.X, target.names, order, _MAX_COLUMNS)
    else:
        cells = tables.cells_of_frame(hardest.frame, target.names, order, _MAX_COLUMNS)
    names, naming = tables.names_of_rows(hardest, left_out)
    rows = tables.surprises(target, hardest, data.hardest_log_proba, cells, names)
    return tables.Surprises(left_out, cells.columns, cells.n_columns, rows, naming)


def two_features(X: Array, order: IntArray) -> tuple[int, int]:
    """Choose the two most relevant features to plot; one of them has more than two values if any has."""
    first, second = int(order[0]), int(order[1])
    varied = next((int(i) for i in order if len(np.unique(X[:, i])) > 2), first)
    return (first, second) if varied in (first, second) else (varied, first)


def versions() -> str:
    """Versions of the packages that computed the report."""
    return (
        f"cavity {__version__}, Python {platform.python_version()}, NumPy {np.__version__}, "
        f"SciPy {scipy.__version__}, scikit-learn {sklearn.__version__}"
    )
