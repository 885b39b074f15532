"""Stable functions of the standard normal: log Φ and the ratio φ/Φ."""

from __future__ import annotations

import numpy as np
from scipy.special import erfcx, log_ndtr

from cavity.typing import Array

_SQRT_HALF = np.sqrt(0.5)
_SQRT_2_OVER_PI = np.sqrt(2.0 / np.pi)


def log_cdf(z: Array) -> Array:
    """Log Φ(z), exact far into both tails."""
    return np.asarray(log_ndtr(z))


def density_ratio(z: Array) -> Array:
    """φ(z)/Φ(z), the derivative of log Φ; about −z for very negative z, 0 for very positive z.

    Through the scaled complementary error function, Φ(z) = φ(z)·√(π/2)·erfcx(−z/√2): no cancellation
    and no overflow other than to the right limit.

    >>> density_ratio(np.array([-1000.0, 0.0, 100.0])).round(6)
    array([1.000001e+03, 7.978850e-01, 0.000000e+00])
    """
    with np.errstate(over="ignore"):
        return np.asarray(_SQRT_2_OVER_PI / erfcx(-_SQRT_HALF * z))
