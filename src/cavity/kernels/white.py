"""White noise, which lives on the diagonal only."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import Exponentiation, KernelOperator, WhiteKernel

from cavity.kernels.protocol import Array64, Tape
from cavity.kernels.reduce import if_free, is_fixed, total
from cavity.typing import Array


class BoundWhite:
    """k(x, x) = σ², and k(x, z) = 0 for every inducing point: those are noise free."""

    def __init__(self, kernel: Any, Z: Array) -> None:
        """Bind the kernel to Z: [m, d]."""
        self._noise = float(kernel.noise_level)
        self._fixed = is_fixed(kernel, "noise_level")
        self._shape = Z.shape
        self._dtype = Z.dtype

    def cross(self, X: Array) -> tuple[Array, Tape]:
        """K = 0: [n, m], a view of a single zero."""
        return np.broadcast_to(np.zeros((), self._dtype), (len(X), self._shape[0])), None

    def pull_back(self, tape: Tape, G: Array) -> tuple[Array64, Array64]:
        """dtheta = 0: [0 or 1], dZ = 0: [m, d]."""
        return if_free(self._fixed, 0.0), np.zeros(self._shape)

    def diagonal(self, X: Array) -> tuple[Array, Tape]:
        """k(x, x) = σ²: [n]."""
        return np.full(len(X), self._noise, dtype=self._dtype), None

    def pull_back_diagonal(self, tape: Tape, g: Array) -> Array64:
        """Σ g σ²: [0 or 1]."""
        return if_free(self._fixed, self._noise * total(g))


def noise_free(kernel: Any) -> Any:
    """A copy of the kernel in which white noise has the level zero.

    >>> from sklearn.gaussian_process.kernels import RBF
    >>> noise_free(RBF(1.0) + WhiteKernel(0.5))
    RBF(length_scale=1) + WhiteKernel(noise_level=0)
    """
    changed = copy(kernel)
    if isinstance(kernel, WhiteKernel):
        changed.noise_level = 0.0
    elif isinstance(kernel, KernelOperator):
        changed.k1, changed.k2 = noise_free(kernel.k1), noise_free(kernel.k2)
    elif isinstance(kernel, Exponentiation):
        changed.kernel = noise_free(kernel.kernel)
    return changed
