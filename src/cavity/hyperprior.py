"""A weak prior on the parameters, so that small data cannot drive them anywhere they like."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cavity.typing import Array


@dataclass(frozen=True)
class Hyperprior:
    """Independent Gaussians N(centre, deviation²) on the parameter vector; infinite means flat.

    On the kernel's theta, which is in log scale, this is a log-normal prior on the parameter itself.
    """

    centre: Array
    deviation: Array

    def log_density(self, x: Array) -> float:
        """Log density at x, up to a constant."""
        return -0.5 * float((x - self.centre) ** 2 @ self._precision)

    def gradient(self, x: Array) -> Array:
        """Derivative of the log density."""
        return (self.centre - x) * self._precision

    @cached_property
    def _precision(self) -> Array:
        return 1.0 / self.deviation**2
