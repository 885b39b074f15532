"""The two rules of inference, EP and VI: a row's refined sites, and its scalars of the gradient.

A rule computes with scalars only, the moments of a row's latent values under q. Both rules first divide
the row's own site out of q: the cavity, the posterior of the other rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np

from cavity.gp.likelihoods import Likelihood, Probit
from cavity.gp.posterior import Posterior
from cavity.typing import Array, IntArray


class RowTerms(NamedTuple):
    """What each of t rows contributes to a pass; arrays are [C, t] for C latent functions, or [t]."""

    precision: Array
    """ν̃ [C, t]: precision of the refined site, ≥ 0."""
    shift: Array
    """μ̃ [C, t]: precision times mean of the refined site."""
    objective: Array
    """[t]: the row's share of the objective (log Z̃ for EP, E[log p] for VI)."""
    log_predictive: Array
    """[t]: log probability of the row's label with the row left out of q."""
    alpha: Array
    """[C, t]: weight of μ_w in the gradient with respect to the row's whitened features."""
    h: Array
    """[C, t]: weight of B⁻¹A in that gradient."""
    gamma: Array
    """[C, t]: weight of A in that gradient; −γ/2 is the derivative by k(x, x)."""
    mismatch_mean: Array
    """δ [C, t]: tilted minus current mean, as a multiple of B⁻¹A (zero at the fixed point)."""
    mismatch_square: Array
    """ω [C, t]: tilted minus current second moment, as a multiple of B⁻¹A AᵀB⁻¹."""


class Cavity(NamedTuple):
    """Moments of the other rows' posterior, and the site that was divided out; arrays [C, t]."""

    mean: Array
    """e\\ = (e − vμ̃)/(1 − ν̃v)"""
    variance: Array
    """v\\ = v/(1 − ν̃v)"""
    kept: Array
    """1 − ν̃v: the share of q's information that is not the row's own, > 0."""
    precision: Array
    """ν̃ as divided out."""
    shift: Array
    """μ̃ as divided out."""


def leave_out(
    mean: Array, variance: Array, precision: Array, shift: Array, max_leverage: float
) -> Cavity:
    """Divide sites (precision, shift) out of the marginals N(mean, variance); all [C, t].

    >>> leave_out(np.array([1.0]), np.array([0.5]), np.array([1.0]), np.array([2.0]), 0.9).variance
    array([1.])
    """
    precision, shift = limit_leverage(precision, shift, variance, max_leverage)
    kept = 1.0 - precision * variance
    return Cavity((mean - variance * shift) / kept, variance / kept, kept, precision, shift)


def limit_leverage(
    precision: Array, shift: Array, variance: Array, max_leverage: float
) -> tuple[Array, Array]:
    """Scale sites down so that ν̃v ≤ max_leverage.

    If q is exactly the product of prior and sites, ν̃v is below 1. It can be larger if kernel or inducing
    points have moved since the site entered q, and then the cavity would be improper.
    """
    leverage = precision * variance
    factor = max_leverage / np.maximum(leverage, max_leverage)  # 1 up to the bound
    return precision * factor, shift * factor


class LatentMarginals(NamedTuple):
    """Moments of the latent values of t rows, under q and the prior."""

    mean: Array
    """e [C, t], of Aᵀu under q."""
    variance: Array
    """v [C, t], of Aᵀu under q."""
    residual: Array
    """s [t]: variance of f given u."""
    offset: Array | None = None
    """o [C, t]: what is added to Aᵀu and the residual to make the latent value; None is 0."""

    def of_latent(self, mean: Array) -> Array:
        """Means [C, t] of latent values, from means of their part Aᵀu: the offset is added."""
        return mean if self.offset is None else mean + self.offset


@dataclass(frozen=True)
class Rule(ABC):
    """How sites are refined, from scalar marginals under q; a subclass is one method of inference."""

    likelihood: Likelihood = field(default_factory=Probit)
    site_gamma: ClassVar[float | None] = None
    """γ/ν̃, if that ratio is the same for all rows."""

    @property
    def n_latents(self) -> int:
        """Number C of latent functions, each with its own posterior."""
        return self.likelihood.n_latents

    def __call__(
        self,
        labels: IntArray,
        mean: Array,
        variance: Array,
        residual: Array,
        precision: Array,
        shift: Array,
        max_leverage: float,
        offset: Array | None = None,
    ) -> RowTerms:
        """Terms of t rows.

        labels: [t] class codes; mean, variance: [C, t] moments of Aᵀu under q; residual: [t], the
        variance s of f given u; precision, shift: [C, t], the sites that q holds for these rows;
        max_leverage: bound on ν̃v, the share of q's information that a row may claim as its own; offset:
        [C, t], known parts o of the latent values. The likelihood sees means with the offset. All sites
        and moments of q are those of Aᵀu, without it: a site of f = o + Aᵀu with the shift μ̃ has the
        shift μ̃ − ν̃o as a site of Aᵀu, and the derivatives by the means are the same.
        """
        cavity = leave_out(mean, variance, precision, shift, max_leverage)
        return self.terms(labels, LatentMarginals(mean, variance, residual, offset), cavity)

    @abstractmethod
    def terms(self, labels: IntArray, at: LatentMarginals, cavity: Cavity) -> RowTerms:
        """Terms of t rows from labels [t], marginals under q, and cavities."""

    @abstractmethod
    def complexity(self, posterior: Posterior) -> float:
        """The part of the objective that belongs to q as a whole rather than to a row."""


def centred(terms: RowTerms, mean: Array) -> RowTerms:
    """Move sites so that the latent means [C, t] of a row come to add up to zero.

    This is for likelihoods that do not change when all C latent values rise by the same amount. Then
    Σ_c α_c = 0 and, at the fixed point, the means of q add up to zero everywhere. The fixed point is the
    same without this move, but sites that are refined one by one reach it only after very many sweeps.
    """
    return terms._replace(shift=terms.shift - terms.precision * mean.mean(axis=0))


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
