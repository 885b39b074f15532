"""The linear kernel, k(x, z) = σ₀² + x·z."""

from __future__ import annotations

from typing import Any

import numpy as np

from cavity.kernels.protocol import Array64, Tape
from cavity.kernels.reduce import if_free, is_fixed, total
from cavity.typing import Array


class BoundDotProduct:
    """k(x, z) = σ₀² + x·z, with ∂k/∂log σ₀ = 2σ₀² and ∂k/∂z = x."""

    def __init__(self, kernel: Any, Z: Array) -> None:
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
