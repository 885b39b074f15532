"""Stable functions of the standard normal distribution Φ, Gauss rules, and E[log Φ].

The expectation of log Φ(z) under z ~ N(e, V) is needed for any width. Gauss–Hermite nodes are spaced by
√V, while log Φ bends from 0 to −z²/2 over a few units around zero. Where √V is small, log Φ is smooth
between nodes, and a few of them are exact. Where √V is large, the nodes step over the bend: 32 of them
err by 1e-4 in E[(log Φ)″] at √V = 3 and by 1e-2 in E[(log Φ)′] at √V = 30. There,

    log Φ(z) = S(z) + R(z),      S(z) = −½[(z² + 1)Φ(−z) − zφ(z)],

where S″(z) = −Φ(−z), so that its expectations are in closed form, with T² = 1 + V and x = −e/T:

    E[S″] = −Φ(x),    E[S′] = T(xΦ(x) + φ(x)),    E[S] = −½T²[(x² + 1)Φ(x) + xφ(x)],

and R is smooth, zero to the right and about −log|z| to the left. E[R] = ∫ R(z)N(z | e, V)dz is a
trapezoidal sum over nodes z = c sinh(jh), dense around zero and geometric beyond. They are the same for
all rows, so the values of R are a table and a row costs one exp per node. Rows whose mass lies wholly in
the left tail (e < −7√V), where log Φ is smooth again, go to Gauss–Hermite.

Error, over √V from 0 to 1e3 and |e| up to 1e3, relative to max(1, |value|): 1e-10 for all three.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.special import erfcx, log_ndtr, ndtr

from cavity.gp.likelihoods.base import Expected
from cavity.typing import Array

SQRT_HALF = np.sqrt(0.5)
SQRT_2_OVER_PI = np.sqrt(2.0 / np.pi)
INV_SQRT_2PI = 1.0 / np.sqrt(2.0 * np.pi)
_FAR = -45.0
"""z below which asymptotic series are exact to rounding, while differences cancel."""
_N_HERMITE = 10
"""Gauss–Hermite nodes for narrow normals."""
_WIDE = 0.4
"""√V from which E[log Φ] uses the table, except in the left tail."""
_LEFT_TAIL = -7.0
"""e/√V below which E[log Φ] does not use the table, however large √V is."""
_STEP, _SCALE = 0.06, 4.5
"""h and c of the table's nodes."""
_REACH = 8.5
"""Standard deviations beyond which N(e, V) is negligible."""
_LEFTMOST = -1e6
"""Smallest node of the table."""


def log_cdf(z: Array) -> Array:
    """Log Φ(z), exact far into both tails."""
    return np.asarray(log_ndtr(z))


def density(z: Array) -> Array:
    """φ(z) = exp(−z²/2)/√(2π)."""
    return np.asarray(INV_SQRT_2PI * np.exp(-0.5 * z * z))


def density_ratio(z: Array) -> Array:
    """φ(z)/Φ(z), the derivative of log Φ; about −z for very negative z, 0 for very positive z.

    Computed from Φ(z) = φ(z)·√(π/2)·erfcx(−z/√2): nothing cancels, and overflow gives the right limit.

    >>> density_ratio(np.array([-1000.0, 0.0, 100.0])).round(6)
    array([1.000001e+03, 7.978850e-01, 0.000000e+00])
    """
    with np.errstate(over="ignore"):
        return np.asarray(SQRT_2_OVER_PI / erfcx(-SQRT_HALF * z))


def log_cdf_curvature(z: Array, ratio: Array) -> tuple[Array, Array]:
    """w = −(log Φ)″(z) = r(r + z) and 1 − w, both in [0, 1], from z and r = φ(z)/Φ(z).

    1 − w is the variance of a standard normal known to exceed −z. For very negative z both r + z and
    1 − w are differences of large numbers; there 1 − w = 1/z² − 6/z⁴ + 50/z⁶ − 518/z⁸ + O(z⁻¹⁰).

    >>> z = np.array([-1e3, 0.0, 40.0])
    >>> [float(f"{x:.6g}") for x in log_cdf_curvature(z, density_ratio(z))[1]]
    [9.99994e-07, 0.36338, 1.0]
    """
    w = np.minimum(np.maximum(ratio * (ratio + z), 0.0), 1.0)
    rest = 1.0 - w
    far = z < _FAR
    if far.any():
        u = 1.0 / np.square(np.where(far, z, _FAR))
        rest = np.where(far, u * (1.0 - u * (6.0 - u * (50.0 - u * 518.0))), rest)
        w = np.where(far, 1.0 - rest, w)
    return w, rest


