"""The probit likelihood, p(z) = Φ(z): the sign of f seen through standard normal noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cavity.gp.likelihoods.base import Expected, Tilted
from cavity.gp.likelihoods.normal import bend, density_ratio, expected_log_cdf, log_cdf
from cavity.typing import Array


@dataclass(frozen=True)
class Probit:
    """p(z) = Φ(z); `tilted` and `log_predictive` in closed form, `expected` by quadrature to 1e-10.

    >>> Probit().log_predictive(np.array([0.0]), np.array([3.0])).round(6)
    array([-0.693147])
    """

    def log_likelihood(self, margin: Array) -> Array:
        """Log Φ(z)."""
        return log_cdf(margin)

    def slope(self, margin: Array) -> Array:
        """φ(z)/Φ(z)."""
        return density_ratio(margin)

    def curvature(self, margin: Array) -> Array:
        """−r(r + z) with r = φ(z)/Φ(z)."""
        return -bend(margin, density_ratio(margin))[0]

    def expected(self, mean: Array, variance: Array) -> Expected:
        """Expectations of log Φ and its derivatives; see `expected_log_cdf`."""
        return expected_log_cdf(mean, variance)

    def tilted(self, mean: Array, variance: Array) -> Tilted:
        """With b = 1 + variance, x = mean/√b and r = φ(x)/Φ(x).

        log Z = log Φ(x),   α = r/√b,   β = w/b,   γ = r x/b,
        1 − β·variance = (1 + variance·(1 − w))/b

        where 0 < w = r(r + x) < 1.
        """
        b = 1.0 + variance
        root_b = np.sqrt(b)
        x = mean / root_b
        ratio = density_ratio(x)
        w, rest = bend(x, ratio)
        return Tilted(
            log_evidence=log_cdf(x),
            slope=ratio / root_b,
            curvature=w / b,
            gamma=ratio * x / b,
            variance_ratio=(1.0 + variance * rest) / b,
        )

    def log_predictive(self, mean: Array, variance: Array) -> Array:
        """Log Φ(mean/√(1 + variance))."""
        return log_cdf(self.score(mean, variance))

    def score(self, mean: Array, variance: Array) -> Array:
        """mean/√(1 + variance), of which Φ is the predictive probability."""
        return np.asarray(mean / np.sqrt(1.0 + variance))
