"""The normal distribution in float64 from elementary operators: runtimes have Erf in float32 only."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.special import erfcx

from cavity.onnx.graph import Value
from cavity.typing import Array

_FOLD = 3.75
_DEGREE = 30


@lru_cache(maxsize=1)
def erfcx_coefficients() -> Array:
    """Chebyshev coefficients of (1 + 2x) erfcx(x), x ≥ 0, in t = (x − c)/(x + c), from −1 to 1.

    The product varies little and smoothly over all of x ≥ 0 (Shepherd and Laframboise, 1981); at this
    degree the series is exact to rounding.
    """

    def folded(t: Array) -> Array:
        x = _FOLD * (1.0 + t) / (1.0 - t)
        return np.asarray((1.0 + 2.0 * x) * erfcx(x))

    return np.real(np.polynomial.Chebyshev.interpolate(folded, _DEGREE).coef).astype(np.float64)


def scaled_erfc(x: Value) -> Value:
    """erfcx(x) = exp(x²) erfc(x) for x ≥ 0, by Clenshaw's recurrence."""
    t = (x - _FOLD) / (x + _FOLD)
    twice = t + t
    first, *others = (float(c) for c in erfcx_coefficients()[::-1])
    current, before = x.graph.constant(first), x.graph.constant(0.0)
    for coefficient in others[:-1]:
        current, before = twice * current - before + coefficient, current
    return (t * current - before + others[-1]) / (1.0 + 2.0 * x)
