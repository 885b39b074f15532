"""The EP rule: match the moments of a row's exact likelihood times its cavity."""

from __future__ import annotations

from dataclasses import dataclass

from cavity.posterior import Posterior
from cavity.rules.cavity_moments import Cavity
from cavity.rules.cavity_rule import LatentMarginals
from cavity.rules.labels import signs
from cavity.rules.protocol import RowTerms
from cavity.rules.site_terms import propagated_terms
from cavity.rules.two_classes import TwoClassRule
from cavity.typing import IntArray


@dataclass(frozen=True)
class ExpectationPropagation(TwoClassRule):
    """Expectation propagation, two classes, for any likelihood with tilted moments.

    With the row's own site taken out of q (the cavity, v\\ and e\\), the likelihood integrated against
    N(e\\, s + v\\) to log Z, and α = ∂ log Z/∂e\\, β = −∂² log Z/∂e\\²:

        ν̃ = β/(1 − βv\\),   μ̃ = α + ν̃(e\\ + v\\ α),   γ = β − α²
        log Z̃ = log Z − ½ log(1 − ν̃v) + ½ (ν̃e² − 2eμ̃ + vμ̃²)/(1 − ν̃v)

    The last line is log Z + g(cavity) − g(q) with the division by v cancelled.

    >>> import numpy as np
    >>> rule = ExpectationPropagation()
    >>> one, none = np.ones((1, 1)), np.zeros((1, 1))
    >>> terms = rule(np.array([1]), none, one, none[0], none, none, max_leverage=0.99)
    >>> terms.precision.round(4), terms.objective.round(4)
    (array([[0.4669]]), array([-0.6931]))
    """

    def terms(self, labels: IntArray, at: LatentMarginals, cavity: Cavity) -> RowTerms:
        """Terms of t rows; see `CavityRule`."""
        y = signs(labels)
        tilted = self.likelihood.tilted(y * cavity.mean, at.residual + cavity.variance)
        by_latent = tilted._replace(slope=y * tilted.slope)
        return propagated_terms(*at, cavity, by_latent)

    def complexity(self, posterior: Posterior) -> float:
        """−½ log|B| + ½ ηᵀB⁻¹η: log-normaliser of q against the prior's."""
        return posterior.log_partition
