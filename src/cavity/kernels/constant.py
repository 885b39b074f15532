"""The constant kernel, k(x, z) = c."""

from __future__ import annotations

from typing import Any

import numpy as np

from cavity.kernels.protocol import Array64, Tape
from cavity.kernels.reduce import if_free, is_fixed, total
from cavity.typing import Array


class BoundConstant:
    """k(x, z) = c, and ∂k/∂log c = c. Its values are views of one number."""

    def __init__(self, kernel: Any, Z: Array) -> None:
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
