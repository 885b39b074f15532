"""Constant, white noise and linear kernels; sums, products and powers of kernels."""

from __future__ import annotations

import numpy as np
from sklearn.gaussian_process.kernels import Kernel

from cavity.gp.kernels.base import (
    Array64,
    BoundKernel,
    Tape,
    bind,
    if_free,
    is_fixed,
    shallow_copy,
    total,
)
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


class BoundSum:
    """k = k₁ + k₂; theta is that of k₁ followed by that of k₂."""

    def __init__(self, kernel: Kernel, Z: Array) -> None:
        """Bind the kernel to Z: [m, d]."""
        self._left, self._right = bind(kernel.k1, Z), bind(kernel.k2, Z)

    def cross(self, X: Array) -> tuple[Array, Tape]:
        """K₁ + K₂: [n, m]."""
        (K1, tape1), (K2, tape2) = self._left.cross(X), self._right.cross(X)
        # The usual sum is signal plus white noise, which is zero here: no need to add it.
        if isinstance(self._right, BoundWhite):
            return K1, (tape1, tape2)
        return K1 + K2, (tape1, tape2)

    def pull_back(self, tape: Tape, G: Array) -> tuple[Array64, Array64]:
        """dtheta: [p], dZ: [m, d]; both terms have the same G."""
        dtheta1, dZ1 = self._left.pull_back(tape[0], G)
        dtheta2, dZ2 = self._right.pull_back(tape[1], G)
        return np.concatenate([dtheta1, dtheta2]), dZ1 + dZ2

    def diagonal(self, X: Array) -> tuple[Array, Tape]:
        """k₁(x, x) + k₂(x, x): [n]."""
        (k1, tape1), (k2, tape2) = self._left.diagonal(X), self._right.diagonal(X)
        return k1 + k2, (tape1, tape2)

    def pull_back_diagonal(self, tape: Tape, g: Array) -> Array64:
        """dtheta: [p]."""
        left = self._left.pull_back_diagonal(tape[0], g)
        return np.concatenate([left, self._right.pull_back_diagonal(tape[1], g)])


def bind_product(kernel: Kernel, Z: Array) -> BoundKernel:
    """k = k₁k₂; a positive constant and a stationary kernel become one (see `Scaled`)."""
    left, right = bind(kernel.k1, Z), bind(kernel.k2, Z)
    for constant, other in ((left, right), (right, left)):
        if isinstance(constant, BoundConstant) and isinstance(other, Stationary) and constant.value > 0:
            return Scaled(constant, other, constant_first=constant is left)
    return BoundProduct(left, right)


class BoundProduct:
    """k = k₁k₂, where ∂F/∂K₁ = G∘K₂ and ∂F/∂K₂ = G∘K₁; theta as in a sum."""

    def __init__(self, left: BoundKernel, right: BoundKernel) -> None:
        """Join two kernels bound to the same points."""
        self._left, self._right = left, right

    def cross(self, X: Array) -> tuple[Array, Tape]:
        """K₁∘K₂: [n, m]."""
        (K1, tape1), (K2, tape2) = self._left.cross(X), self._right.cross(X)
        return K1 * K2, (K1, tape1, K2, tape2)

    def pull_back(self, tape: Tape, G: Array) -> tuple[Array64, Array64]:
        """dtheta: [p], dZ: [m, d]."""
        K1, tape1, K2, tape2 = tape
        dtheta1, dZ1 = self._left.pull_back(tape1, G * K2)
        dtheta2, dZ2 = self._right.pull_back(tape2, G * K1)
        return np.concatenate([dtheta1, dtheta2]), dZ1 + dZ2

    def diagonal(self, X: Array) -> tuple[Array, Tape]:
        """k₁(x, x) k₂(x, x): [n]."""
        (k1, tape1), (k2, tape2) = self._left.diagonal(X), self._right.diagonal(X)
        return k1 * k2, (k1, tape1, k2, tape2)

    def pull_back_diagonal(self, tape: Tape, g: Array) -> Array64:
        """dtheta: [p]."""
        k1, tape1, k2, tape2 = tape
        left = self._left.pull_back_diagonal(tape1, g * k2)
        return np.concatenate([left, self._right.pull_back_diagonal(tape2, g * k1)])


class BoundPower:
    """k = k₁^p, where ∂F/∂K₁ = G∘p K₁^(p−1); p is not a hyperparameter."""

    def __init__(self, kernel: Kernel, Z: Array) -> None:
        """Bind the kernel to Z: [m, d]."""
        self._base = bind(kernel.kernel, Z)
        self._power = float(kernel.exponent)

    def cross(self, X: Array) -> tuple[Array, Tape]:
        """K₁^p: [n, m]."""
        K, tape = self._base.cross(X)
        return K**self._power, (K, tape)

    def pull_back(self, tape: Tape, G: Array) -> tuple[Array64, Array64]:
        """dtheta: [p], dZ: [m, d]."""
        K, base_tape = tape
        return self._base.pull_back(base_tape, G * self._slope(K))

    def diagonal(self, X: Array) -> tuple[Array, Tape]:
        """k₁(x, x)^p: [n]."""
        k, tape = self._base.diagonal(X)
        return k**self._power, (k, tape)

    def pull_back_diagonal(self, tape: Tape, g: Array) -> Array64:
        """dtheta: [p]."""
        k, base_tape = tape
        return self._base.pull_back_diagonal(base_tape, g * self._slope(k))

    def _slope(self, K: Array) -> Array:
        """p K^(p−1), and 0 where K is 0: a kernel that has underflowed has no gradient."""
        slope = np.power(K, self._power - 1, out=np.zeros(K.shape, K.dtype), where=K != 0)
        slope *= self._power
        return slope
