"""The VI rule: the expected log likelihood of a row under q."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cavity.gp.likelihoods.base import signs
from cavity.gp.posterior import Posterior
from cavity.inference.ep import variational_terms
from cavity.inference.rule import Cavity, LatentMarginals, RowTerms, TwoClassRule
from cavity.typing import IntArray


@dataclass(frozen=True)
class Variational(TwoClassRule):
    """Variational inference, two classes, for any likelihood with expectations of its logarithm.

    With f ~ N(e, s + v) under q: F = E[log p], α = ∂F/∂e = E[∂ log p], β = E[∂² log p] ≤ 0. A full
    natural-gradient step puts the site at ν̃ = −β, μ̃ = α − βe; and h = β, γ = −β.

    VI itself has no cavity. The row's log predictive probability is that of its label once the site
    that q holds for it is divided out of q: an estimate of leaving the row out, as in EP.

    >>> import numpy as np
    >>> rule = Variational()
    >>> one, none = np.ones((1, 1)), np.zeros((1, 1))
    >>> terms = rule(np.array([1]), none, one, none[0], none, none, max_leverage=0.99)
    >>> terms.precision.round(4), terms.objective.round(4)
    (array([[0.5956]]), array([-1.]))
    """

    site_gamma: ClassVar[float | None] = 1.0

    def terms(self, labels: IntArray, at: LatentMarginals, cavity: Cavity) -> RowTerms:
        """Terms of t rows; see `CavityRule`."""
        y = signs(labels)
        expected = self.likelihood.expected(y * at.mean, at.residual + at.variance)
        log_predictive = self.likelihood.log_predictive(y * cavity.mean, at.residual + cavity.variance)
        by_latent = expected._replace(slope=y * expected.slope)
        return variational_terms(at.mean, by_latent, log_predictive.sum(axis=0))

    def complexity(self, posterior: Posterior) -> float:
        """−KL[q ‖ prior]."""
        return -posterior.divergence
