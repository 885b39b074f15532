"""The probit likelihood, p(z) = Φ(z): the sign of f seen through standard normal noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cavity.gp.likelihoods.base import BinaryLikelihood, Expected, Tilted
from cavity.gp.likelihoods.normal import (
    density_ratio,
    expected_log_cdf,
    log_cdf,
    log_cdf_curvature,
)
from cavity.typing import Array


@dataclass(frozen=True)
class Probit(BinaryLikelihood):
    """p(z) = Φ(z): all integrals in closed form, but E[log p], which is a quadrature to 1e-10.

    >>> Probit().log_predictive_margin(np.array([0.0]), np.array([3.0])).round(6)
    array([-0.693147])
    """

    def tilted_margin(self, mean: Array, variance: Array) -> Tilted:
        """Evidence and derivatives, with b = 1 + variance, x = mean/√b and r = φ(x)/Φ(x).

        log Z = log Φ(x),   α = r/√b,   β = w/b,   γ = r x/b,
        1 − β·variance = (1 + variance·(1 − w))/b

        where 0 < w = r(r + x) < 1.
        """
        b = 1.0 + variance
        root_b = np.sqrt(b)
        x = mean / root_b
        ratio = density_ratio(x)
        w, rest = log_cdf_curvature(x, ratio)
        return Tilted(
            log_evidence=log_cdf(x),
            slope=ratio / root_b,
            curvature=w / b,
            gamma=ratio * x / b,
            variance_ratio=(1.0 + variance * rest) / b,
        )

    def expected_margin(self, mean: Array, variance: Array) -> Expected:
        """Expectations of log Φ and its derivatives; see `expected_log_cdf`."""
        return expected_log_cdf(mean, variance)

    def log_predictive_margin(self, mean: Array, variance: Array) -> Array:
        """Log Φ(mean/√(1 + variance))."""
        return log_cdf(self.score(mean, variance))

    def score(self, mean: Array, variance: Array) -> Array:
        """mean/√(1 + variance), of which Φ is the predictive probability."""
        return np.asarray(mean / np.sqrt(1.0 + variance))
