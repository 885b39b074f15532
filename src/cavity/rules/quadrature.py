"""Gauss rules: for the normal distribution, and for any distribution given as a fine histogram."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from cavity.typing import Array


@lru_cache(maxsize=8)
def gauss_hermite(n_nodes: int) -> tuple[Array, Array]:
    """Nodes and weights [n_nodes] with Σ wⱼ g(xⱼ) = E[g(x)] for x ~ N(0, 1).

    Exact for polynomials of degree 2·n_nodes − 1.

    >>> nodes, weights = gauss_hermite(3)
    >>> float((weights * nodes**4).sum().round(12))
    3.0
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(n_nodes)
    return nodes, weights / weights.sum()


def gauss_rule(points: Array, masses: Array, n_nodes: int) -> tuple[Array, Array]:
    """Nodes and weights [n_nodes] of the Gauss rule of the distribution Σ massesᵢ δ(pointsᵢ).

    points, masses: [N], N ≫ n_nodes, masses ≥ 0 (normalised here). Lanczos' process on diag(points),
    started at √masses, gives the recurrence of the orthogonal polynomials as a tridiagonal matrix: its
    eigenvalues are the nodes, the squared first components of its eigenvectors the weights
    (Golub and Welsch, 1969).

    >>> nodes, weights = gauss_rule(np.linspace(-1, 1, 2001), np.ones(2001), 2)
    >>> nodes.round(3), weights.round(3)
    (array([-0.578,  0.578]), array([0.5, 0.5]))
    """
    basis = np.empty((n_nodes, len(points)))
    jacobi = np.zeros((n_nodes, n_nodes))
    vector = np.sqrt(masses / masses.sum())
    for k in range(n_nodes):
        basis[k] = vector
        product = points * vector
        jacobi[k, k] = vector @ product
        for _ in range(2):  # twice is enough to keep the basis orthogonal to rounding
            product -= basis[: k + 1].T @ (basis[: k + 1] @ product)
        length = np.linalg.norm(product)
        if k + 1 < n_nodes:
            jacobi[k, k + 1] = jacobi[k + 1, k] = length
            vector = product / length
    nodes, vectors = np.linalg.eigh(jacobi)
    return nodes, vectors[0] ** 2
