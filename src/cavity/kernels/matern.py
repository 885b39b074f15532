"""The Matérn kernels with closed forms: ν = ½, 3/2, 5/2 and ∞."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from cavity.kernels.rbf import squared_exponential
from cavity.kernels.stationary import Curve, Radial, Stationary
from cavity.typing import Array


def bind_matern(kernel: Any, Z: Array) -> Stationary:
    """A function of r = √(Σ_k (x_k − z_k)²/l_k²) whose samples are ⌈ν⌉ − 1 times differentiable."""
    if kernel.nu not in _RADIAL:
        options = ", ".join(str(nu) for nu in _RADIAL)
        raise ValueError(f"nu={kernel.nu!r} of the Matern kernel must be one of {options}")
    return Stationary(kernel, Z, _RADIAL[kernel.nu], kink=kernel.nu == 0.5)


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


_RADIAL: dict[float, Radial] = {
    0.5: _half,
    1.5: _three_halves,
    2.5: _five_halves,
    inf: squared_exponential,
}
