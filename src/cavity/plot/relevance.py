"""How much each feature matters to the kernel (automatic relevance determination)."""

from __future__ import annotations

from typing import Any

import numpy as np

from cavity.plot.canvas import Display, colour, names_of_features
from cavity.typing import Array


class RelevanceDisplay(Display):
    """Relevance of the features, largest first: the inverse of their lengthscales.

    >>> from sklearn.datasets import make_moons
    >>> from cavity import SEPClassifier
    >>> X, y = make_moons(200, noise=0.3, random_state=0)
    >>> model = SEPClassifier(n_inducing=10, tol=1e-2, random_state=0).fit(X, y)
    >>> display = RelevanceDisplay.from_estimator(model, feature_names=["east", "north"])
    >>> [label.get_text() for label in display.ax_.get_yticklabels()]
    ['north', 'east']
    """

    def __init__(self, relevance: Array, names: list[str], *, max_features: int = 20) -> None:
        self.relevance = relevance
        self.names = names
        self.max_features = max_features

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, feature_names: Any = None, max_features: int = 20, ax: Any = None
    ) -> Any:
        """Show the `max_features` most relevant features of an estimator with an ARD kernel."""
        relevance = relevance_of(estimator)
        if relevance is None:
            raise ValueError(
                f"kernel_={estimator.kernel_} has one lengthscale for all features, or none; relevance "
                "needs one each, for instance RBF([1.0] * n_features), which the default kernel has"
            )
        names = names_of_features(estimator, feature_names)
        return cls(relevance, names, max_features=max_features).plot(ax)

    def plot(self, ax: Any = None) -> RelevanceDisplay:
        """Draw on `ax`, or on new axes."""
        ax = self._begin(ax)
        order = np.argsort(-self.relevance, kind="stable")[: self.max_features]
        ax.barh(np.arange(len(order)), self.relevance[order], color=colour(0), height=0.7)
        ax.set_yticks(np.arange(len(order)), [self.names[i] for i in order])
        ax.invert_yaxis()
        ax.set_xlabel("relevance: 1/lengthscale (standardised units)")
        ax.margins(y=0.02)
        return self


def relevance_of(estimator: Any) -> Array | None:
    """[d]: inverse ARD lengthscales on standardised inputs, or None if the kernel has none.

    Where several parts of a kernel have lengthscales, a feature is as relevant as it is to the part
    that it matters most to.
    """
    return ard_relevance(estimator.kernel_, int(estimator.n_features_in_))


def ard_relevance(kernel: Any, d: int) -> Array | None:
    """[d]: the inverse lengthscales of a kernel, part by part; see `relevance_of`."""
    scales = [
        np.broadcast_to(np.asarray(value, dtype=float), d)
        for name, value in kernel.get_params(deep=True).items()
        if name.split("__")[-1] == "length_scale" and np.size(value) in (1, d)
    ]
    told_apart = [scale for scale in scales if d == 1 or np.ptp(scale) > 0]
    return (1.0 / np.stack(told_apart)).max(axis=0) if told_apart else None
