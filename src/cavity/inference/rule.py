"""What an inference rule computes for single rows: refined sites and the scalars of the gradient.

A rule computes with scalars only, the moments of a row's latent values under q. Both rules, EP and VI,
first divide the row's own site out of q: the cavity, the posterior of the other rows.
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
