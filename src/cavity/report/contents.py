"""Everything that the page shows, computed before any of it is written."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy
import sklearn

import cavity
from cavity.plot.partial_dependence import Effect, partial_effect
from cavity.report import figures, tables
from cavity.report.scores import Evaluation, held_out_evaluation, left_out_evaluation, scores
from cavity.report.tables import cells_of_features, cells_of_frame
from cavity.report.target import KnownRows, Subject, rows_at, sample_index
from cavity.typing import Array, IntArray

_MAX_FEATURES = 20
_MAX_COLUMNS = 8


@dataclass(frozen=True)
class Wishes:
    """How much the report shall show."""

    max_rows: int
    n_hardest: int
    n_effects: int
    seed: int


@dataclass(frozen=True)
class Material:
    """The rows that the report is made of."""

    rows: KnownRows
    """Rows for summaries and pictures."""
    rows_are_training: bool
    n_rows: int
    """Rows of which they were drawn."""
    evaluation: Evaluation | None
    suspects: KnownRows
    """Candidates for the most surprising rows …"""
    suspects_log_proba: Array
    """… and the log probability of their labels."""
    suspects_left_out: bool
    """Whether that is by leave-one-out rather than of held-out rows."""
    suspects_raw: Any = None
    """The same rows as a data frame of the user's, if features were made of its columns."""


def contents(
    subject: Subject, held_out: tuple[Any, Any], training: tuple[Any, Any], wishes: Wishes
) -> dict[str, Any]:
    """The variables of the template."""
    material = gather(subject, held_out, training, wishes)
    page: dict[str, Any] = {
        "facts": tables.fitted_facts(subject),
        "kernel": str(subject.classifier.kernel_),
        "parameters": tables.chosen_parameters(subject.classifier),
        "costs": tables.time_and_memory(subject),
        "convergence": figures.convergence(subject) if subject.classifier.history_ else None,
        "versions": versions(),
        "written": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "relevance": figures.relevance(subject, _MAX_FEATURES),
        **performance_part(subject, material),
    }
    if material is None:
        unseen = tables.unseen_surprises(subject, wishes.n_hardest)
        return page | {"data": None, "effects": [], "plane": None, "surprises": unseen}
    order: IntArray = np.argsort(-subject.classifier.relevance_.value, kind="stable")
    return page | {
        "data": data_part(subject, material, order),
        "effects": effects_part(subject, material.rows.X, order, wishes),
        "plane": (
            figures.plane(subject, material.rows, two_features(material.rows.X, order))
            if len(order) > 1
            else None
        ),
        "surprises": surprises_part(subject, material, order),
    }


def gather(
    subject: Subject, held_out: tuple[Any, Any], training: tuple[Any, Any], wishes: Wishes
) -> Material | None:
    """Draw the rows to be shown from what there is."""
    evaluation, shown = None, None
    X, y = held_out
    if X is not None:
        chosen = sample_index(_length(X), wishes.max_rows, wishes.seed)
        shown = KnownRows(chosen, subject.prepare(_take(X, chosen)), subject.codes(_take(y, chosen)))
        evaluation = held_out_evaluation(subject, shown, _length(X))
    given = training_rows(subject, *training)
    if given is not None:
        return _with_training(subject, given, training[0], evaluation, wishes)
    if shown is None or evaluation is None:
        return None
    worst = tables.lowest(evaluation.true_log_proba, wishes.n_hardest)
    return Material(
        shown,
        False,
        evaluation.n_available,
        evaluation,
        KnownRows(shown.index[worst], shown.X[worst], shown.codes[worst]),
        evaluation.true_log_proba[worst],
        False,
        _raw(subject, X, shown.index[worst]),
    )


def _with_training(
    subject: Subject, given: TrainingRows, X: Any, evaluation: Evaluation | None, wishes: Wishes
) -> Material:
    loo = np.asarray(subject.classifier.loo_log_proba_, dtype=np.float64)
    worst = tables.lowest(loo, wishes.n_hardest)
    sample = sample_index(given.n_rows, wishes.max_rows, wishes.seed)
    found = given.at(np.concatenate([sample, worst]))
    rows, suspects = _some(found, sample), _some(found, worst)
    return Material(
        rows,
        True,
        given.n_rows,
        evaluation or left_out_evaluation(subject, rows),
        suspects,
        loo[suspects.index],
        True,
        _raw(subject, X, suspects.index),
    )


