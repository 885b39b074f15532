"""The logistic distribution as a mixture of normals: the bridge from the logit to closed forms.

If K has Kolmogorov's distribution and ε is standard normal, then 2Kε has the standard logistic
distribution (Andrews and Mallows, 1974), so that

    sigmoid(z) = E[Φ(z/τ)],      τ = 2K,

and integrals of sigmoid, or of log sigmoid, against a normal are mixtures of closed forms. The
expectation over τ is a Gauss rule in log τ: n components, positive weights that sum to 1.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from cavity.rules.quadrature import gauss_rule
from cavity.typing import Array

N_COMPONENTS = 16
"""Errors of sigmoid, its integral log sigmoid, and its derivative are at most 2e-11, 1e-11 and 3e-11."""


@lru_cache(maxsize=4)
def logistic_mixture(n_components: int = N_COMPONENTS) -> tuple[Array, Array]:
    """Weights p and scales τ, each [n_components], with sigmoid(z) = Σ p Φ(z/τ).

    >>> weights, scales = logistic_mixture()
    >>> float((weights * scales**2).sum() / (np.pi**2 / 3)).__round__(6)
    1.0
    """
    log_half_scale = np.arange(np.log(0.1), np.log(7.0), 0.01)
    k = np.exp(log_half_scale)
    nodes, weights = gauss_rule(log_half_scale, k * kolmogorov_density(k), n_components)
    return weights / weights.sum(), 2.0 * np.exp(nodes)


def kolmogorov_density(k: Array) -> Array:
    """Density of Kolmogorov's distribution at k [N] > 0.

    8k Σ (−1)^{j+1} j² exp(−2j²k²), and for small k the other end of the theta function's identity,
    √(2π) Σ (2a/k⁴ − 1/k²) exp(−a/k²) with a = (2j − 1)²π²/8.
    """
    j = np.arange(1.0, 9.0)[:, None]
    large = 8.0 * k * ((-1.0) ** (j + 1) * j**2 * np.exp(-2.0 * (j * k) ** 2)).sum(axis=0)
    a = ((2.0 * j - 1.0) * np.pi) ** 2 / 8.0
    small = ((2.0 * a / k**4 - 1.0 / k**2) * np.exp(-a / k**2)).sum(axis=0) * np.sqrt(2.0 * np.pi)
    return np.asarray(np.where(k > 0.8, large, small))
