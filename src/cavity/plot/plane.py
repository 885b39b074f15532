"""Plots over the plane of two features: probabilities and inducing points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cavity.plot.canvas import Display, colour, marker, proba_at, probability_colours
from cavity.plot.columns import Plottable, class_code, columns_of, positive_label, two_positions
from cavity.typing import AnyArray, Array, FeatureNames, InputLabels, InputRows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
"""Probabilities of the contour lines."""


class DecisionBoundaryDisplay(Display):
    """Probability contours over two features, the others held at their medians, with inducing points.

    For a table classifier these are numeric columns, and categories are held at the commonest.

    With two classes, or a `pos_label`, the background shows the probability of one class: by default the
    positive one. With more, it shows the colour of the likeliest class, which is stronger the more
    probable that class is.

    >>> from sklearn.datasets import make_moons
    >>> from cavity import SEPClassifier
    >>> X, y = make_moons(200, noise=0.3, random_state=0)
    >>> model = SEPClassifier(n_inducing=10, random_state=0).fit(X, y)
    >>> display = DecisionBoundaryDisplay.from_estimator(model, X, y, grid_resolution=20)
    >>> display.probability.shape
    (20, 20, 2)
    """

    def __init__(
        self,
        x: Array,
        y: Array,
        probability: Array,
        *,
        classes: AnyArray,
        names: tuple[str, str],
        rows: Array | None = None,
        labels: AnyArray | None = None,
        points: Array | None = None,
        pos_label: object = None,
    ) -> None:
        self.x = x
        self.y = y
        self.probability = probability
        self.classes = classes
        self.names = names
        self.rows = rows
        self.labels = labels
        self.points = points
        self.pos_label = pos_label

    @classmethod
    def from_estimator(
        cls,
        estimator: Plottable,
        X: InputRows,
        y: InputLabels = None,
        *,
        features: Sequence[int | str] = (0, 1),
        feature_names: FeatureNames = None,
        pos_label: object = None,
        grid_resolution: int = 100,
        margin: float = 0.05,
        max_rows: int = 1_000,
        ax: Axes | None = None,
    ) -> DecisionBoundaryDisplay:
        """Predict on a grid over the range of rows X [n, d] in two of the features.

        For a table classifier, X is a data frame, of which two numeric columns are shown, and y may be
        the name of another. features: two columns, by number or name; margin: how far the grid goes
        beyond the rows, as a share of their range; max_rows: largest number of rows to show, coloured by
        label y [n].
        """
        columns = columns_of(estimator, X, y, feature_names=feature_names, max_rows=max_rows)
        pair = two_positions(columns, features)
        rows = np.column_stack([columns.numbers(j) for j in pair])
        for j, values in zip(pair, rows.T, strict=True):
            if np.isnan(values).all():
                raise ValueError(
                    f"features has {columns.names[j]!r}, which is missing in all rows of X; choose "
                    "another column, or pass rows that have values of it"
                )
        xs, ys = (_axis(values, grid_resolution, margin) for values in rows.T)
        cells = [part.ravel() for part in np.meshgrid(xs, ys)]
        inputs = columns.inputs(None, dict(zip(pair, cells, strict=True)))
        return cls(
            xs,
            ys,
            proba_at(columns.fitted, inputs).reshape(len(ys), len(xs), -1),
            classes=estimator.classes_,
            names=(columns.names[pair[0]], columns.names[pair[1]]),
            rows=rows,
            labels=columns.labels,
            points=np.column_stack([columns.points(j) for j in pair]),
            pos_label=positive_label(estimator, pos_label),
        ).plot(ax)

    def plot(self, ax: Axes | None = None, *, colorbar: bool = True) -> DecisionBoundaryDisplay:
        """Draw on `ax`, or on new axes."""
        ax = self._begin(ax)
        classes = np.asarray(self.classes)
        if self.pos_label is not None or len(classes) == 2:
            code = 1 if self.pos_label is None else class_code(classes, self.pos_label)
            self._plot_one(ax, code, colorbar)
            if len(classes) == 2:  # rows of the class have the colour of its high probabilities
                classes = classes[[1 - code, code]]
        else:
            self._plot_many(ax)
        if self.rows is not None:
            draw_rows(ax, self.rows, self.labels, classes)
        if self.points is not None:
            draw_points(ax, self.points)
        ax.set(xlim=(self.x[0], self.x[-1]), ylim=(self.y[0], self.y[-1]))
        ax.set_xlabel(self.names[0])
        ax.set_ylabel(self.names[1])
        outside_legend(ax)
        return self

    def _plot_one(self, ax: Axes, code: int, colorbar: bool) -> None:
        p = self.probability[..., code]
        image = ax.imshow(
            p,
            origin="lower",
            extent=(self.x[0], self.x[-1], self.y[0], self.y[-1]),
            aspect="auto",
            interpolation="bilinear",
            cmap=probability_colours(),
            vmin=0,
            vmax=1,
        )
        lines = ax.contour(
            self.x,
            self.y,
            p,
            levels=_LEVELS,
            colors="0.25",
            linewidths=[1.6 if level == 0.5 else 0.6 for level in _LEVELS],
        )
        ax.clabel(lines, fmt=lambda level: f"{level:.0%}", fontsize="x-small")
        if colorbar:
            bar = self.figure_.colorbar(image, ax=ax, pad=0.02)
            bar.set_label(f"probability of {self.classes[code]}")

    def _plot_many(self, ax: Axes) -> None:
        from matplotlib.colors import to_rgb

        likeliest = self.probability.argmax(axis=2)
        shades = np.array([to_rgb(colour(code)) for code in range(len(self.classes))])
        floor = 1.0 / len(self.classes)
        strength = ((self.probability.max(axis=2) - floor) / (1.0 - floor)).clip(0, 1)[..., None]
        image = 1.0 - 0.6 * strength * (1.0 - shades[likeliest])
        ax.imshow(
            image,
            origin="lower",
            extent=(self.x[0], self.x[-1], self.y[0], self.y[-1]),
            aspect="auto",
            interpolation="bilinear",
        )


def _axis(values: Array, resolution: int, margin: float) -> Array:
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    beyond = margin * (high - low) if high > low else 1.0
    return np.linspace(low - beyond, high + beyond, resolution)


class InducingPointsDisplay(Display):
    """Inducing points in the plane of two features, and rows if they are given.

    >>> from sklearn.datasets import make_moons
    >>> from cavity import SEPClassifier
    >>> X, y = make_moons(200, noise=0.3, random_state=0)
    >>> model = SEPClassifier(n_inducing=10, random_state=0).fit(X, y)
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
        labels: AnyArray | None = None,
        classes: AnyArray | None = None,
    ) -> None:
        self.points = points
        self.names = names
        self.rows = rows
        self.labels = labels
        self.classes = classes

    @classmethod
    def from_estimator(
        cls,
        estimator: Plottable,
        X: InputRows = None,
        y: InputLabels = None,
        *,
        features: Sequence[int | str] = (0, 1),
        feature_names: FeatureNames = None,
        max_rows: int = 1_000,
        ax: Axes | None = None,
    ) -> InducingPointsDisplay:
        """Show all inducing points, and up to `max_rows` of the rows X [n, d], by label y [n]."""
        columns = columns_of(estimator, X, y, feature_names=feature_names, max_rows=max_rows)
        pair = two_positions(columns, features)
        rows = np.column_stack([columns.numbers(j) for j in pair])
        return cls(
            np.column_stack([columns.points(j) for j in pair]),
            (columns.names[pair[0]], columns.names[pair[1]]),
            rows=None if X is None else rows,
            labels=columns.labels,
            classes=estimator.classes_,
        ).plot(ax)

    def plot(self, ax: Axes | None = None) -> InducingPointsDisplay:
        """Draw on `ax`, or on new axes."""
        ax = self._begin(ax)
        if self.rows is not None:
            draw_rows(ax, self.rows, self.labels, self.classes)
        draw_points(ax, self.points)
        ax.set_xlabel(self.names[0])
        ax.set_ylabel(self.names[1])
        outside_legend(ax)
        return self


