"""The prior over inducing values at one setting of the kernel: K_mm, its factor, its gradient."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cavity.gp.kernels import BoundKernel, bind
from cavity.gp.kernels.base import bind_rounded
from cavity.gp.linalg import (
    BlockLower,
    add_to_diagonal,
    inverse_lower,
    jittered_cholesky,
    lower,
    times_lower,
    transposed_lower_times,
    triangle,
)
from cavity.typing import Array, Dtype

if TYPE_CHECKING:
    from sklearn.gaussian_process.kernels import Kernel

JITTER = {np.dtype(np.float32): 1e-5, np.dtype(np.float64): 1e-8}
"""Relative jitter that keeps |L⁻¹| small enough for tiles of that precision."""


class ParameterGradient(NamedTuple):
    """Gradient by the kernel's free theta [p] and the inducing points [m, d], in float64."""

    theta: Array
    Z: Array


@dataclass(frozen=True)
class RowPrior:
    """The part of a `Prior` that a pass over rows needs, which can be sent to another process.

    It has the bound kernel, so that workers need not know how to bind a kernel that a user registered.
    """

    rows_kernel: BoundKernel
    """The kernel bound to Z in the precision of the tiles."""
    whitener: Array | BlockLower
    """L⁻¹ [m, m] in that precision."""
    factor: Array | None = None
    """L [m, m] in that precision, for sites that store their directions."""

    @property
    def dtype(self) -> Dtype:
        """Precision of the tiles."""
        return self.whitener.dtype

    @property
    def width(self) -> int:
        """Number of global inducing points, plus those of the row's leaf if there are leaves."""
        return len(self.whitener)

    @property
    def L(self) -> Array:  # noqa: N802
        """The factor."""
        assert self.factor is not None
        return self.factor


class PackedPrior(NamedTuple):
    """A `RowPrior` as it is sent: one triangle of each matrix."""

    rows_kernel: BoundKernel
    whitener: tuple[Array, ...]
    """Each block along its diagonal; without leaves, the whole."""
    factor: Array | None

    def unpacked(self) -> RowPrior:
        """The prior for rows."""
        factor = None if self.factor is None else lower(self.factor)
        blocks = tuple(map(lower, self.whitener))
        whitener = blocks[0] if len(blocks) == 1 else BlockLower(blocks)
        return RowPrior(self.rows_kernel, whitener, factor)


class Prior:
    """Prior of the inducing values f̄ at points Z: N(0, K), with K = K_mm + jitter = LLᵀ and u = L⁻¹f̄.

    Kernel and Z are read once: do not change a `Prior`.
    """

    def __init__(self, kernel: Kernel, Z: Array, dtype: Dtype, jitter: float | None = None) -> None:
        self.kernel = kernel
        self.Z = np.asarray(Z, dtype=np.float64)
        self.dtype = np.dtype(dtype)
        self._bound = bind(self.own_kernel, self.Z)
        self._K, self._tape = self._bound.cross(self.Z)
        self._factor, self.jitter = jittered_cholesky(
            self._K, JITTER[self.dtype] if jitter is None else jitter
        )
        self.whitener = inverse_lower(self._factor.astype(self.dtype, copy=False))
        """L⁻¹ in the precision of the tiles: inverting in it loses no more digits than multiplying."""

    @property
    def own_kernel(self) -> Kernel:
        """The part of the kernel whose values at Z these are; without local points, all of it."""
        return self.kernel

    @property
    def width(self) -> int:
        """Number of global inducing points, plus those of the row's leaf if there are leaves."""
        return len(self.Z)

    def in_precision(self, dtype: Dtype) -> Prior:
        """The same prior, with the same whitened coordinates, for tiles of another precision."""
        return Prior(self.kernel, self.Z, dtype, self.jitter)

    def at(self, kernel: Kernel) -> Prior:
        """The prior of another kernel at the same points."""
        return Prior(kernel, self.Z, self.dtype, self.jitter)

    @cached_property
    def L(self) -> Array:  # noqa: N802
        """The factor in float64."""
        return np.tril(self._factor)

    @cached_property
    def L_inverse(self) -> Array:  # noqa: N802
        """L⁻¹ in float64."""
        return self.whitener if self.dtype == np.float64 else inverse_lower(self._factor)

    @cached_property
    def rows_kernel(self) -> BoundKernel:
        """The kernel bound to Z in the precision of the tiles."""
        if self.dtype == np.float64:
            return self._bound
        return bind_rounded(self.own_kernel, self.Z, self.dtype, self._bound)

    def packed(self, *, has_directions: bool) -> PackedPrior:
        """The part of the prior that a pass needs, in a small form for sending.

        has_directions: whether the sites of the pass store their directions.
        """
        factor = triangle(self.L.astype(self.dtype, copy=False)) if has_directions else None
        return PackedPrior(self.rows_kernel, (triangle(self.whitener),), factor)

    def pull_back(self, whitened: Array) -> ParameterGradient:
        """Gradient through K_mm, given ∂/∂K_mm = −L⁻ᵀ · whitened · L⁻¹.

        whitened: [m, m], symmetric; it is overwritten.
        """
        # The precision of the tiles is enough: their own part of the gradient is no more exact.
        half = times_lower(whitened.astype(self.dtype, copy=False), self.whitener, overwrite=True)
        G = transposed_lower_times(self.whitener, half, overwrite=True).astype(np.float64, copy=False)
        # The jitter is relative to the mean of the diagonal, so it moves with K.
        add_to_diagonal(G, self.jitter * np.trace(G) / len(G))
        theta, Z = self._bound.pull_back(self._tape, G)
        return ParameterGradient(-theta, -2.0 * Z)  # both arguments of k(Z, Z) move
