"""Sums, products and powers of kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cavity.gp.kernels.base import Array64, BoundKernel, Tape, bind
from cavity.gp.kernels.basic import BoundConstant, BoundWhite, Scaled
from cavity.gp.kernels.stationary import Stationary
from cavity.typing import Array

if TYPE_CHECKING:
    from sklearn.gaussian_process.kernels import Kernel


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
