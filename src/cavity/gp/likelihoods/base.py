"""What a rule asks of a likelihood p(y | f), y = ±1, that depends on the margin z = y f only.

Two class codes, 0 and 1, as the signs −1 and +1 that a binary likelihood speaks of.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from cavity.typing import Array, IntArray


class Expected(NamedTuple):
    """Expectations under z ~ N(mean, variance); derivatives are by z."""

    log_likelihood: Array
    """F = E[log p]"""
    slope: Array
    """E[∂ log p] = ∂F/∂mean, ≥ 0"""
    curvature: Array
    """E[∂² log p] = 2 ∂F/∂variance, ≤ 0"""


class Tilted(NamedTuple):
    """The distribution p(z)·N(z | mean, variance)/Z; derivatives are by the mean."""

    log_evidence: Array
    """log Z"""
    slope: Array
    """α = ∂ log Z, ≥ 0; the tilted mean is mean + α·variance"""
    curvature: Array
    """β = −∂² log Z, ≥ 0"""
    gamma: Array
    """γ = β − α² = −∂²Z/Z, without cancellation"""
    variance_ratio: Array
    """1 − β·variance, in (0, 1]: the tilted variance over the variance, without cancellation"""


class Likelihood(Protocol):
    """A log-concave likelihood of the margin z = y f, symmetric: p(z) + p(−z) = 1.

    By f itself, a first derivative is y times that by z, and a second derivative is the same. All
    functions are element by element, for arrays of one common shape, without warnings for any finite
    margin up to 1e100.
    """

    def log_likelihood(self, margin: Array) -> Array:
        """Log p(z)."""
        ...

    def slope(self, margin: Array) -> Array:
        """∂ log p(z) ≥ 0."""
        ...

    def curvature(self, margin: Array) -> Array:
        """∂² log p(z) ≤ 0."""
        ...

    def expected(self, mean: Array, variance: Array) -> Expected:
        """Expectations of log p and its derivatives under N(mean, variance): what VI needs."""
        ...

    def tilted(self, mean: Array, variance: Array) -> Tilted:
        """The evidence and its derivatives under N(mean, variance): what EP needs."""
        ...

    def log_predictive(self, mean: Array, variance: Array) -> Array:
        """Log ∫ p(z) N(z | mean, variance) dz, increasing in the mean."""
        ...

    def score(self, mean: Array, variance: Array) -> Array:
        """A decision score: odd in the mean and increasing with the predictive probability."""
        ...


def signs(labels: IntArray) -> Array:
    """y = ±1 [t] of class codes [t].

    >>> signs(np.array([0, 1]))
    array([-1.,  1.])
    """
    return np.where(labels == 1, 1.0, -1.0)


def class_log_proba(likelihood: Likelihood, mean: Array, variance: Array) -> Array:
    """Log probabilities [t, 2] of the codes 0 and 1 when f ~ N(mean, variance), both [t]."""
    return np.stack(
        [likelihood.log_predictive(-mean, variance), likelihood.log_predictive(mean, variance)], axis=1
    )
