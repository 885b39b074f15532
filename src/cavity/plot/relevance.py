"""Plot of the relevance of the features."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cavity.gp.relevance import Relevance
from cavity.inference.fitted import names_of_features
from cavity.plot.canvas import Display, colour, number
from cavity.plot.columns import Plottable
from cavity.typing import Array, FeatureNames, IntArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
