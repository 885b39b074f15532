"""What the engine asks of a kernel: values, the diagonal, and gradients pulled back."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from cavity.typing import Array

Array64: TypeAlias = NDArray[np.float64]

Tape: TypeAlias = Any
"""What a pull-back remembers of its forward call; opaque to everyone but the kernel itself."""


@runtime_checkable
class BoundKernel(Protocol):
    """A kernel with its hyperparameters and inducing points Z: [m, d] frozen into it.

    A bound kernel never changes after construction: whatever one call must remember for its
    pull-back lives in the tape that call returns, so threads can share one bound kernel.
    All arrays over rows are in the dtype of Z; gradients are always float64.

    `theta`, with p entries, means scikit-learn's: the logarithms of the hyperparameters that
    are not ``"fixed"``, in the order of ``kernel.theta``.
    """

    def cross(self, X: Array) -> tuple[Array, Tape]:
        """Noise-free covariances k(x, z) of rows X: [n, d] with Z, and a tape. Returns K: [n, m].

        White noise contributes nothing, also when X is Z: inducing values are noise free.
        K belongs to the tape and may be a read-only view: copy it before writing to it.
        """
        ...

    def pull_back(self, tape: Tape, G: Array) -> tuple[Array64, Array64]:
        """Gradients of an objective F from G = ∂F/∂K: [n, m] of the call that gave the tape.

        Returns dtheta = ∂F/∂theta: [p] and dZ: [m, d], the derivative with respect to the second
        argument of k only. For K = cross(Z) and a symmetric G the whole derivative is 2 dZ.
        Neither G nor the tape is modified.
        """
        ...

    def diagonal(self, X: Array) -> tuple[Array, Tape]:
        """Variances k(x, x) of rows X: [n, d], white noise included, and a tape. Returns [n]."""
        ...

    def pull_back_diagonal(self, tape: Tape, g: Array) -> Array64:
        """Gradient ∂F/∂theta: [p] of an objective F from g = ∂F/∂k(x, x): [n]."""
        ...
