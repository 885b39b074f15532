"""Plots of single features: their relevance, and how the probability depends on one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit, logit
from sklearn.utils.validation import check_is_fitted

from cavity.gp.relevance import Relevance
from cavity.inference.fitted import names_of_features
from cavity.plot.canvas import Display, colour, latent_draws, line_style, number, proba_at
from cavity.plot.columns import (
    Columns,
    Grid,
    Plottable,
    class_code,
    columns_of,
    positive_label,
    spaced,
)
from cavity.typing import AnyArray, Array, FeatureNames, InputRows, IntArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BAND_ROWS = 32
"""Rows of the interval at most, which takes the covariance of all rows at all values; half as many for
three classes or more."""


class RelevanceDisplay(Display):
    """Relevance of the features, largest first, with the posterior's 90 % band and the lengthscales.

    Relevance is the feature's share of the latent function's squared slope, see `cavity.gp.relevance`.

    >>> from sklearn.datasets import make_moons
    >>> from cavity import SEPClassifier
    >>> X, y = make_moons(200, noise=0.3, random_state=0)
    >>> model = SEPClassifier(n_inducing=10, random_state=0).fit(X, y)
    >>> display = RelevanceDisplay.from_estimator(model, feature_names=["east", "north"])
    >>> sorted(label.get_text() for label in display.ax_.get_yticklabels())
    ['east', 'north']
    """

    def __init__(self, relevance: Relevance, names: list[str], *, max_features: int = 20) -> None:
        self.relevance = relevance
        self.names = names
        self.max_features = max_features

    @classmethod
    def from_estimator(
        cls,
        estimator: Plottable,
        *,
        feature_names: FeatureNames = None,
        max_features: int = 20,
        ax: Axes | None = None,
    ) -> RelevanceDisplay:
        """Show `relevance_` of the `max_features` most relevant features, or columns of a table."""
        check_is_fitted(estimator)
        names = names_of_features(estimator, feature_names)
        return cls(estimator.relevance_, names, max_features=max_features).plot(ax)

    @property
    def order(self) -> list[int]:
        """Positions of the features that are shown, the most relevant first."""
        return [int(i) for i in np.argsort(-self.relevance.value, kind="stable")[: self.max_features]]

    def plot(self, ax: Axes | None = None) -> RelevanceDisplay:
        """Draw on `ax`, or on new axes."""
        ax = self._begin(ax)
        order = self.order
        at, share = np.arange(len(order)), self.relevance.value[order]
        band = np.maximum([share - self.relevance.lower[order], self.relevance.upper[order] - share], 0)
        ax.barh(at, share, color=colour(0), alpha=0.8, height=0.66)
        ax.errorbar(share, at, xerr=band, fmt="none", ecolor="0.45", elinewidth=1.2, capsize=2)
        ax.set_yticks(at, [self.names[i] for i in order])
        ax.set_ylim(len(order) - 0.5, -0.5)
        ax.set_xlim(left=0)
        ax.set_xlabel("relevance, with its 90% band")
        self._lengthscales(ax, at, self.relevance.lengthscale[order])
        return self

    def _lengthscales(self, ax: Axes, at: IntArray, scales: Array) -> None:
        """Write the kernel's lengthscales, in the units of the features, in a column on the right."""
        if not np.isfinite(scales).any():
            return
        words = [("lengthscale", -0.9)]
        known = zip(scales, at, strict=True)
        words += [(number(scale), y) for scale, y in known if np.isfinite(scale)]
        for word, y in words:
            ax.text(1.02, y, word, transform=ax.get_yaxis_transform(), va="center", fontsize="small")


@dataclass(frozen=True)
class Effect:
    """Mean probability of each class as a function of one feature."""

    feature: int
    grid: AnyArray
    """[g]: values of the feature, numbers or dates."""
    probability: Array
    """[g, C]: mean over the rows, with the feature of every row set to the value."""
    low: Array
    high: Array
    """[g, C]: ends of the credible interval of that mean."""
    level: float
    """Posterior probability of the interval."""
    n_rows: int
    """Number of rows in the mean."""
    labels: tuple[str, ...] | None = None
    """[g]: names of the values, if they are categories; the grid then counts them."""

    @property
    def span(self) -> float:
        """Largest difference of a class probability between two values of the feature."""
        return float(np.ptp(self.probability, axis=0).max())