def draw_rows(ax: Axes, rows: Array, labels: AnyArray | None, classes: AnyArray | None) -> None:
    """Draw rows [n, 2] as small markers, with one colour and shape for each class."""
    if labels is None or classes is None:
        ax.scatter(rows[:, 0], rows[:, 1], s=6, color="0.6", lw=0, label="rows")
        return
    for code, value in enumerate(classes):
        of_class = rows[np.asarray(labels) == value]
        ax.scatter(
            of_class[:, 0],
            of_class[:, 1],
            s=14,
            color=colour(code),
            marker=marker(code),
            edgecolors="white",
            lw=0.4,
            label=str(value),
        )


def draw_points(ax: Axes, points: Array) -> None:
    """Draw inducing points [m, 2] as crosses with a white outline."""
    from matplotlib.patheffects import withStroke

    x, y = points.T
    marks = ax.scatter(x, y, s=30, marker="x", color="black", lw=1.2, label="inducing points")
    marks.set_path_effects([withStroke(linewidth=2.6, foreground="white")])


def outside_legend(ax: Axes) -> None:
    """Draw a legend above the axes, where it hides nothing."""
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
    # The legend may be wider than the axes. An empty title of its height makes room for it above them.
    legend.set_in_layout(False)
    rows = -(-len(legend.get_texts()) // 3)
    ax.set_title("\n".join(" " * rows), fontsize="small")