class TrainingRows(NamedTuple):
    """The rows of the fit: how many, and how to get at some of them."""

    n_rows: int
    at: Callable[[IntArray], KnownRows]


def training_rows(subject: Subject, X: Any, y: Any) -> TrainingRows | None:
    """The training rows: those given, or those that the classifier still has."""
    if X is None:
        source = subject.source
        return None if source is None else TrainingRows(source.n_rows, partial(rows_at, source))
    n, known = _length(X), len(subject.classifier.loo_log_proba_)
    if n != known:
        raise ValueError(
            f"X_train has {n:,} rows, but the classifier was fitted to {known:,}; pass the very rows of "
            "the fit, in their order"
        )

    def at(index: IntArray) -> KnownRows:
        wanted: IntArray = np.unique(index)
        return KnownRows(wanted, subject.prepare(_take(X, wanted)), subject.codes(_take(y, wanted)))

    return TrainingRows(n, at)


def performance_part(subject: Subject, material: Material | None) -> dict[str, Any]:
    """Scores and curves, or None where there is nothing to judge by."""
    evaluation = None if material is None else material.evaluation
    if evaluation is None:
        return {"evaluation": None, "scores": [], "reliability": None, "curves": []}
    both = len(np.unique(evaluation.codes)) > 1
    return {
        "evaluation": evaluation,
        "scores": scores(evaluation),
        "reliability": figures.reliability(subject, evaluation),
        "curves": (
            [figures.roc(subject, evaluation), figures.precision_recall(subject, evaluation)]
            if both
            else []
        ),
    }


def data_part(subject: Subject, material: Material, order: IntArray) -> dict[str, Any]:
    """Classes and features of the data."""
    return {
        "training": material.rows_are_training,
        "n_rows": material.n_rows,
        "n_shown": len(material.rows.index),
        "classes": tables.class_shares(material.rows.codes, subject),
        "columns": tables.columns_of(material.rows.X, subject.names, order[:_MAX_FEATURES]),
        "n_features": len(subject.names),
    }


def effects_part(
    subject: Subject, X: Array, order: IntArray, wishes: Wishes
) -> list[tuple[Effect, figures.Figure]]:
    """Partial dependence on the most important features."""
    effects = [
        partial_effect(subject.classifier, X, int(feature), seed=wishes.seed)
        for feature in order[: wishes.n_effects]
    ]
    return [(effect, figures.partial_dependence(subject, effect)) for effect in effects]


def surprises_part(subject: Subject, material: Material, order: IntArray) -> tables.Surprises:
    """The rows with the least probable labels."""
    raw, suspects = material.suspects_raw, material.suspects
    if raw is None:
        cells = cells_of_features(suspects.X, subject.names, order, _MAX_COLUMNS)
    else:
        cells = cells_of_frame(raw, subject.names, order, _MAX_COLUMNS)
    left_out = material.suspects_left_out
    names, naming = tables.names_of_rows(suspects, raw, left_out)
    rows = tables.surprises(subject, suspects, material.suspects_log_proba, cells, names)
    return tables.Surprises(left_out, cells.columns, cells.n_columns, rows, naming)


def two_features(X: Array, order: IntArray) -> tuple[int, int]:
    """The two most relevant features; if both have two values, the next that has more is the first."""
    first, second = int(order[0]), int(order[1])
    roomy = next((int(i) for i in order if len(np.unique(X[:, i])) > 2), first)
    return (first, second) if roomy in (first, second) else (roomy, first)


def versions() -> str:
    """What computed this."""
    return (
        f"cavity {cavity.__version__}, Python {platform.python_version()}, NumPy {np.__version__}, "
        f"SciPy {scipy.__version__}, scikit-learn {sklearn.__version__}"
    )


def _raw(subject: Subject, X: Any, index: IntArray) -> Any:
    return X.iloc[index] if subject.transforms and hasattr(X, "iloc") else None


def _some(rows: KnownRows, index: IntArray) -> KnownRows:
    inside = np.isin(rows.index, index)
    return KnownRows(rows.index[inside], rows.X[inside], rows.codes[inside])


def _length(X: Any) -> int:
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def _take(X: Any, index: IntArray) -> Any:
    if hasattr(X, "iloc"):
        return X.iloc[index]
    return (X if hasattr(X, "shape") else np.asarray(X))[index]
