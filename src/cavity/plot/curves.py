"""Curves: predicted probability against observed frequency, and training over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils.validation import check_is_fitted

from cavity.gp.metrics import Bins, calibration_error, reliability_bins
from cavity.inference.history import Iteration
from cavity.plot.canvas import Display, colour
from cavity.plot.columns import (
    Plottable,
    class_code,
    frame_of,
    is_table_classifier,
    label_values,
    positive_label,
)
from cavity.text import named_apart
from cavity.typing import AnyArray, Array, InputLabels, InputRows

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class CalibrationDisplay(Display):
    """Observed frequency against predicted probability, with exact confidence bands.

    >>> from sklearn.datasets import make_moons
    >>> from cavity import SEPClassifier
    >>> X, y = make_moons(300, noise=0.3, random_state=0)
    >>> model = SEPClassifier(n_inducing=10, random_state=0).fit(X[:200], y[:200])
    >>> display = CalibrationDisplay.from_estimator(model, X[200:], y[200:])
    >>> display.ax_.get_xlabel()
    'predicted probability of 1'
    >>> display.calibration_error < 0.1
    True
    """

    def __init__(self, bins: Bins, *, of: str, confidence: float = 0.95) -> None:
        self.bins = bins
        self.of = of
        self.confidence = confidence

    @property
    def calibration_error(self) -> float:
        """Mean distance from the diagonal, over all rows."""
        return calibration_error(self.bins)

    @classmethod
    def from_estimator(
        cls,
        estimator: Plottable,
        X: InputRows,
        y: InputLabels,
        *,
        pos_label: object = None,
        n_bins: int = 10,
        strategy: str = "uniform",
        confidence: float = 0.95,
        ax: Axes | None = None,
    ) -> CalibrationDisplay:
        """Predict rows X [n, d] and compare with y [n], as `from_predictions` does.

        For a table classifier, X is a data frame, and y may be the name of a column of it; rows without
        a label are left out. With two classes, the diagram is about the positive one.
        """
        named = isinstance(y, str)
        X = frame_of(X) if named else X
        labels = label_values(X, y, estimator.labels_ if is_table_classifier(estimator) else None)
        if named and labels is not None:
            known = [label is not None for label in labels.tolist()]
            X, labels = X.filter(known), np.array(labels[known].tolist())
        return cls.from_predictions(
            labels,
            estimator.predict_proba(X),
            classes=estimator.classes_,
            pos_label=positive_label(estimator, pos_label),
            n_bins=n_bins,
            strategy=strategy,
            confidence=confidence,
            ax=ax,
        )

    @classmethod
    def from_predictions(
        cls,
        y: InputLabels,
        probability: Array,
        *,
        classes: AnyArray | Sequence[object] | None = None,
        pos_label: object = None,
        n_bins: int = 10,
        strategy: str = "uniform",
        confidence: float = 0.95,
        ax: Axes | None = None,
    ) -> CalibrationDisplay:
        """Compare labels y [n] with probabilities [n] (of the second class) or [n, C].

        With two classes, or a `pos_label`, the diagram is about that class; with more it is about the
        likeliest class of each row, and how often it is the right one.
        """
        labels = np.asarray(y)
        known = np.unique(labels) if classes is None else np.asarray(classes)
        p = np.asarray(probability, dtype=float)
        p = np.column_stack([1.0 - p, p]) if p.ndim == 1 else p
        if p.shape != (len(labels), len(known)):
            raise ValueError(
                f"probability has shape {np.shape(probability)} for {len(labels)} labels of "
                f"{len(known)} classes; it needs a row for each label and a column for each class "
                "(pass classes=[…] if y does not show them all)"
            )
        if pos_label is None and len(known) > 2:
            predicted, of = p.max(axis=1), "the likeliest class"
            outcome = known[p.argmax(axis=1)] == labels
        else:
            code = len(known) - 1 if pos_label is None else class_code(known, pos_label)
            predicted, outcome, of = p[:, code], labels == known[code], str(known[code])
        bins = reliability_bins(
            predicted, outcome, n_bins=n_bins, strategy=strategy, confidence=confidence
        )
        return cls(bins, of=of, confidence=confidence).plot(ax)

    def plot(self, ax: Axes | None = None) -> CalibrationDisplay:
        """Draw on `ax`, or on new axes."""
        ax = self._begin(ax)
        bins = self.bins
        ax.plot([0, 1], [0, 1], color="0.5", lw=1, ls="--", label="perfect")
        bars = np.maximum([bins.frequency - bins.low, bins.high - bins.frequency], 0.0)
        ax.errorbar(
            bins.predicted,
            bins.frequency,
            yerr=bars,
            fmt="o",
            color=colour(0),
            ms=5,
            elinewidth=1.2,
            capsize=2.5,
            label=f"observed, {self.confidence:.0%} band",
        )
        ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
        ax.set_xlabel(f"predicted probability of {self.of}")
        ax.set_ylabel("observed frequency")
        ax.legend(loc="upper left", frameon=False, fontsize="small")
        return self


_Y = {
    "leave_one_out": "leave-one-out NLL (nats a row)",
    "objective": "objective (nats)",
    "gradient_norm": "norm of the gradient",
}
"""Quantities of a history, with the labels of their axes."""
_X = {"seconds": "time (s)", "epochs": "passes over the data", "iteration": "iteration"}


class TrainingCurveDisplay(Display):
    """Objective, gradient or leave-one-out NLL in the course of a fit, from `history_`.

    >>> from sklearn.datasets import make_moons
    >>> from cavity import SEPClassifier, SVIClassifier
    >>> X, y = make_moons(200, noise=0.3, random_state=0)
    >>> sep = SEPClassifier(n_inducing=10, random_state=0).fit(X, y)
    >>> svi = SVIClassifier(n_inducing=10, random_state=0).fit(X, y)
    >>> display = TrainingCurveDisplay.from_estimators([sep, svi], x="epochs")
    >>> list(display.histories), display.ax_.get_xlabel()
    (['SEPClassifier', 'SVIClassifier'], 'passes over the data')
    """

    def __init__(self, histories: Mapping[str, Sequence[Iteration]], *, y: str, x: str) -> None:
        if y not in _Y:
            raise ValueError(f"y={y!r} is not an option; use one of {', '.join(_Y)}")
        if x not in _X:
            raise ValueError(f"x={x!r} is not an option; use one of {', '.join(_X)}")
        self.histories = dict(histories)
        self.y = y
        self.x = x

    @classmethod
    def from_estimator(
        cls,
        estimator: Plottable,
        *,
        y: str = "leave_one_out",
        x: str = "seconds",
        ax: Axes | None = None,
    ) -> TrainingCurveDisplay:
        """Draw the curve of one fitted estimator."""
        return cls.from_estimators([estimator], y=y, x=x, ax=ax)

    @classmethod
    def from_estimators(
        cls,
        estimators: Mapping[str, Plottable] | Sequence[Plottable],
        *,
        y: str = "leave_one_out",
        x: str = "seconds",
        ax: Axes | None = None,
    ) -> TrainingCurveDisplay:
        """Draw the curves of several fitted estimators: a list, or a dictionary by name."""
        if not isinstance(estimators, Mapping):
            estimators = named_apart(estimators, lambda one: type(one).__name__)
        for one in estimators.values():
            check_is_fitted(one)
        return cls({name: one.history_ for name, one in estimators.items()}, y=y, x=x).plot(ax)

    def curve(self, name: str) -> tuple[Array, Array]:
        """Coordinates x and y of one curve."""
        history = self.histories[name]
        sign = -1.0 if self.y == "leave_one_out" else 1.0
        return (
            np.array([*map(attrgetter(self.x), history)], dtype=float),
            sign * np.array([*map(attrgetter(self.y), history)], dtype=float),
        )

    def plot(self, ax: Axes | None = None) -> TrainingCurveDisplay:
        """Draw on `ax`, or on new axes."""
        ax = self._begin(ax)
        for position, name in enumerate(self.histories):
            x, y = self.curve(name)
            few = "o" if len(x) < 3 else None
            ax.plot(x, y, color=colour(position), lw=1.4, marker=few, ms=4, label=name)
        ax.set_xlabel(_X[self.x])
        ax.set_ylabel(_Y[self.y])
        if len(self.histories) > 1:
            ax.legend(frameon=False, fontsize="small")
        return self
