"""E[log Φ(z)] and its derivatives under a normal distribution of any width.

Gauss–Hermite nodes are spaced by the width of N(e, V); log Φ bends from 0 to −z²/2 over a few units
around zero. Where √V is small that is smooth, and a few nodes are exact. Where √V is large the nodes
step over the bend: 32 of them err by 1e-4 in E[(log Φ)″] at √V = 3 and by 1e-2 in E[(log Φ)′] at
√V = 30. There,

    log Φ(z) = S(z) + R(z),      S(z) = −½[(z² + 1)Φ(−z) − zφ(z)],

where S″(z) = −Φ(−z), so that its expectations are in closed form, with T² = 1 + V and x = −e/T:

    E[S″] = −Φ(x),    E[S′] = T(xΦ(x) + φ(x)),    E[S] = −½T²[(x² + 1)Φ(x) + xφ(x)],

and R is smooth, zero to the right and about −log|z| to the left. E[R] = ∫ R(z)N(z | e, V)dz is a
trapezoidal sum over nodes z = c sinh(jh), dense around zero and geometric beyond, that are the same for
all rows: the values of R are a table, and a row costs one exp per node. Rows whose mass is wholly in the
left tail (e < −7√V), where log Φ is smooth again, are left to Gauss–Hermite.

Error, over √V from 0 to 1e3 and |e| up to 1e3, relative to max(1, |value|): 1e-10 for all three.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.special import erfcx, ndtr

from cavity.rules.likelihoods.protocol import Expected
from cavity.rules.probit import bend, density, density_ratio, log_cdf, log_cdf_and_derivatives
from cavity.rules.quadrature import gauss_hermite
from cavity.typing import Array

_N_HERMITE = 10
_WIDE = 0.4  # √V from which the table is used
_LEFT_TAIL = -7.0  # e/√V below which it is not
_STEP, _SCALE = 0.06, 4.5  # h and c
_REACH = 8.5  # standard deviations beyond which N(e, V) is nothing
_LEFTMOST = -1e6


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
    """[3, t]: S in closed form, R from the table."""
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
    """R, R′, R″, each without the squares and multiples of z that cancel in the left tail."""
    ratio = density_ratio(z)
    w, rest = bend(z, ratio)
    cdf, upper, pdf = ndtr(z), ndtr(-z), density(z)
    # log Φ(z) + z²/2 = log ½erfcx(−z/√2), and z²/2 cancels the rest of S but for −½z²Φ(z).
    left = np.log(0.5 * erfcx(np.sqrt(0.5) * np.abs(z))) + 0.5 * upper - 0.5 * z**2 * cdf
    right = log_cdf(z) + 0.5 * (z**2 + 1.0) * upper
    value = np.where(z < 0.0, left, right) - 0.5 * z * pdf
    # r + z = w/r, a ratio instead of a difference
    slope = w / ratio - z * cdf - pdf
    return value, slope, rest - cdf
