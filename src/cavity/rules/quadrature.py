"""Gauss–Hermite expectations under a scalar normal distribution."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from cavity.typing import Array


@lru_cache(maxsize=8)
def gauss_hermite(n_nodes: int) -> tuple[Array, Array]:
    """Nodes and weights [n_nodes] with Σ wⱼ g(xⱼ) = E[g(x)] for x ~ N(0, 1)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(n_nodes)
    return nodes, weights / weights.sum()
