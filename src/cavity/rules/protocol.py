"""What a rule says about a row: scalars only, no matrix in sight."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from cavity.posterior import Posterior
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
