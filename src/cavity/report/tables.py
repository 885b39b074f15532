"""The tables of the report: what was fitted, the data, the surprising rows, time and memory."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np

from cavity.plot.canvas import number
from cavity.plot.prediction import proba_at
from cavity.report.cells import Cells
from cavity.report.subject import Subject
from cavity.report.training_rows import KnownRows
from cavity.report.words import METHODS, duration, kernel_in_words, size
from cavity.typing import Array, IntArray


class Fact(NamedTuple):
    """A line of a table of facts."""

    name: str
    value: str


def fitted_facts(subject: Subject) -> list[Fact]:
    """What was fitted, in a few lines."""
    fit = subject.classifier
    kind = type(fit).__name__
    loo = np.asarray(fit.loo_log_proba_)
    visited = np.isfinite(loo)
    streamed = getattr(fit, "_stream", None) is not None
    facts = [
        Fact("Method", f"{kind}: {METHODS.get(kind, 'Gaussian process classification')}"),
        Fact("Likelihood", str(fit.likelihood)),
        Fact("Classes", ", ".join(subject.classes)),
        Fact("Rows of the last chunk" if streamed else "Training rows", f"{len(loo):,}"),
        Fact("Features", f"{len(subject.names):,}"),
        Fact("Inducing points", f"{len(fit.inducing_points_):,}"),
        Fact("Kernel", _sentence(kernel_in_words(fit.kernel_))),
    ]
    if np.isfinite(evidence := fit.log_marginal_likelihood_value_):
        facts.append(Fact("Log marginal likelihood", f"{evidence:,.1f} (estimate)"))
    if visited.any():
        few = "" if visited.all() else f", over the {visited.sum():,} rows that training has seen"
        facts.append(Fact("Leave-one-out NLL", f"{-loo[visited].mean():.4f}{few}"))
    return facts


def chosen_parameters(estimator: Any) -> list[Fact]:
    """Parameters that differ from their defaults."""
    from inspect import signature

    defaults = {
        name: parameter.default
        for name, parameter in signature(type(estimator).__init__).parameters.items()
    }
    return [
        Fact(name, _short(value))
        for name, value in estimator.get_params(deep=False).items()
        if not _same(value, defaults.get(name))
    ]


class Column(NamedTuple):
    """A feature of the data, summarised."""

    name: str
    mean: str
    deviation: str
    smallest: str
    median: str
    largest: str
    bars: list[float]
    """Heights of a histogram, the largest 1; one bar a value if they are few."""


def columns_of(X: Array, names: list[str], order: IntArray) -> list[Column]:
    """Summaries of the features of X [n, d], in this order."""
    return [_column(np.asarray(X[:, i], dtype=np.float64), names[i]) for i in order]


def _column(values: Array, name: str, n_bars: int = 20) -> Column:
    few = np.unique(values)
    if len(few) <= 31:
        counts = np.array([np.sum(values == value) for value in few])
    else:
        low, high = np.quantile(values, [0.005, 0.995])
        if high <= low:
            low, high = values.min(), values.max()
        counts, _ = np.histogram(values.clip(low, high), bins=n_bars, range=(low, high))
    return Column(
        name,
        number(values.mean()),
        number(values.std()),
        number(values.min()),
        number(float(np.median(values))),
        number(values.max()),
        [round(float(count / max(1, counts.max())), 3) for count in counts],
    )


def class_shares(codes: IntArray, subject: Subject) -> list[tuple[str, int, float]]:
    """Name, count and share of each class."""
    counts = np.bincount(codes, minlength=len(subject.classes))
    return [
        (name, int(count), float(count / max(1, len(codes))))
        for name, count in zip(subject.classes, counts, strict=True)
    ]


class Surprise(NamedTuple):
    """A row whose label the others do not expect."""

    row: int
    label: str
    probability: str
    expected: str
    values: list[str]


class Surprises(NamedTuple):
    """The part about surprising rows."""

    left_out: bool
    """By leave-one-out rather than of held-out rows."""
    columns: list[str]
    """Columns that are shown: none if the rows are not at hand."""
    n_columns: int
    rows: list[Surprise]


def unseen_surprises(subject: Subject, n: int) -> Surprises:
    """The n least probable training rows by number, of an estimator without its rows."""
    loo = np.asarray(subject.classifier.loo_log_proba_, dtype=np.float64)
    worst = lowest(loo, n)
    rows = [Surprise(int(i), "", _chance(float(np.exp(loo[i]))), "", []) for i in worst]
    return Surprises(True, [], len(subject.names), rows)


def surprises(subject: Subject, rows: KnownRows, log_proba: Array, cells: Cells) -> list[Surprise]:
    """Rows with the log probabilities [k] of their labels, the least probable first."""
    order = lowest(log_proba, len(log_proba))
    if not len(order):
        return []
    likeliest = proba_at(subject.classifier, np.asarray(rows.X[order])).argmax(axis=1)
    return [
        Surprise(
            int(rows.index[i]),
            subject.classes[rows.codes[i]],
            _chance(float(np.exp(log_proba[i]))),
            subject.classes[code],
            cells.rows[i],
        )
        for i, code in zip(order, likeliest, strict=True)
    ]


def time_and_memory(subject: Subject) -> list[Fact]:
    """What the fit took."""
    fit = subject.classifier
    facts = [Fact("Iterations", f"{fit.n_iter_:,}")]
    if fit.history_:
        last, n = fit.history_[-1], len(fit.loo_log_proba_)
        facts.insert(0, Fact("Time to the last iteration", duration(last.seconds)))
        facts.append(Fact("Passes over the data", f"{last.epochs:,.1f}"))
        if getattr(fit, "_stream", None) is None and last.seconds > 0:
            facts.append(Fact("Rows a second", f"{last.epochs * n / last.seconds:,.0f}"))
    model = fit.model_
    m = len(model.Z)
    latents = len(model.posterior.mean)
    held = 8 * (model.Z.size + m * m + latents * (m + m * m))
    facts.append(Fact("Memory of the fitted model", f"about {size(held)}"))
    peak = peak_bytes()
    if peak is not None:
        facts.append(Fact("Most memory this process has used", size(peak)))
    return facts


def peak_bytes() -> int | None:
    """The largest resident size of this process so far, where the system tells."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)


def lowest(log_proba: Array, n: int) -> IntArray:
    """Positions of the n lowest, without those that are not known."""
    known = np.flatnonzero(np.isfinite(log_proba))
    return known[np.argsort(log_proba[known], kind="stable")[:n]]


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


def _chance(probability: float) -> str:
    return f"{probability:.1%}" if probability >= 0.001 else f"{probability:.1e}"


def _short(value: Any) -> str:
    words = repr(value)
    if hasattr(value, "shape") or isinstance(value, list):
        words = f"array of shape {np.shape(value)}"
    return words if len(words) <= 200 else f"{words[:199]}…"


def _same(value: Any, default: Any) -> bool:
    return value is default or (np.isscalar(value) and bool(value == default))
