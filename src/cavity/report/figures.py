"""The figures of a report, as SVG elements that take fonts and colours from the page."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Sized
from html import escape
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from sklearn.metrics import precision_recall_curve, roc_curve

from cavity.gp.metrics import reliability_bins
from cavity.plot import (
    CalibrationDisplay,
    DecisionBoundaryDisplay,
    PartialDependenceDisplay,
    RelevanceDisplay,
    TrainingCurveDisplay,
)
from cavity.plot.canvas import PALETTE, colour, line_style, number
from cavity.plot.features import Effect
from cavity.report.scores import Evaluation
from cavity.report.target import ReportRows, ReportTarget, View
from cavity.text import printable
from cavity.typing import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INK, _RULE = "#010203", "#040506"
"""Placeholders for colours of the page, which are known only when it is shown."""
_PAGE_COLOURS = {_INK: "currentColor", _RULE: "var(--rule)", PALETTE[0].lower(): "var(--accent)"}

_STYLE: dict[Any, Any] = {
    "text.color": _INK,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _RULE,
    "grid.linewidth": 0.7,
    "axes.linewidth": 0.7,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.labelsize": 9,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "legend.facecolor": "none",
    "svg.fonttype": "none",
    "text.parse_math": False,  # names may have dollar signs
    "path.simplify": True,
}


def drawn(
    name: str,
    draw: Callable[..., object],
    description: str,
    *,
    width: float = 4.4,
    height: float = 3.3,
    columns: int = 1,
) -> str:
    """Call `draw(ax, …)` on one or more axes side by side, and return an SVG element.

    name: a name that no other figure of the page has; description: text for readers who cannot see it.

    >>> svg = drawn("demo", lambda ax: ax.plot([0, 1], [0, 1]), "a rising line")
    >>> svg.startswith('<svg role="img" aria-label="a rising line"'), "http" in svg
    (True, False)
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({**_STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
        # The letters of a name are drawn by the browser; matplotlib's font may lack them.
        warnings.filterwarnings("ignore", message="Glyph|Matplotlib currently does not support")
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(*figure.subplots(1, columns, squeeze=False)[0])
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
    return _inlined(file.getvalue(), description)


def _inlined(svg: str, description: str) -> str:
    """Turn an SVG document into an element of an HTML page."""
    body = svg[svg.index("<svg") :]
    view = re.search(r'viewBox="([^"]+)"', body)
    assert view is not None
    body = body[body.index(">") + 1 :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r"<!--.*?-->\s*", "", body, flags=re.DOTALL)
    body = re.sub(r'<g id="[^"]*"', "<g", body)  # unused, and the same in every figure
    body = body.replace("xlink:href", "href")
    for stand_in, own in _PAGE_COLOURS.items():
        body = body.replace(stand_in, own)
    # Use the font of the page. matplotlib before 3.10 writes size and family in one property.
    body = re.sub(r" font-family: [^;\"]*;", "", body)
    body = re.sub(r"font: (?:\w+ )*([\d.]+px) [^;\"]*;", r"font-size: \1;", body)
    return f'<svg role="img" aria-label="{escape(description)}" viewBox="{view[1]}">{body}'


class Figure(NamedTuple):
    """An SVG element and its caption."""

    svg: str
    caption: str


def convergence(target: ReportTarget) -> Figure:
    """Leave-one-out NLL and objective over the iterations."""
    fit = target.classifier
    history = fit.history_
    x = "seconds" if len({entry.epochs for entry in history}) < len(history) else "epochs"

    def draw(left: Axes, right: Axes) -> None:
        TrainingCurveDisplay.from_estimator(fit, y="leave_one_out", x=x, ax=left)
        TrainingCurveDisplay.from_estimator(fit, y="objective", x=x, ax=right)
        objective = [entry.objective for entry in history]
        if len(objective) > 10:  # the first steps are far below all others
            low, high = min(objective[len(objective) // 10 :]), max(objective)
            right.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low) or None)

    first, last = history[0], history[-1]
    description = (
        f"Training curves: leave-one-out NLL from {-first.leave_one_out:.3f} to "
        f"{-last.leave_one_out:.3f} in {len(history)} records."
    )
    caption = (
        "Left: mean −log probability of a row’s label with the row left out, which every pass gives "
        "at no extra cost. Right: the objective of training; its first tenth may be outside the frame."
    )
    if first.epochs < 1:
        caption += (
            " Each point is a mean over some minibatches, hence the noise. In the first pass over the "
            "data the objective lacks the rows that have not been seen, so it may fall afterwards."
        )
    return Figure(drawn("convergence", draw, description, width=9.0, height=3.0, columns=2), caption)


def reliability(target: ReportTarget, evaluation: Evaluation, calibration_error: str) -> Figure:
    """Observed frequencies against predicted probabilities, and how the probabilities are spread."""
    p, positive = evaluation.proba, target.positive
    if positive is None:
        predicted, happened, of = (
            p.max(axis=1),
            p.argmax(axis=1) == evaluation.codes,
            "the likeliest class",
        )
    else:
        predicted, happened, of = p[:, positive], evaluation.codes == positive, target.classes[positive]
    bins = reliability_bins(predicted, happened, n_bins=int(np.clip(len(p) // 40, 4, 10)))

    def draw(left: Axes, right: Axes) -> None:
        CalibrationDisplay(bins, of=of).plot(left)
        _spread(right, target, evaluation)

    pairs = ", ".join(
        f"{said:.0%} and {found:.0%}" for said, found in zip(bins.predicted, bins.frequency, strict=True)
    )
    text = (
        f"Reliability diagram of {of}, {len(p):,} rows in {len(bins.count)} groups. Mean predicted "
        f"probability and observed frequency: {pairs}. Calibration error {calibration_error}."
    )
    caption = (
        f"Calibration error (ECE): {calibration_error}. Left: observed frequency of {of} in groups of "
        "rows with about the same predicted probability. On the dashed line the two are equal. Bars: "
        "exact 95 % intervals (Clopper and Pearson) of the frequency in each group. Right: distribution "
        "of the predicted probabilities; the further apart the classes, the more informative the "
        "predictions."
    )
    return Figure(drawn("reliability", draw, text, width=9.0, height=4.0, columns=2), caption)


def _spread(ax: Axes, target: ReportTarget, evaluation: Evaluation) -> None:
    """Draw histograms of the probabilities, by true class or by right and wrong predictions."""
    p, positive = evaluation.proba, target.positive
    if positive is not None:
        name, is_class = target.classes[positive], evaluation.codes == positive
        other = target.classes[1 - positive] if len(target.classes) == 2 else f"not {name}"
        parts = {f"truly {other}": p[~is_class, positive], f"truly {name}": p[is_class, positive]}
        shades = [colour(0), colour(1)]
        ax.set_xlabel(f"predicted probability of {name}")
    else:
        right = p.argmax(axis=1) == evaluation.codes
        parts = {"right": p.max(axis=1)[right], "wrong": p.max(axis=1)[~right]}
        shades = [colour(2), colour(1)]
        ax.set_xlabel("predicted probability of the likeliest class")
    ax.hist(list(parts.values()), bins=20, range=(0, 1), stacked=True, color=shades, label=list(parts))
    ax.set_xlim(-0.02, 1.02)
    ax.set_ylabel("rows")
    ax.grid(visible=False, axis="x")
    ax.legend(frameon=False, fontsize="small", loc="best")


def judged(target: ReportTarget, evaluation: Evaluation) -> list[int]:
    """Classes with a curve: the positive one, or all that some but not all rows have."""
    codes = range(len(target.classes)) if target.positive is None else [target.positive]
    return [code for code in codes if 0 < np.sum(evaluation.codes == code) < len(evaluation.codes)]


_MOST_NAMED = 10
"""Most classes whose curves are named: more names do not fit into a figure."""


def _shade(target: ReportTarget, code: int) -> str:
    return colour(0 if target.positive is not None else code)


def _name(ax: Axes, curves: Sized, place: Literal["lower left", "lower right"]) -> None:
    """Name the curves of the classes in a corner, unless there are too many for it."""
    if len(curves) <= _MOST_NAMED:
        ax.legend(frameon=False, fontsize="small", loc=place)


def roc(target: ReportTarget, evaluation: Evaluation) -> Figure:
    """True against false positive rate, a class against the rest."""
    curves = {
        code: roc_curve(evaluation.codes == code, evaluation.log_proba[:, code])[:2]
        for code in judged(target, evaluation)
    }

    def draw(ax: Axes) -> None:
        ax.plot([0, 1], [0, 1], color="0.5", lw=1, ls="--")
        for code, (x, y) in curves.items():
            shade, name = _shade(target, code), target.classes[code]
            ax.plot(*_thinned(x, y), color=shade, ls=line_style(code), lw=1.5, label=name)
        ax.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), aspect="equal")
        ax.set_xlabel("false positive rate")
        ax.set_ylabel("true positive rate")
        _name(ax, curves, "lower right")

    told = "; ".join(
        f"{target.classes[code]}: {np.interp(0.1, x, y):.0%} of its rows are found at a false positive "
        "rate of 10 %"
        for code, (x, y) in list(curves.items())[:3]
    )
    caption = "ROC: the better the ranking, the closer to the upper left corner. Dashed: chance."
    return Figure(drawn("roc", draw, f"ROC curve. {told}.", width=4.3, height=4.2), caption)


def precision_recall(target: ReportTarget, evaluation: Evaluation) -> Figure:
    """Precision against recall, a class against the rest."""
    curves = {
        code: precision_recall_curve(evaluation.codes == code, evaluation.log_proba[:, code])[:2]
        for code in judged(target, evaluation)
    }

    def draw(ax: Axes) -> None:
        for code, (precision, recall) in curves.items():
            shade, name = _shade(target, code), target.classes[code]
            ax.axhline(float(np.mean(evaluation.codes == code)), color=shade, lw=0.8, ls=":")
            ax.plot(*_thinned(recall, precision), color=shade, ls=line_style(code), lw=1.5, label=name)
        ax.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.02), aspect="equal")
        ax.set_xlabel("recall")
        ax.set_ylabel("precision")
        _name(ax, curves, "lower left")

    told = "; ".join(
        f"{target.classes[code]}: a precision of {precision[recall >= 0.5].max():.0%} with half of its "
        "rows found"
        for code, (precision, recall) in list(curves.items())[:3]
    )
    caption = "Precision–recall. Dotted: the share of the class, which is the precision of chance."
    text = f"Precision–recall curve. {told}."
    return Figure(drawn("precision-recall", draw, text, width=4.3, height=4.2), caption)


def relevance(target: ReportTarget, max_features: int) -> Figure:
    """Bars of the relevance of columns or features."""
    found = target.relevance
    names = [printable(name) for name in found.names] if target.table else target.names
    display = RelevanceDisplay(found, names, max_features=max_features)
    shown, d = len(display.order), len(names)
    what = "features" if target.table is None else "columns"

    def draw(ax: Axes) -> None:
        display.plot(ax)
        ax.grid(visible=False, axis="y")

    first = ", ".join(f"{names[j]} {found.value[j]:.0%}" for j in display.order[:5])
    scales = np.isfinite(found.lengthscale[display.order]).any()
    return Figure(
        drawn(
            "relevance",
            draw,
            f"Relevance of {shown} {what}, the largest first: {first}.",
            width=9.0,
            height=0.9 + 0.25 * shown,
        ),
        "Bars: the share of the function’s squared slope that is along each of them; whiskers: its 90 % "
        "interval under the posterior."
        + (" Right: the kernel’s lengthscale, in their own units." if scales else "")
        + ("" if shown == d else f" The {shown} most relevant of {d} {what}."),
    )


def partial_dependence(target: ReportTarget, view: View, effect: Effect) -> Figure:
    """One column's effect with its band."""
    name, classes = view.names[effect.feature], target.classifier.classes_

    def draw(ax: Axes) -> None:
        PartialDependenceDisplay(
            effect, name=name, classes=classes, pos_label=target.positive_label
        ).plot(ax)

    p = effect.probability
    code = int(np.ptp(p, axis=0).argmax()) if target.positive is None else target.positive
    at = [_value_words(effect, int(i)) for i in (p[:, code].argmin(), p[:, code].argmax())]
    text = (
        f"Partial dependence on {name}: the mean probability of {target.classes[code]} is from "
        f"{p[:, code].min():.0%} (at {at[0]}) to {p[:, code].max():.0%} (at {at[1]})."
    )
    drawing = drawn(f"partial-dependence-{effect.feature}", draw, text, width=4.3, height=2.9)
    return Figure(drawing, text)


def _value_words(effect: Effect, i: int) -> str:
    """The i-th value at which an effect was computed, in words."""
    if effect.labels is not None:
        return printable(effect.labels[i])
    value = effect.grid[i]
    return str(value.astype("datetime64[D]")) if effect.grid.dtype.kind == "M" else number(value)


def plane(target: ReportTarget, view: View, rows: ReportRows, features: tuple[int, int]) -> Figure:
    """Probability and inducing points in the plane of two columns."""
    fitted = target.classifier
    names = [view.names[feature] for feature in features]

    def draw(ax: Axes) -> None:
        ax.grid(visible=False)
        display = DecisionBoundaryDisplay.from_estimator(
            view.estimator,
            view.X,
            np.asarray(fitted.classes_)[rows.codes],
            features=features,
            pos_label=target.positive_label,
            grid_resolution=80,
            max_rows=600,
            ax=ax,
        )
        display.ax_.set_xlabel(names[0])
        display.ax_.set_ylabel(names[1])

    most = set(view.order[:2].tolist())
    which = ", the two most relevant columns" if most == set(features) and len(view.names) > 2 else ""
    others = (
        ""
        if len(view.names) == 2
        else " In the background all other columns are at their medians or commonest values."
    )
    caption = (
        f"{len(fitted.model_.inducing_points):,} inducing points (crosses) and "
        f"{min(600, len(rows.X)):,} rows in the plane of {names[0]} and {names[1]}{which}.{others} "
        "Inducing points gather where the function is curved; some may lie outside the frame."
    )
    of = "" if target.positive is None else f" of {target.classes[target.positive]}"
    text = f"Probability{of} and inducing points over {names[0]} and {names[1]}."
    return Figure(drawn("plane", draw, text, width=7.2, height=4.8), caption)


_SEEN = 400
"""Points of a curve that can be seen, at most."""


def _thinned(x: Array, y: Array) -> tuple[Array, Array]:
    """Reduce a curve of many points to as many as can be seen."""
    keep = np.unique(np.linspace(0, len(x) - 1, min(len(x), _SEEN)).astype(int))
    return x[keep], y[keep]
