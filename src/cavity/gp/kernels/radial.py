"""Squared exponential, Matérn and rational quadratic kernels: a curve of the scaled distance each."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import numpy as np

from cavity.gp.kernels.base import is_fixed
from cavity.gp.kernels.stationary import Curve, Radial, Stationary
from cavity.typing import Array

if TYPE_CHECKING:
    from sklearn.gaussian_process.kernels import Kernel


def bind_rbf(kernel: Kernel, Z: Array) -> Stationary:
    """k(x, z) = exp(−½ Σ_k (x_k − z_k)²/l_k²), with one lengthscale or one per column."""
    return Stationary(kernel, Z, squared_exponential)


def squared_exponential(E: Array) -> Curve:
    """f(E) = exp E, its own slope."""
    K = np.exp(E, out=E)
    return Curve(K, K)


def bind_matern(kernel: Kernel, Z: Array) -> Stationary:
    """A function of r = √(Σ_k (x_k − z_k)²/l_k²) whose samples are ⌈ν⌉ − 1 times differentiable."""
    if kernel.nu not in _MATERN:
        options = ", ".join(str(nu) for nu in _MATERN)
        raise ValueError(f"nu={kernel.nu!r} of the Matern kernel must be one of {options}")
    return Stationary(kernel, Z, _MATERN[kernel.nu], kink=kernel.nu == 0.5)


def _half(E: Array) -> Curve:
    """f = exp(−r); ∂f/∂E = f/r, taken as 0 at r = 0, where the kernel has a kink."""
    r = _distance(E, 1.0)
    K = np.exp(-r)
    np.copyto(r, inf, where=r == 0)
    return Curve(K, np.divide(K, r, out=r))


def _three_halves(E: Array) -> Curve:
    """f = (1 + t) exp(−t), ∂f/∂E = 3 exp(−t), with t = √3 r."""
    t = _distance(E, 3.0)
    slope = np.exp(-t)
    t += 1
    t *= slope
    slope *= 3
    return Curve(t, slope)


def _five_halves(E: Array) -> Curve:
    """f = (1 + t + t²/3) exp(−t), ∂f/∂E = 5/3 (1 + t) exp(−t), with t = √5 r."""
    t = _distance(E, 5.0)
    decay = np.exp(-t)
    K = t * t
    K /= 3
    t += 1
    K += t
    K *= decay
    t *= decay
    t *= 5 / 3
    return Curve(K, t)


def _distance(E: Array, factor: float) -> Array:
    """√factor r from E = −½r², in place."""
    E *= -2 * factor
    return np.sqrt(E, out=E)


_MATERN: dict[float, Radial] = {
    0.5: _half,
    1.5: _three_halves,
    2.5: _five_halves,
    inf: squared_exponential,
}


def bind_rational_quadratic(kernel: Kernel, Z: Array) -> Stationary:
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
