"""What one feature does to the probability, on average, with the posterior's uncertainty."""

from __future__ import annotations

from typing import Any

import numpy as np

from cavity.plot.canvas import Display, colour, line_style, names_of_features
from cavity.plot.effects import Effect, partial_effect
from cavity.plot.inducing_points import some_rows

_MAX_CLASSES = 6
"""More bands than these cannot be told apart."""


class PartialDependenceDisplay(Display):
    """Mean probability against one feature, with a band from the posterior of the latent function.

    >>> from sklearn.datasets import make_moons
    >>> from cavity import SEPClassifier
    >>> X, y = make_moons(200, noise=0.3, random_state=0)
    >>> model = SEPClassifier(n_inducing=10, tol=1e-2, random_state=0).fit(X, y)
    >>> display = PartialDependenceDisplay.from_estimator(model, X, 1, n_rows=10)
    >>> display.ax_.get_xlabel(), display.ax_.get_ylabel()
    ('x1', 'probability of 1')
    """

    def __init__(self, effect: Effect, *, name: str, classes: Any) -> None:
        self.effect = effect
        self.name = name
        self.classes = classes

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        feature: int | str,
        *,
        feature_names: Any = None,
        ax: Any = None,
        **options: Any,
    ) -> Any:
        """Move `feature` (number or name) of rows X [n, d]; options are those of `partial_effect`."""
        names = names_of_features(estimator, feature_names)
        if isinstance(feature, str):
            if feature not in names:
                raise ValueError(f"feature={feature!r} is none of {names}")
            feature = names.index(feature)
        rows, _ = some_rows(X, None, 10_000)
        effect = partial_effect(estimator, rows, feature, **options)
        return cls(effect, name=names[feature], classes=estimator.classes_).plot(ax)

    def plot(self, ax: Any = None) -> PartialDependenceDisplay:
        """Draw on `ax`, or on new axes."""
        ax = self._begin(ax)
        two = len(self.classes) == 2
        for code in self._shown():
            shade = colour(0 if two else code)
            at = self.effect
            p, low, high = at.probability[:, code], at.low[:, code], at.high[:, code]
            name = str(self.classes[code])
            if len(at.grid) < 3:  # yes or no: nothing lies between
                bars = np.maximum([p - low, high - p], 0.0)
                ax.errorbar(at.grid, p, yerr=bars, fmt="o", color=shade, ms=5, capsize=3, label=name)
                ax.set_xticks(at.grid)
                ax.margins(x=0.3)
                continue
            ax.fill_between(at.grid, low, high, color=shade, alpha=0.2, lw=0)
            few = "o" if len(at.grid) < 12 else None
            ax.plot(at.grid, p, color=shade, lw=1.5, ls=line_style(code), marker=few, ms=3.5, label=name)
        ax.set_ylim(0, 1)
        ax.set_xlabel(self.name)
        ax.set_ylabel(f"probability of {self.classes[1]}" if two else "probability")
        if not two:
            ax.legend(frameon=False, fontsize="small")
        return self

    def _shown(self) -> list[int]:
        """Of two classes the second; of many those whose probabilities move most."""
        if len(self.classes) == 2:
            return [1]
        span = np.ptp(self.effect.probability, axis=0)
        return sorted(int(code) for code in np.argsort(-span, kind="stable")[:_MAX_CLASSES])
