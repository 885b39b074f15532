"""Where the inducing points have gone."""

from __future__ import annotations

from typing import Any

import numpy as np

from cavity.plot.canvas import Display, colour, dense, feature_positions, marker, names_of_features
from cavity.typing import Array


class InducingPointsDisplay(Display):
    """Inducing points in the plane of two features, over the rows if there are any.

    >>> from sklearn.datasets import make_moons
    >>> from cavity import SEPClassifier
    >>> X, y = make_moons(200, noise=0.3, random_state=0)
    >>> model = SEPClassifier(n_inducing=10, tol=1e-2, random_state=0).fit(X, y)
    >>> display = InducingPointsDisplay.from_estimator(model, X, y)
    >>> display.points.shape, display.ax_.get_xlabel()
    ((10, 2), 'x0')
    """

    def __init__(
        self,
        points: Array,
        names: tuple[str, str],
        *,
        rows: Array | None = None,
        labels: Any = None,
        classes: Any = None,
    ) -> None:
        self.points = points
        self.names = names
        self.rows = rows
        self.labels = labels
        self.classes = classes

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        y: Any = None,
        *,
        features: Any = (0, 1),
        feature_names: Any = None,
        max_rows: int = 1_000,
        ax: Any = None,
    ) -> Any:
        """Show `inducing_points_` [m, d] and up to `max_rows` of the rows X [n, d], by label y [n]."""
        names = names_of_features(estimator, feature_names)
        first, second = feature_positions(features, names)
        rows, labels = None, None
        if X is not None:
            rows, labels = some_rows(X, y, max_rows)
            rows = rows[:, [first, second]]
        return cls(
            estimator.inducing_points_[:, [first, second]],
            (names[first], names[second]),
            rows=rows,
            labels=labels,
            classes=estimator.classes_,
        ).plot(ax)

    def plot(self, ax: Any = None) -> InducingPointsDisplay:
        """Draw on `ax`, or on new axes."""
        ax = self._begin(ax)
        if self.rows is not None:
            draw_rows(ax, self.rows, self.labels, self.classes)
        draw_points(ax, self.points)
        ax.set_xlabel(self.names[0])
        ax.set_ylabel(self.names[1])
        outside_legend(ax)
        return self


def some_rows(X: Any, y: Any, max_rows: int) -> tuple[Array, Any]:
    """Up to `max_rows` rows of X [n, d] and y [n], evenly spread; always the same ones."""
    n = X.shape[0] if hasattr(X, "shape") else len(X)
    chosen = np.unique(np.linspace(0, n - 1, min(n, max_rows)).astype(int))
    picked = (
        X.iloc[chosen] if hasattr(X, "iloc") else (X if hasattr(X, "shape") else np.asarray(X))[chosen]
    )
    return dense(picked), None if y is None else np.asarray(y)[chosen]


def draw_rows(ax: Any, rows: Array, labels: Any, classes: Any) -> None:
    """Rows [n, 2] as small marks, one colour and shape a class."""
    if labels is None:
        ax.scatter(*rows.T, s=6, color="0.6", lw=0, label="rows")
        return
    for code, value in enumerate(classes):
        of_class = rows[np.asarray(labels) == value]
        ax.scatter(
            *of_class.T,
            s=14,
            color=colour(code),
            marker=marker(code),
            edgecolors="white",
            lw=0.4,
            label=str(value),
        )


def draw_points(ax: Any, points: Array) -> None:
    """Inducing points [m, 2] as crosses that show on any ground."""
    from matplotlib.patheffects import withStroke

    marks = ax.scatter(*points.T, s=30, marker="x", color="black", lw=1.2, label="inducing points")
    marks.set_path_effects([withStroke(linewidth=2.6, foreground="white")])


def outside_legend(ax: Any) -> None:
    """A legend above the axes, where it hides nothing."""
    legend = ax.legend(
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=3,
        frameon=False,
        fontsize="small",
        handletextpad=0.2,
        columnspacing=1.0,
        borderaxespad=0.2,
    )
    # It may reach over a colour bar: the layout shall make room above it only, by an empty title.
    legend.set_in_layout(False)
    rows = -(-len(legend.get_texts()) // 3)
    ax.set_title("\n".join(" " * rows), fontsize="small")
