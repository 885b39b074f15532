"""What a rule says about a row: scalars only, no matrix in sight.

The cavity: q with a row's own site taken out, which is the posterior of the other rows.

What every rule here does first: take the row's own site out of q.

What the rules of two classes share: one latent function, and a likelihood of its sign.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from cavity.gp.likelihoods import Likelihood, Probit
from cavity.gp.likelihoods.base import class_log_proba
from cavity.gp.posterior import Posterior
from cavity.typing import Array, IntArray


class RowTerms(NamedTuple):
    """What each of t rows contributes; arrays are [C, t] for C latent functions, or [t]."""

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


class Rule(Protocol):
    """Refines sites and gives the gradient's scalars, from scalar marginals under q."""

    @property
    def n_latents(self) -> int:
        """Number C of latent functions, each with its own posterior."""
        ...

    @property
    def site_gamma(self) -> float | None:
        """What γ is of ν̃, if that is the same in all rows."""
        ...

    def __call__(
        self,
        labels: IntArray,
        mean: Array,
        variance: Array,
        residual: Array,
        precision: Array,
        shift: Array,
        max_leverage: float,
    ) -> RowTerms:
        """Terms of t rows.

        labels: [t] class codes; mean, variance: [C, t] moments of Aᵀu under q; residual: [t], the
        variance s of f given u; precision, shift: [C, t], the sites that q holds for these rows;
        max_leverage: bound on ν̃v, the share of q's information that a row may claim as its own.
        """
        ...

    def complexity(self, posterior: Posterior) -> float:
        """The part of the objective that belongs to q as a whole rather than to a row."""
        ...

    def predict_log_proba(self, mean: Array, variance: Array) -> Array:
        """Log class probabilities [t, n_classes] from latent moments mean, variance [C, t]."""
        ...

    def decision_score(self, mean: Array, variance: Array) -> Array:
        """A score [t] that rises with the probability of the second of two classes; moments [C, t].

        With more classes, scores [t, C] of which the largest is the prediction.
        """
        ...


class Cavity(NamedTuple):
    """Moments of the other rows' posterior, and the site that was taken out; arrays [C, t]."""

    mean: Array
    """e\\ = (e − vμ̃)/(1 − ν̃v)"""
    variance: Array
    """v\\ = v/(1 − ν̃v)"""
    kept: Array
    """1 − ν̃v: the share of q's information that is not the row's own, > 0."""
    precision: Array
    """ν̃ as taken out."""
    shift: Array
    """μ̃ as taken out."""


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
    """Sites scaled down so that ν̃v ≤ max_leverage.

    In an exact q a row's own site cannot exceed it; when kernel or inducing points have moved since
    the site entered q, it can, and the cavity would be improper.
    """
    leverage = precision * variance
    factor = max_leverage / np.maximum(leverage, max_leverage)  # 1 up to the bound
    return precision * factor, shift * factor


class LatentMarginals(NamedTuple):
    """What q and the prior say of t rows."""

    mean: Array
    """e [C, t], of Aᵀu under q."""
    variance: Array
    """v [C, t], of Aᵀu under q."""
    residual: Array
    """s [t]: variance of f given u."""


class CavityRule(ABC):
    """The `Rule` of those that start from the cavity; a subclass says what follows from it."""

    site_gamma: ClassVar[float | None] = None

    def __call__(
        self,
        labels: IntArray,
        mean: Array,
        variance: Array,
        residual: Array,
        precision: Array,
        shift: Array,
        max_leverage: float,
    ) -> RowTerms:
        """Terms of t rows; see `Rule`."""
        cavity = leave_out(mean, variance, precision, shift, max_leverage)
        return self.terms(labels, LatentMarginals(mean, variance, residual), cavity)

    @abstractmethod
    def terms(self, labels: IntArray, at: LatentMarginals, cavity: Cavity) -> RowTerms:
        """Terms of t rows from labels [t], marginals under q, and the cavities."""


@dataclass(frozen=True)
class TwoClassRule(CavityRule):
    """A likelihood, and how it predicts; a subclass says what it learns of a row."""

    likelihood: Likelihood = field(default_factory=Probit)
    n_latents: int = 1

    def predict_log_proba(self, mean: Array, variance: Array) -> Array:
        """Log probabilities [t, 2] of the two classes."""
        return class_log_proba(self.likelihood, mean[0], variance[0])

    def decision_score(self, mean: Array, variance: Array) -> Array:
        """The likelihood's score of the second class [t]."""
        return self.likelihood.score(mean[0], variance[0])
