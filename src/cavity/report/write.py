"""Write a report on a fitted classifier as one HTML file."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import TypeAlias

import numpy as np
import scipy
import sklearn
from sklearn.base import BaseEstimator

from cavity.data.source import Source
from cavity.estimators.facts import training_source
from cavity.files import written_atomically
from cavity.plot.canvas import require_matplotlib
from cavity.plot.features import Effect, partial_effect
from cavity.report import figures, tables
from cavity.report.scores import (
    Evaluation,
    confusion,
    held_out_evaluation,
    left_out_evaluation,
    scores,
    thresholds,
)
from cavity.report.target import (
    GivenRows,
    ReportRows,
    ReportTarget,
    View,
    given_rows,
    report_target,
    rows_at,
    sample_index,
    view_of,
    without_columns,
)
from cavity.text import printable_lines
from cavity.typing import Array, FeatureNames, InputLabels, InputRows, IntArray
from cavity.version import __version__

_MAX_FEATURES = 20
"""Features in the table of the data and in the figure of their relevance."""
_MAX_COLUMNS = 8
"""Columns in the table of the hardest rows."""
_MAX_CLASSES = 12
"""Classes up to which the confusion matrix is shown as such."""

LabelledInput: TypeAlias = tuple[InputRows, InputLabels]
"""Rows X [n, d] and their labels y [n] as the user gave them; both None if there are none."""
PageVariables: TypeAlias = dict[str, object]
"""Variables of the template, by name."""


def write_report(
    estimator: BaseEstimator,
    path: str | os.PathLike[str],
    X: InputRows = None,
    y: InputLabels = None,
    *,
    X_train: InputRows = None,
    y_train: InputLabels = None,
    feature_names: FeatureNames = None,
    pos_label: object = None,
    ids: str | Sequence[str] | None = None,
    title: str | None = None,
    max_rows: int = 10_000,
    n_hardest: int = 15,
    n_effects: int = 4,
    random_state: int = 0,
) -> Path:
    """Write a report on a fitted estimator to `path`: one HTML file that needs no other files.

    Parameters
    ----------
    estimator
        A fitted classifier of this library, a scikit-learn pipeline that ends in one, or a table
        classifier (which has `estimator_` and `transform`).
    path
        The file to write, whose name ends in .html. An error leaves an existing file as it was.
    X, y
        Rows [n, d] that took no part in training, and their labels [n], to judge the predictions by.
        Without them leave-one-out probabilities of the training rows are used, and the report says so.
        For a table classifier, X is a data frame or the path of files, and y may be the name of a
        column; None is that of the target.
    X_train, y_train
        The rows that the estimator was fitted to, in the same order. An estimator that was saved and
        loaded needs them, because it no longer holds its rows.
    feature_names
        Names [d] of the features; by default those that the estimator was fitted with.
    pos_label
        The class that thresholds, curves and effects are about. By default, the one of two classes that
        says so, such as "yes", true or 1, or the rarer one.
    ids
        Names of columns of X that name its rows, for the list of the most surprising ones. By default,
        those that a table classifier has left out because they number or name the rows.
    title
        Heading of the report.
    max_rows
        Number of rows, drawn at random from larger tables, that are judged and summarised. The report
        says so.
    n_hardest, n_effects
        Numbers of rows with improbable labels and of partial dependences to show.
    random_state
        Random seed.

    Returns
    -------
    The path.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import make_moons
    >>> from cavity import SEPClassifier
    >>> X, y = make_moons(300, noise=0.3, random_state=0)
    >>> model = SEPClassifier(n_inducing=10, random_state=0).fit(X[:200], y[:200])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = write_report(model, f"{folder}/moons.html", X[200:], y[200:])
    ...     "Most surprising rows" in written.read_text(encoding="utf-8")
    True
    """
    path = Path(path)
    check_path(path)
    if max_rows < 10:
        raise ValueError(f"max_rows={max_rows} is too small; a report needs at least 10 rows")
    require_matplotlib()
    render = _renderer()
    target = report_target(estimator, feature_names)
    if target.table is None:
        _check_pair(X=X, y=y)
        _check_pair(X_train=X_train, y_train=y_train)
    options = ReportOptions(
        int(max_rows),
        int(n_hardest),
        int(n_effects),
        int(random_state),
        pos_label,
        (ids,) if isinstance(ids, str) else ids,
    )
    page = render(
        title=title or default_title(target),
        style=_asset("style.css"),
        script=_asset("explorer.js"),
        **contents(target, (X, y), (X_train, y_train), options),
    )
    with written_atomically(path) as file:
        file.write(printable_lines(page).encode("utf-8"))
    return path


def default_title(target: ReportTarget) -> str:
    """Heading of a report: the target column of a table, or the method and the classes."""
    if target.table is not None and target.table.target_ is not None:
        return f"Predicting {target.table.target_}"
    return f"{target.facts.method}: {', '.join(target.classes[:4])}"


def check_path(path: Path) -> None:
    """Raise an error unless a report can be written to this path, which ends in .html.

    >>> check_path(Path("report.pdf"))
    Traceback (most recent call last):
    ValueError: path='report.pdf': a report is an HTML page; write it to 'report.html', open it in a \
