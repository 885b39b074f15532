"""A weak prior on the parameters, so that small data cannot drive them anywhere they like."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cavity.typing import Array, IntArray


@dataclass(frozen=True)
class Hyperprior:
    """Independent Gaussians N(centre, deviation²) on the parameter vector; infinite means flat.

    On the kernel's theta, which is in log scale, this is a log-normal prior on the parameter itself.
    """

    centre: Array
    deviation: Array

    def log_density(self, x: Array) -> float:
        """Log density at x, up to a constant."""
        held, precision = self._held
        return -0.5 * float((x[held] - self.centre[held]) ** 2 @ precision)

    def gradient(self, x: Array) -> Array:
        """Derivative of the log density."""
        held, precision = self._held
        gradient = np.zeros_like(x)
        gradient[held] = (self.centre[held] - x[held]) * precision
        return gradient

    @cached_property
    def _held(self) -> tuple[IntArray, Array]:
        """The few coordinates that are not flat, and their precisions."""
        held = np.flatnonzero(np.isfinite(self.deviation))
        return held, 1.0 / self.deviation[held] ** 2
