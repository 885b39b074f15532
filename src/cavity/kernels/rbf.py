"""The squared exponential kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from cavity.kernels.stationary import Curve, Stationary
from cavity.typing import Array


def bind_rbf(kernel: Any, Z: Array) -> Stationary:
    """k(x, z) = exp(−½ Σ_k (x_k − z_k)²/l_k²), with one lengthscale or one per column."""
    return Stationary(kernel, Z, squared_exponential)


def squared_exponential(E: Array) -> Curve:
    """f(E) = exp E, its own slope."""
    K = np.exp(E, out=E)
    return Curve(K, K)