browser and print it to PDF
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(f"path={str(path)!r}: there is no folder {str(path.parent)!r}; make it")
    if path.is_dir():
        raise IsADirectoryError(f"path={str(path)!r} is a folder; give the name of a file in it")
    kind = path.suffix.lower()
    if kind not in (".html", ".htm"):
        page = f"a report is an HTML page; write it to {str(path.with_suffix('.html'))!r}"
        way = ", open it in a browser and print it to PDF" if kind == ".pdf" else ""
        raise ValueError(f"path={str(path)!r}: {page}{way}")


def _check_pair(**rows: InputRows | InputLabels) -> None:
    missing = [name for name, value in rows.items() if value is None]
    if len(missing) == 1:
        raise ValueError(f"{' and '.join(rows)} belong together; {missing[0]} is missing")


def _renderer() -> Callable[..., str]:
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        raise ImportError(
            f"{error}: the report is put together with jinja2; install it with: "
            "pip install 'cavity[report]'"
        ) from error
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(_asset("page.html.jinja")).render


def _asset(name: str) -> str:
    return files("cavity.report").joinpath(name).read_text(encoding="utf-8")


@dataclass(frozen=True)
class ReportOptions:
    """Sizes of the parts of a report."""

    max_rows: int
    n_hardest: int
    n_effects: int
    seed: int
    pos_label: object = None
    ids: Sequence[str] | None = None


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
    codes = np.zeros(0, dtype=np.int64) if data is None else data.rows.codes
    target = target.about(options.pos_label, codes)
    page: PageVariables = {
        "facts": tables.fitted_facts(target),
        "fit": target.facts,
        "kernel": str(target.classifier.kernel_),
        "parameters": tables.chosen_parameters(target.classifier),
        "costs": tables.time_and_memory(target),
        "convergence": figures.convergence(target) if target.classifier.history_ else None,
        "versions": versions(),
        "written": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "relevance": figures.relevance(target, _MAX_FEATURES),
        "classes": target.classes,
        "positive": target.positive,
        "notes": target.notes,
        "column": "column" if target.table is not None else "feature",
        **performance_part(target, data),
    }
    if data is None:
        unseen = tables.unseen_surprises(target, options.n_hardest)
        return page | {"data": None, "effects": [], "plane": None, "surprises": unseen}
    view = view_of(target, data.rows)
    pair = two_features(view)
    return page | {
        "data": data_part(target, data, view),
        "effects": effects_part(target, view, options),
        "plane": None if pair is None else figures.plane(target, view, data.rows, pair),
        "surprises": surprises_part(target, data, view.order),
    }


def collect_data(
    target: ReportTarget, held_out: LabelledInput, training: LabelledInput, options: ReportOptions
) -> ReportData | None:
    """Draw the rows of a report; None if there are neither held-out nor training rows."""
    evaluation, shown = None, None
    if held_out[0] is not None:
        given = given_rows(target, *held_out, options.ids)
        shown = rows_at(given, sample_index(given.n_rows, options.max_rows, options.seed))
        evaluation = held_out_evaluation(target, shown, given.n_rows)
    trained = training_rows(target, *training, options.ids)
    # Training rows that the classifier holds itself are known as its inputs only, not by their columns.
    nameless = training[0] is None and (target.transforms or bool(options.ids))
    if trained is not None and not (nameless and shown is not None):
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