def log_cdf_and_derivatives(z: Array) -> tuple[Array, Array, Array]:
    """Log Φ(z), φ(z)/Φ(z) and −(log Φ)″(z), with one erfcx, exp and log for all three.

    For large z, log Φ has a small absolute but not a small relative error: use it in sums of many.
    """
    scaled = erfcx(SQRT_HALF * np.abs(z))
    gauss = np.exp(-0.5 * z * z)
    tail = 0.5 * gauss * scaled  # Φ(−|z|)
    left = z < 0.0
    # Φ(z), on the left divided by exp(−z²/2); φ(z) likewise.
    cdf = np.where(left, 0.5 * scaled, 1.0 - tail)
    ratio = INV_SQRT_2PI * np.where(left, 1.0, gauss) / cdf
    log_phi = np.log(cdf) - 0.5 * np.square(np.minimum(z, 0.0))
    return log_phi, ratio, log_cdf_curvature(z, ratio)[0]


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


def expected_log_cdf(mean: Array, variance: Array) -> Expected:
    """E[log Φ], E[(log Φ)′] and E[(log Φ)″] under N(mean, variance); arrays of one shape.

    >>> value = expected_log_cdf(np.array([0.0]), np.array([0.0])).log_likelihood
    >>> bool(abs(value[0] + np.log(2.0)) < 1e-9)
    True
    """
    mean, variance = np.broadcast_arrays(mean, variance)
    e, deviation = mean.ravel(), np.sqrt(variance.ravel())
    tabled = (deviation >= _WIDE) & (e > _LEFT_TAIL * deviation)
    out: Array = np.empty((3, e.size))
    for rows, integrate in ((tabled, _table), (~tabled, _hermite)):
        if rows.all():
            out = integrate(e, deviation)
        elif rows.any():
            out[:, rows] = integrate(e[rows], deviation[rows])
    return Expected(*out.reshape(3, *mean.shape))


def _hermite(e: Array, deviation: Array) -> Array:
    """[3, t], by Gauss–Hermite quadrature."""
    nodes, weights = gauss_hermite(_N_HERMITE)
    log_phi, ratio, w = log_cdf_and_derivatives(e + deviation * nodes[:, None])
    return np.stack([weights @ log_phi, weights @ ratio, -(weights @ w)])


def _table(e: Array, deviation: Array) -> Array:
    """[3, t], by S in closed form and R from the table."""
    nodes, values = _remainder_table()
    first = np.searchsorted(nodes, (e - _REACH * deviation).min())
    last = np.searchsorted(nodes, (e + _REACH * deviation).max())
    weights = nodes[first:last, None] - e
    weights *= np.sqrt(0.5) / deviation
    np.square(weights, out=weights)
    np.negative(weights, out=weights)
    np.exp(weights, out=weights)
    R = (values[:, first:last] @ weights) / deviation

    T = np.sqrt(1.0 + deviation**2)
    x = -e / T
    cdf, pdf = ndtr(x), density(x)
    slope = x * cdf + pdf
    return np.stack([R[0] - 0.5 * T**2 * (x * slope + cdf), R[1] + T * slope, R[2] - cdf])


@lru_cache(maxsize=1)
def _remainder_table() -> tuple[Array, Array]:
    """Nodes z [J] and h·(dz/dj)/√(2π) times R, R′, R″ at them, [3, J]."""
    left, right = np.arcsinh(_LEFTMOST / _SCALE), np.arcsinh(_REACH / _SCALE)
    t = _STEP * np.arange(np.floor(left / _STEP), np.ceil(right / _STEP) + 1.0)
    z = _SCALE * np.sinh(t)
    spacing = _STEP * _SCALE * np.cosh(t)
    return z, np.stack(_remainder(z)) * (spacing / np.sqrt(2.0 * np.pi))


def _remainder(z: Array) -> tuple[Array, Array, Array]:
    """R, R′ and R″ at z, without the squares and multiples of z that cancel in the left tail."""
    ratio = density_ratio(z)
    w, rest = log_cdf_curvature(z, ratio)
    cdf, upper, pdf = ndtr(z), ndtr(-z), density(z)
    # log Φ(z) + z²/2 = log ½erfcx(−z/√2), and z²/2 cancels the rest of S but for −½z²Φ(z).
    left = np.log(0.5 * erfcx(np.sqrt(0.5) * np.abs(z))) + 0.5 * upper - 0.5 * z**2 * cdf
    right = log_cdf(z) + 0.5 * (z**2 + 1.0) * upper
    value = np.where(z < 0.0, left, right) - 0.5 * z * pdf
    # r + z = w/r, a ratio instead of a difference
    slope = w / ratio - z * cdf - pdf
    return value, slope, rest - cdf
