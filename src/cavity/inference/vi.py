"""Variational inference: the expected log likelihood of a row under q."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cavity.gp.posterior import Posterior
from cavity.inference.rule import Cavity, LatentMarginals, RowTerms, Rule, centred
from cavity.typing import IntArray


@dataclass(frozen=True)
class Variational(Rule):
    """Variational inference, for any likelihood with expectations of its logarithm.

    With f ~ N(e, s + v) under q: F = E[log p], α = ∂F/∂e = E[∂ log p], β = E[∂² log p] ≤ 0. A full
    natural-gradient step puts the site at ν̃ = −β, μ̃ = α − βe; and h = β, γ = −β.

    With an offset o the expectations are those of f ~ N(o + e, s + v), and the rest keeps its form.

    VI itself has no cavity. The row's log predictive probability is that of its label once the site
    that q holds for it is divided out of q: an estimate of leaving the row out, as in EP.

    >>> rule = Variational()
    >>> one, none = np.ones((1, 1)), np.zeros((1, 1))
    >>> terms = rule(np.array([1]), none, one, none[0], none, none, max_leverage=0.99)
    >>> terms.precision.round(4), terms.objective.round(4)
    (array([[0.5956]]), array([-1.]))
    """

    natural: bool = True
    """Whether sites are for natural-gradient steps. If not, their sums are the gradient of the bound."""
    site_gamma: ClassVar[float | None] = 1.0

    def terms(self, labels: IntArray, at: LatentMarginals, cavity: Cavity) -> RowTerms:
        """Terms of t rows; see `Rule`."""
        expected = self.likelihood.expected(labels, at.of_latent(at.mean), at.residual + at.variance)
        new_precision = np.maximum(-expected.curvature, 0.0)
        nothing = np.zeros_like(new_precision)
        terms = RowTerms(
            precision=new_precision,
            shift=expected.slope + new_precision * at.mean,
            objective=expected.log_likelihood.sum(axis=0),
            log_predictive=self.likelihood.log_predictive(
                labels, at.of_latent(cavity.mean), at.residual + cavity.variance
            ),
            alpha=expected.slope,
            h=-new_precision,
            gamma=new_precision,
            mismatch_mean=nothing,
            mismatch_square=nothing,
        )
        is_centred = self.natural and self.likelihood.translation_invariant
        return centred(terms, at.mean) if is_centred else terms

    def complexity(self, posterior: Posterior) -> float:
        """−KL[q ‖ prior]."""
        return -posterior.divergence