def training_rows(
    target: ReportTarget, X: InputRows, y: InputLabels, ids: Sequence[str] | None = None
) -> GivenRows | Source | None:
    """Return the training rows: those given, or those that the classifier still holds."""
    if X is None:
        return training_source(target.classifier)
    given, known = given_rows(target, X, y, ids), target.facts.rows
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
        return {
            "evaluation": None,
            "scores": [],
            "reliability": None,
            "curves": [],
            "confusion": None,
            "thresholds": None,
        }
    found = scores(evaluation, target.positive)
    error = next(score.value for score in found if "ECE" in score.name)
    return {
        "evaluation": evaluation,
        "scores": found,
        "reliability": figures.reliability(target, evaluation, error),
        "confusion": confusion(evaluation),
        "shows_matrix": len(target.classes) <= _MAX_CLASSES,
        "thresholds": None if target.positive is None else thresholds(evaluation, target.positive),
        "curves": (
            [figures.roc(target, evaluation), figures.precision_recall(target, evaluation)]
            if figures.judged(target, evaluation)
            else []
        ),
    }


def data_part(target: ReportTarget, data: ReportData, view: View) -> PageVariables:
    """Classes and columns of the data, the most relevant first."""
    return {
        "training": data.rows_are_training,
        "n_rows": data.n_rows,
        "n_shown": len(data.rows.index),
        "classes": tables.class_shares(data.rows.codes, target),
        "columns": tables.columns_of(view, _MAX_FEATURES),
        "n_columns": len(view.names),
        "what": "column" if view.estimator is target.table else "feature",
    }


def effects_part(
    target: ReportTarget, view: View, options: ReportOptions
) -> list[tuple[Effect, figures.Figure]]:
    """Partial dependence on the most relevant columns."""
    present = (j for j in view.order.tolist() if view.columns.grid(j, 1).has_values)
    effects = [
        partial_effect(view.estimator, view.X, column, seed=options.seed)
        for column in islice(present, options.n_effects)
    ]
    return [(effect, figures.partial_dependence(target, view, effect)) for effect in effects]


def surprises_part(target: ReportTarget, data: ReportData, order: IntArray) -> tables.Surprises:
    """The rows with the least probable labels; order: columns or inputs, the most relevant first."""
    hardest, left_out = data.hardest, data.hardest_left_out
    if hardest.frame is None:
        cells = tables.cells_of_features(hardest.X, target.names, order, _MAX_COLUMNS)
    elif target.table is not None:
        cells = tables.cells_of_columns(hardest.frame, target.table.columns_, order, _MAX_COLUMNS)
    else:
        frame = without_columns(hardest.frame, hardest.ids)
        cells = tables.cells_of_frame(frame, target.names, order, _MAX_COLUMNS)
    names, naming = tables.names_of_rows(hardest, left_out)
    rows = tables.surprises(target, hardest, data.hardest_log_proba, cells, names)
    ids = [str(name) for name in hardest.ids]
    return tables.Surprises(left_out, ids, cells.columns, cells.n_columns, rows, naming)


def two_features(view: View) -> tuple[int, int] | None:
    """Choose the two most relevant columns of numbers to plot; None if there are not two.

    One of them has more than two values, if any column has.
    """
    numbers = {int(j): view.columns.values(int(j)) for j in view.order}
    order = [
        j for j, values in numbers.items() if values.dtype.kind == "f" and not np.isnan(values).all()
    ]
    if len(order) < 2:
        return None
    first, second = order[:2]
    varied = next((j for j in order if len(np.unique(numbers[j])) > 2), first)
    return (first, second) if varied in (first, second) else (varied, first)


def versions() -> str:
    """Versions of the packages that computed the report."""
    return (
        f"cavity {__version__}, Python {platform.python_version()}, NumPy {np.__version__}, "
        f"SciPy {scipy.__version__}, scikit-learn {sklearn.__version__}"
    )
