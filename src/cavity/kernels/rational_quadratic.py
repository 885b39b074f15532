"""The rational quadratic kernel: RBF kernels of all lengthscales, mixed."""

from __future__ import annotations

from typing import Any

import numpy as np

from cavity.kernels.reduce import is_fixed
from cavity.kernels.stationary import Curve, Stationary
from cavity.typing import Array


def bind_rational_quadratic(kernel: Any, Z: Array) -> Stationary:
    """k(x, z) = (1 + |x − z|²/(2αl²))^(−α).

    With u = −E/α the curve is f = (1 + u)^(−α) and

        ∂f/∂E     = f/(1 + u)
        ∂f/∂log α = αf [u/(1 + u) − log(1 + u)].
    """
    alpha = float(kernel.alpha)
    fixed = is_fixed(kernel, "alpha")

    def radial(E: Array) -> Curve:
        u = np.divide(E, -alpha, out=E)
        log_base = np.log1p(u)
        K = np.multiply(log_base, -alpha)
        np.exp(K, out=K)
        slope = K / (1 + u)
        if fixed:
            return Curve(K, slope)
        # u·slope = f·u/(1 + u), without the cancellation of f − slope when α is large.
        u *= slope
        log_base *= K
        u -= log_base
        u *= alpha
        return Curve(K, slope, u)

    return Stationary(kernel, Z, radial, n_shapes=int(not fixed))
