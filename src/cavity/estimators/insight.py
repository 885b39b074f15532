"""What a fitted classifier knows about its own predictions and features."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from cavity.estimators.validation import validated_rows
from cavity.model import Model
from cavity.relevance import Relevance
from cavity.typing import Array
from cavity.uncertainty import Uncertainty, split_uncertainty

_CACHE = "_relevance_cache"


class Insight:
    """Uncertainty of predictions, distance from the data, and relevance of features."""

    model_: Model

    @abstractmethod
    def _latent_moments(self, X: Any) -> tuple[Array, Array]:
        """Mean and variance [L, n] of the L latent functions at X [n, d]."""

    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Predictive entropy at X [n, d] in nats, split: `total` = `noise` + `knowledge`, each [n].

        The noise is E[H[p(y | f)]], what would remain if the latent function were known; the knowledge
        part is the mutual information of label and latent value, what rows near x would take away.

        >>> from sklearn.datasets import make_moons
        >>> from cavity import SEPClassifier
        >>> X, y = make_moons(200, noise=0.2, random_state=0)
        >>> model = SEPClassifier(n_inducing=20, tol=1e-3, random_state=0).fit(X, y)
        >>> far = model.predict_uncertainty([[50.0, 50.0]])
        >>> bool(far.knowledge[0] > far.noise[0])
        True
        """
        mean, variance = self._latent_moments(X)
        return split_uncertainty(self.model_.rule, mean, variance)

    def ood_score(self, X: Any) -> Array:
        """How far X [n, d] is from what was learned: [n], from 0 (known) to 1 (nothing is known).

        The share of the latent function's prior variance k(x, x) that the data have not taken away,
        without the kernel's white noise; with several latent functions, the mean of theirs. It nears 1
        far from all rows if the kernel forgets with distance, as RBF, Matérn and rational quadratic do.
        """
        _, variance = self._latent_moments(X)
        inputs = validated_rows(self, X, reset=False)
        return np.asarray(self.model_.remaining_variance_share(inputs, variance).mean(axis=0))

    @property
    def relevance_(self) -> Relevance:
        """Relevance of each feature with a 90 % band: shares of the latent function's squared slope.

        Its numbers are computed when first asked for. See `cavity.relevance`.
        """
        check_is_fitted(self, "model_")
        cached: tuple[Any, Relevance] | None = self.__dict__.get(_CACHE)
        if cached is None or cached[0] is not self.model_:
            cached = self.model_, Relevance(self.model_, self._feature_names())
            self.__dict__[_CACHE] = cached
        return cached[1]

    def _feature_names(self) -> list[str]:
        d = self.model_.Z.shape[1]
        return [str(name) for name in getattr(self, "feature_names_in_", [f"x{j}" for j in range(d)])]


def without_caches(state: dict[str, Any]) -> dict[str, Any]:
    """An estimator's state without what can be computed again."""
    return {name: value for name, value in state.items() if name != _CACHE}
