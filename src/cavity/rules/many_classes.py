"""The rules of three classes and more: one latent function a class, and the largest one wins."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from cavity.posterior import Posterior
from cavity.rules.cavity_moments import Cavity
from cavity.rules.cavity_rule import CavityRule, LatentMarginals
from cavity.rules.likelihoods.noisy_argmax import NoisyArgmax
from cavity.rules.protocol import RowTerms
from cavity.rules.site_terms import propagated_terms, variational_terms
from cavity.typing import Array, IntArray


@dataclass(frozen=True)
class _ManyClasses(CavityRule):
    """What both rules share: how many classes there are, and how they are predicted."""

    n_latents: int
    likelihood: NoisyArgmax = field(default_factory=NoisyArgmax)

    def predict_log_proba(self, mean: Array, variance: Array) -> Array:
        """Log probabilities [t, C]."""
        return self.likelihood.log_predictive(mean, variance)

    def decision_score(self, mean: Array, variance: Array) -> Array:
        """The log probabilities [t, C]: the largest is the prediction."""
        return self.predict_log_proba(mean, variance)


def _centred(terms: RowTerms, mean: Array) -> RowTerms:
    """Sites moved so that the latent means [C, t] of a row come to add up to zero.

    A label does not change when all C functions rise alike, so Σ_c α_c = 0 and, at the fixed point, the
    means of q add up to zero everywhere. Left to themselves the sites, each of which holds its own
    function where it is, would creep towards that over very many sweeps. The fixed point is the same.
    """
    return terms._replace(shift=terms.shift - terms.precision * mean.mean(axis=0))


@dataclass(frozen=True)
class ManyClassPropagation(_ManyClasses):
    """Expectation propagation with the multinomial probit: a site for each row and class.

    The moments of the likelihood times C cavities are matched class by class; the sites of a row are
    independent of each other.

    >>> import numpy as np
    >>> rule, zeros = ManyClassPropagation(3), np.zeros((3, 1))
    >>> terms = rule(np.array([1]), zeros, zeros + 1.0, zeros[0], zeros, zeros, max_leverage=0.99)
    >>> terms.precision.round(3).ravel(), float(np.exp(terms.log_predictive[0]).round(6))
    (array([0.188, 0.282, 0.188]), 0.333333)
    """

    def terms(self, labels: IntArray, at: LatentMarginals, cavity: Cavity) -> RowTerms:
        """Terms of t rows; see `CavityRule`."""
        tilted = self.likelihood.tilted(labels, cavity.mean, at.residual + cavity.variance)
        return _centred(propagated_terms(*at, cavity, tilted), at.mean)

    def complexity(self, posterior: Posterior) -> float:
        """The log-normaliser of q against the prior's, of all latent functions."""
        return posterior.log_partition


@dataclass(frozen=True)
class ManyClassVariational(_ManyClasses):
    """Variational inference with the pairwise bound of the multinomial probit.

    The objective bounds the same model's evidence from below; see `NoisyArgmax.expected`. With
    `centred` the sites are for natural-gradient steps; without, their sums are the bound's gradient.

    >>> import numpy as np
    >>> rule, zeros = ManyClassVariational(3), np.zeros((3, 1))
    >>> terms = rule(np.array([1]), zeros, zeros + 1.0, zeros[0], zeros, zeros, max_leverage=0.99)
    >>> terms.objective.round(4)
    array([-2.])
    """

    centred: bool = True
    site_gamma: ClassVar[float | None] = 1.0

    def terms(self, labels: IntArray, at: LatentMarginals, cavity: Cavity) -> RowTerms:
        """Terms of t rows; see `CavityRule`."""
        expected = self.likelihood.expected(labels, at.mean, at.residual + at.variance)
        left_out = self.likelihood.tilted(labels, cavity.mean, at.residual + cavity.variance)
        terms = variational_terms(at.mean, expected, left_out.log_evidence[0])
        return _centred(terms, at.mean) if self.centred else terms

    def complexity(self, posterior: Posterior) -> float:
        """−KL[q ‖ prior], of all latent functions."""
        return -posterior.divergence
