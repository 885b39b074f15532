"""What EP and VI make of a likelihood's answer, for any number of latent functions.

The EP rule: match the moments of a row's exact likelihood times its cavity.

The rules of three classes and more: one latent function a class, and the largest one wins.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from cavity.gp.likelihoods.base import Expected, Tilted, signs
from cavity.gp.likelihoods.noisy_argmax import NoisyArgmax
from cavity.gp.posterior import Posterior
from cavity.inference.rule import Cavity, CavityRule, LatentMarginals, RowTerms, TwoClassRule
from cavity.typing import Array, IntArray


def propagated_terms(
    mean: Array, variance: Array, residual: Array, cavity: Cavity, tilted: Tilted
) -> RowTerms:
    """EP's terms of t rows from marginals and cavities [C, t], residual [t] and the tilted moments.

    `tilted` has slope, curvature, gamma and variance_ratio [C, t], derivatives by the latent values
    themselves, and log_evidence [C, t] or, if the latent functions meet in one likelihood, [1, t].
    The formulas are those of `ExpectationPropagation`.
    """
    alpha, beta, gamma = tilted.slope, tilted.curvature, tilted.gamma
    # 1 − βv\ = [1 − β(s + v\)] + βs: positive terms only.
    new_precision = beta / (tilted.variance_ratio + beta * residual)
    new_shift = alpha + new_precision * (cavity.mean + cavity.variance * alpha)

    kept, own_precision, own_shift = cavity.kept, cavity.precision, cavity.shift
    quadratic = own_precision * mean**2 - 2.0 * mean * own_shift + variance * own_shift**2
    division = (-0.5 * np.log(kept) + 0.5 * quadratic / kept).sum(axis=0)
    log_predictive = tilted.log_evidence.sum(axis=0)

    pull = (own_precision * mean - own_shift) / kept
    delta = pull + alpha / kept
    return RowTerms(
        precision=new_precision,
        shift=new_shift,
        objective=log_predictive + division,
        log_predictive=log_predictive,
        alpha=alpha,
        h=alpha * pull - gamma / kept,
        gamma=gamma,
        mismatch_mean=delta,
        mismatch_square=own_precision / kept - beta / kept**2 + delta**2,
    )


def variational_terms(mean: Array, expected: Expected, log_predictive: Array) -> RowTerms:
    """VI's terms of t rows from means [C, t], expectations by the latent values, and scores [t]."""
    new_precision = np.maximum(-expected.curvature, 0.0)
    nothing = np.zeros_like(new_precision)
    return RowTerms(
        precision=new_precision,
        shift=expected.slope + new_precision * mean,
        objective=expected.log_likelihood.sum(axis=0),
        log_predictive=log_predictive,
        alpha=expected.slope,
        h=-new_precision,
        gamma=new_precision,
        mismatch_mean=nothing,
        mismatch_square=nothing,
    )


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
