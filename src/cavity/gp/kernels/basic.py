"""Constant, white noise and linear kernels, and a constant times a stationary kernel."""

from __future__ import annotations

from copy import copy

import numpy as np
from sklearn.gaussian_process.kernels import Exponentiation, Kernel, KernelOperator, WhiteKernel

from cavity.gp.kernels.base import Array64, Tape, if_free, is_fixed, shallow_copy, total
from cavity.gp.kernels.stationary import Stationary
from cavity.typing import Array, Dtype


class BoundConstant:
    """k(x, z) = c, and ∂k/∂log c = c. Its values are views of one number."""

    def __init__(self, kernel: Kernel, Z: Array) -> None:
        """Bind the kernel to Z: [m, d]."""
        self.value = float(kernel.constant_value)
        self._fixed = is_fixed(kernel, "constant_value")
        self._shape = Z.shape
        self._dtype = Z.dtype

    def cross(self, X: Array) -> tuple[Array, Tape]:
        """K: [n, m]."""
        value = np.asarray(self.value, dtype=self._dtype)
        return np.broadcast_to(value, (len(X), self._shape[0])), None

    def pull_back(self, tape: Tape, G: Array) -> tuple[Array64, Array64]:
        """dtheta: [0 or 1], dZ = 0: [m, d]."""
        return self.gradient(self.value * total(G)), np.zeros(self._shape)

    def diagonal(self, X: Array) -> tuple[Array, Tape]:
        """k(x, x) = c: [n]."""
        return np.full(len(X), self.value, dtype=self._dtype), None

    def pull_back_diagonal(self, tape: Tape, g: Array) -> Array64:
        """Σ g c: [0 or 1]."""
        return self.gradient(self.value * total(g))

    def gradient(self, value: float) -> Array64:
        """Wrap ∂F/∂log c as a theta gradient: [1], or [0] when c is fixed."""
        return if_free(self._fixed, value)


class BoundWhite:
    """k(x, x) = σ², and k(x, z) = 0 for every inducing point: inducing values are noise free."""

    def __init__(self, kernel: Kernel, Z: Array) -> None:
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


def noise_free(kernel: Kernel) -> Kernel:
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


class BoundDotProduct:
    """k(x, z) = σ₀² + x·z, with ∂k/∂log σ₀ = 2σ₀² and ∂k/∂z = x."""

    def __init__(self, kernel: Kernel, Z: Array) -> None:
        """Bind the kernel to Z: [m, d]."""
        self._bias = float(kernel.sigma_0) ** 2
        self._fixed = is_fixed(kernel, "sigma_0")
        self._Z = Z.copy()

    def cross(self, X: Array) -> tuple[Array, Tape]:
        """K: [n, m]; the tape is X."""
        K = X @ self._Z.T
        K += self._bias
        return K, X

    def pull_back(self, tape: Tape, G: Array) -> tuple[Array64, Array64]:
        """dtheta: [0 or 1], dZ = GᵀX: [m, d]."""
        return if_free(self._fixed, 2 * self._bias * total(G)), (G.T @ tape).astype(np.float64)

    def diagonal(self, X: Array) -> tuple[Array, Tape]:
        """k(x, x) = σ₀² + |x|²: [n]."""
        k = np.einsum("ij,ij->i", X, X)
        k += self._bias
        return k, None

    def pull_back_diagonal(self, tape: Tape, g: Array) -> Array64:
        """Σ g 2σ₀²: [0 or 1]."""
        return if_free(self._fixed, 2 * self._bias * total(g))


class Scaled:
    """c·k for a constant c and a stationary kernel k, at the price of k alone.

    c becomes part of k's own scale. ∂F/∂log c = Σ G∘K follows from sums that k's pull-back makes
    anyway, so neither an array of constants nor a second product with G is formed.
    """

    def __init__(self, constant: BoundConstant, stationary: Stationary, *, constant_first: bool) -> None:
        """Join two kernels bound to the same points; their order is that of theta."""
        self._constant = constant
        self._scaled = stationary.scaled(constant.value)
        self._order = slice(None) if constant_first else slice(None, None, -1)

    def in_precision(self, dtype: Dtype) -> Scaled:
        """The same kernel and points, rounded."""
        other = shallow_copy(self)
        other._scaled = self._scaled.in_precision(dtype)
        return other

    def cross(self, X: Array) -> tuple[Array, Tape]:
        """K: [n, m]."""
        return self._scaled.cross(X)

    def pull_back(self, tape: Tape, G: Array) -> tuple[Array64, Array64]:
        """dtheta: [p], dZ: [m, d]."""
        dlog_c, dtheta, dZ = self._scaled.pull_back_with_total(tape, G)
        return self._join(self._constant.gradient(dlog_c), dtheta), dZ

    def diagonal(self, X: Array) -> tuple[Array, Tape]:
        """k(x, x) = c: [n]."""
        return self._scaled.diagonal(X)

    def pull_back_diagonal(self, tape: Tape, g: Array) -> Array64:
        """dtheta: [p]."""
        dlog_c = self._constant.pull_back_diagonal(tape, g)
        return self._join(dlog_c, self._scaled.pull_back_diagonal(tape, g))

    def _join(self, dlog_c: Array64, dtheta: Array64) -> Array64:
        return np.concatenate([dlog_c, dtheta][self._order])
