"""Stable functions of the standard normal: log Φ, its two derivatives, and what they leave over."""

from __future__ import annotations

import numpy as np
from scipy.special import erfcx, log_ndtr

from cavity.typing import Array

_SQRT_HALF = np.sqrt(0.5)
_SQRT_2_OVER_PI = np.sqrt(2.0 / np.pi)
_INV_SQRT_2PI = 1.0 / np.sqrt(2.0 * np.pi)
_FAR = -45.0  # below, asymptotic series are exact to rounding and differences are not


def log_cdf(z: Array) -> Array:
    """Log Φ(z), exact far into both tails."""
    return np.asarray(log_ndtr(z))


def density(z: Array) -> Array:
    """φ(z) = exp(−z²/2)/√(2π)."""
    return np.asarray(_INV_SQRT_2PI * np.exp(-0.5 * z * z))


def density_ratio(z: Array) -> Array:
    """φ(z)/Φ(z), the derivative of log Φ; about −z for very negative z, 0 for very positive z.

    Through the scaled complementary error function, Φ(z) = φ(z)·√(π/2)·erfcx(−z/√2): no cancellation
    and no overflow other than to the right limit.

    >>> density_ratio(np.array([-1000.0, 0.0, 100.0])).round(6)
    array([1.000001e+03, 7.978850e-01, 0.000000e+00])
    """
    with np.errstate(over="ignore"):
        return np.asarray(_SQRT_2_OVER_PI / erfcx(-_SQRT_HALF * z))


def bend(z: Array, ratio: Array) -> tuple[Array, Array]:
    """w = −(log Φ)″(z) = r(r + z) and 1 − w, both in [0, 1], from z and r = φ(z)/Φ(z).

    1 − w is the variance of a standard normal known to exceed −z. For very negative z both r + z and
    1 − w are differences of large numbers; there 1 − w = 1/z² − 6/z⁴ + 50/z⁶ − 518/z⁸ + O(z⁻¹⁰).

    >>> z = np.array([-1e3, 0.0, 40.0])
    >>> [float(f"{x:.6g}") for x in bend(z, density_ratio(z))[1]]
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

    To the right log Φ is accurate absolutely only: for sums in which it is one term of many.
    """
    scaled = erfcx(_SQRT_HALF * np.abs(z))
    gauss = np.exp(-0.5 * z * z)
    tail = 0.5 * gauss * scaled  # Φ(−|z|)
    left = z < 0.0
    # Φ(z), on the left divided by exp(−z²/2); φ(z) likewise.
    cdf = np.where(left, 0.5 * scaled, 1.0 - tail)
    ratio = _INV_SQRT_2PI * np.where(left, 1.0, gauss) / cdf
    log_phi = np.log(cdf) - 0.5 * np.square(np.minimum(z, 0.0))
    return log_phi, ratio, bend(z, ratio)[0]