def partial_effect(
    estimator: Plottable,
    X: InputRows,
    feature: int,
    *,
    n_grid: int = 24,
    n_rows: int | None = None,
    n_draws: int | None = None,
    level: float = 0.9,
    seed: int = 0,
) -> Effect:
    """Compute the mean probability over rows of X as a function of column `feature`.

    X is an array [n, d], or a data frame for a table classifier, of whose columns `feature` is one. The
    defaults are 500 rows and 200 draws; with three classes or more, where each probability is an
    integral, 100 rows and 64 draws. A column with few distinct values is evaluated at those values, and
    one of categories at each of them.

    The interval is that of the mean, not of a single row: functions are drawn jointly at all values and
    at some of the rows and averaged over the rows, and the interval holds the middle `level` of the
    averages. Where it is of fewer rows than the mean, it is moved, on the scale of log-odds, from the
    mean of these rows to that of all.

    >>> from sklearn.datasets import make_moons
    >>> from cavity import SEPClassifier
    >>> X, y = make_moons(200, noise=0.3, random_state=0)
    >>> model = SEPClassifier(n_inducing=10, random_state=0).fit(X, y)
    >>> effect = partial_effect(model, X, feature=1, n_rows=10)
    >>> bool(effect.probability[0, 1] > effect.probability[-1, 1])  # the lower moon is class 1
    True
    """
    columns = columns_of(estimator, X)
    two = len(estimator.classes_) == 2
    n_rows = n_rows or (500 if two else 100)
    n_draws = n_draws or (200 if two else 64)
    rng = np.random.default_rng(seed)
    grid = columns.grid(feature, n_grid)
    if not grid.has_values:
        raise ValueError(
            f"{columns.names[feature]!r} is missing in all rows of X, so there are no values to predict "
            "at; pass rows that have some"
        )
    chosen = np.sort(rng.choice(columns.n_rows, min(n_rows, columns.n_rows), replace=False))
    some = chosen[spaced(len(chosen), _BAND_ROWS if two else _BAND_ROWS // 2)]
    mean = _averages(proba_at(columns.fitted, _inputs(columns, feature, grid, chosen)), len(chosen))
    inputs = _inputs(columns, feature, grid, some)
    draws, noise = latent_draws(columns.fitted, inputs, n_draws, rng)
    likelihood = columns.fitted.model_.likelihood
    with np.errstate(all="ignore"):
        averages = [
            _averages(
                np.exp(likelihood.predict_log_proba(np.ascontiguousarray(draws[:, :, i]), noise)),
                len(some),
            )
            for i in range(n_draws)
        ]
    tail = 0.5 * (1.0 - level)
    low, high = np.quantile(np.stack(averages), [tail, 1.0 - tail], axis=0)
    if len(some) < len(chosen):
        shift = logit(mean) - logit(_averages(proba_at(columns.fitted, inputs), len(some)))
        low, high = expit(logit(low) + shift), expit(logit(high) + shift)
    return Effect(feature, grid.positions, mean, low, high, level, len(chosen), grid.labels)


def _inputs(columns: Columns, feature: int, grid: Grid, rows: IntArray) -> Array:
    """Inputs [g · r, d] at r rows, for each of the g values in turn."""
    g, r = len(grid.positions), len(rows)
    return columns.inputs(np.tile(rows, g), {feature: grid.cells.take(np.repeat(np.arange(g), r))})


def _averages(probability: Array, n_rows: int) -> Array:
    """Means [g, C] over the rows of probabilities [g · r, C]."""
    return np.asarray(probability.reshape(-1, n_rows, probability.shape[1]).mean(axis=1))


_MAX_CLASSES = 6
"""Most classes in one plot: more bands cannot be told apart."""
_MAX_LETTERS = 30
"""Letters, about, that fit under an axis; names of categories with more are turned."""
_LONGEST = 18
"""Letters of the name of a category that are shown at most."""


class PartialDependenceDisplay(Display):
    """Mean probability against one feature, with a band from the posterior of the latent function.

    With two classes, or a `pos_label`, it is the probability of one class: by default the positive one.

    >>> from sklearn.datasets import make_moons
    >>> from cavity import SEPClassifier
    >>> X, y = make_moons(200, noise=0.3, random_state=0)
    >>> model = SEPClassifier(n_inducing=10, random_state=0).fit(X, y)
    >>> display = PartialDependenceDisplay.from_estimator(model, X, 1, n_rows=10)
    >>> display.ax_.get_xlabel(), display.ax_.get_ylabel()
    ('x1', 'probability of 1')
    """

    def __init__(
        self, effect: Effect, *, name: str, classes: AnyArray, pos_label: object = None
    ) -> None:
        self.effect = effect
        self.name = name
        self.classes = classes
        self.pos_label = pos_label

    @classmethod
    def from_estimator(
        cls,
        estimator: Plottable,
        X: InputRows,
        feature: int | str,
        *,
        feature_names: FeatureNames = None,
        pos_label: object = None,
        n_grid: int = 24,
        n_rows: int | None = None,
        n_draws: int | None = None,
        level: float = 0.9,
        seed: int = 0,
        ax: Axes | None = None,
    ) -> PartialDependenceDisplay:
        """Vary a column (number or name) of rows X; the sizes are those of `partial_effect`.

        X is an array [n, d], or a data frame for a table classifier.
        """
        columns = columns_of(estimator, X, feature_names=feature_names, max_rows=1)
        position = columns.position(feature)
        effect = partial_effect(
            estimator,
            X,
            position,
            n_grid=n_grid,
            n_rows=n_rows,
            n_draws=n_draws,
            level=level,
            seed=seed,
        )
        return cls(
            effect,
            name=columns.names[position],
            classes=estimator.classes_,
            pos_label=positive_label(estimator, pos_label),
        ).plot(ax)

    def plot(self, ax: Axes | None = None) -> PartialDependenceDisplay:
        """Draw on `ax`, or on new axes."""
        ax = self._begin(ax)
        shown = self._shown()
        for code in shown:
            shade = colour(0 if len(shown) == 1 else code)
            at = self.effect
            p, low, high = at.probability[:, code], at.low[:, code], at.high[:, code]
            name = str(self.classes[code])
            if at.labels is not None or len(at.grid) < 3:  # a line between values would mean nothing
                bars = np.maximum([p - low, high - p], 0.0)
                ax.errorbar(at.grid, p, yerr=bars, fmt="o", color=shade, ms=5, capsize=3, label=name)
                continue
            ax.fill_between(at.grid, low, high, color=shade, alpha=0.2, lw=0)
            few = "o" if len(at.grid) < 12 else None
            ax.plot(at.grid, p, color=shade, lw=1.5, ls=line_style(code), marker=few, ms=3.5, label=name)
        self._ticks(ax)
        ax.set_ylim(0, 1)
        ax.set_xlabel(self.name)
        one = len(shown) == 1
        ax.set_ylabel(f"probability of {self.classes[shown[0]]}" if one else "probability")
        if not one:
            ax.legend(frameon=False, fontsize="small")
        return self

    def _ticks(self, ax: Axes) -> None:
        """Put a tick at each of few values, or at each category with its name."""
        grid, labels = self.effect.grid, self.effect.labels
        if labels is not None:
            words = [word if len(word) <= _LONGEST else f"{word[: _LONGEST - 1]}…" for word in labels]
            long = max(map(len, words)) * len(words) > _MAX_LETTERS
            ax.set_xticks(grid, words, rotation=90 if long else 0)
            ax.set_xlim(-0.5, len(grid) - 0.5)
        elif len(grid) < 3:
            dates = grid.astype("datetime64[D]").astype(str) if grid.dtype.kind == "M" else None
            ax.set_xticks(grid, dates)
            ax.margins(x=0.3)
        elif grid.dtype.kind == "M":
            from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

            locator = AutoDateLocator(maxticks=6)  # type: ignore[no-untyped-call]
            ax.xaxis.set_major_locator(locator)
            ax.xaxis.set_major_formatter(
                ConciseDateFormatter(locator)  # type: ignore[no-untyped-call]
            )

    def _shown(self) -> list[int]:
        """Classes to show: the positive one, or of many those whose probabilities vary most."""
        if self.pos_label is not None:
            return [class_code(np.asarray(self.classes), self.pos_label)]
        if len(self.classes) == 2:
            return [1]
        span = np.ptp(self.effect.probability, axis=0)
        return sorted(int(code) for code in np.argsort(-span, kind="stable")[:_MAX_CLASSES])
