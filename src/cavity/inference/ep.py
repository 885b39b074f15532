"""Expectation propagation: match the moments of a row's exact likelihood times its cavity."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cavity.gp.posterior import Posterior
from cavity.inference.rule import Cavity, LatentMarginals, RowTerms, Rule, centred
from cavity.typing import IntArray


@dataclass(frozen=True)
class ExpectationPropagation(Rule):
    """Expectation propagation, for any likelihood with tilted moments.

    With the row's own site divided out of q (the cavity, v\\ and e\\), the likelihood integrated against
    N(e\\, s + v\\) to log Z, and α = ∂ log Z/∂e\\, β = −∂² log Z/∂e\\²:

        ν̃ = β/(1 − βv\\),   μ̃ = α + ν̃(e\\ + v\\ α),   γ = β − α²
        log Z̃ = log Z − ½ log(1 − ν̃v) + ½ (ν̃e² − 2eμ̃ + vμ̃²)/(1 − ν̃v)

    The last line is log Z + g(cavity) − g(q) with the division by v cancelled. With an offset o of the
    row, its likelihood is integrated against N(o + e\\, s + v\\), and the rest keeps its form. With many
    classes, the moments are matched class by class: a row has one site for each class, independent of
    the others.

    >>> rule = ExpectationPropagation()
    >>> one, none = np.ones((1, 1)), np.zeros((1, 1))
    >>> terms = rule(np.array([1]), none, one, none[0], none, none, max_leverage=0.99)
    >>> terms.precision.round(4), terms.objective.round(4)
    (array([[0.4669]]), array([-0.6931]))
    """

    def terms(self, labels: IntArray, at: LatentMarginals, cavity: Cavity) -> RowTerms:
        """Terms of t rows; see `Rule`."""
        mean, variance, residual = at.mean, at.variance, at.residual
        tilted = self.likelihood.tilted(labels, at.of_latent(cavity.mean), residual + cavity.variance)
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
        terms = RowTerms(
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
        return centred(terms, mean) if self.likelihood.translation_invariant else terms

    def complexity(self, posterior: Posterior) -> float:
        """−½ log|B| + ½ ηᵀB⁻¹η: the log-normaliser of q minus that of the prior."""
        return posterior.log_partition
