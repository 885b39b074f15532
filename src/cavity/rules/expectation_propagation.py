"""The EP rule with a probit likelihood: every integral in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cavity.posterior import Posterior
from cavity.rules.probit import density_ratio, log_cdf
from cavity.rules.protocol import RowTerms
from cavity.typing import Array, IntArray


@dataclass(frozen=True)
class ProbitEP:
    """Expectation propagation for y = sign(f + ε), ε ~ N(0, 1), two classes.

    With the row's own site taken out of q (the cavity, v\\ and e\\) and b = 1 + s + v\\, z = y e\\/√b:

        log Z = log Φ(z),   α = [φ(z)/Φ(z)] y/√b,   β = α² + α e\\/b
        ν̃ = 1/(1/β − v\\),   μ̃ = α + ν̃(e\\ + v\\ α)
        log Z̃ = log Z − ½ log(1 − ν̃v) + ½ (ν̃e² − 2eμ̃ + vμ̃²)/(1 − ν̃v)

    The last line is log Z + g(cavity) − g(q) with the division by v cancelled.
    """

    n_latents: int = 1

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
        precision, shift = limit_leverage(precision, shift, variance, max_leverage)
        kept = 1.0 - precision * variance
        cavity_variance = variance / kept
        cavity_mean = (mean - variance * shift) / kept

        b = 1.0 + residual + cavity_variance
        root_b = np.sqrt(b)
        z = y * cavity_mean / root_b
        ratio = density_ratio(z)
        alpha = ratio * y / root_b
        gamma = ratio * z / b
        # β = ratio·(ratio + z)/b, where 0 < ratio·(ratio + z) < 1; so 1 − βv\ stays positive.
        bend = np.clip(ratio * (ratio + z), 0.0, 1.0)
        new_precision = bend / (1.0 + residual + cavity_variance * (1.0 - bend))
        new_shift = alpha + new_precision * (cavity_mean + cavity_variance * alpha)

        log_z = log_cdf(z)
        quadratic = precision * mean**2 - 2.0 * mean * shift + variance * shift**2
        objective = log_z - 0.5 * np.log(kept) + 0.5 * quadratic / kept

        pull = (precision * mean - shift) / kept
        delta = pull + alpha / kept
        omega = precision / kept - (bend / b) / kept**2 + delta**2
        return RowTerms(
            precision=new_precision,
            shift=new_shift,
            objective=objective.sum(axis=0),
            log_predictive=log_z.sum(axis=0),
            alpha=alpha,
            h=alpha * pull - gamma / kept,
            gamma=gamma,
            mismatch_mean=delta,
            mismatch_square=omega,
        )

    def complexity(self, posterior: Posterior) -> float:
        """−½ log|B| + ½ ηᵀB⁻¹η: log-normaliser of q against the prior's."""
        return posterior.log_partition

    def predict_log_proba(self, mean: Array, variance: Array) -> Array:
        """Log probabilities [t, 2] of the two classes: log Φ(∓e/√(1 + v))."""
        z = mean[0] / np.sqrt(1.0 + variance[0])
        return np.stack([log_cdf(-z), log_cdf(z)], axis=1)


def limit_leverage(
    precision: Array, shift: Array, variance: Array, max_leverage: float
) -> tuple[Array, Array]:
    """Sites scaled down so that ν̃v ≤ max_leverage.

    In an exact q a row's own site cannot exceed it; when kernel or inducing points have moved since
    the site entered q, it can, and the cavity would be improper.
    """
    leverage = precision * variance
    factor = np.where(leverage > max_leverage, max_leverage / np.maximum(leverage, 1e-300), 1.0)
    return precision * factor, shift * factor
