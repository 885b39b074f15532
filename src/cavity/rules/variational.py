"""The VI rule: expectations of log p(y | f) under q, by Gauss–Hermite quadrature."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cavity.posterior import Posterior
from cavity.rules.probit import density_ratio, log_cdf
from cavity.rules.protocol import RowTerms
from cavity.rules.quadrature import gauss_hermite
from cavity.typing import Array, IntArray


@dataclass(frozen=True)
class ProbitVI:
    """Variational inference for a probit likelihood, two classes.

    With f ~ N(e, s + v) under q: F = E[log Φ(yf)], α = ∂F/∂e = E[∂ log Φ], β = E[∂² log Φ] ≤ 0.
    A full natural-gradient step puts the site at ν̃ = −β, μ̃ = α + ν̃e.
    """

    n_latents: int = 1
    n_nodes: int = 32

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
        y = np.where(labels == 1, 1.0, -1.0)
        nodes, weights = gauss_hermite(self.n_nodes)
        total = residual + variance
        z = (y * mean)[..., None] + np.sqrt(total)[..., None] * nodes
        ratio = density_ratio(z)
        alpha = y * (ratio @ weights)
        bend = np.clip(ratio * (ratio + z), 0.0, 1.0) @ weights
        nothing = np.zeros_like(alpha)
        return RowTerms(
            precision=bend,
            shift=alpha + bend * mean,
            objective=(log_cdf(z) @ weights).sum(axis=0),
            log_predictive=log_cdf(y * mean / np.sqrt(1.0 + total)).sum(axis=0),
            alpha=alpha,
            h=-bend,
            gamma=bend,
            mismatch_mean=nothing,
            mismatch_square=nothing,
        )

    def complexity(self, posterior: Posterior) -> float:
        """−KL[q ‖ prior]."""
        return -posterior.divergence

    def predict_log_proba(self, mean: Array, variance: Array) -> Array:
        """Log probabilities [t, 2] of the two classes: log Φ(∓e/√(1 + v))."""
        z = mean[0] / np.sqrt(1.0 + variance[0])
        return np.stack([log_cdf(-z), log_cdf(z)], axis=1)
