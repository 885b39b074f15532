"""A weak prior on the parameters, so that small data cannot drive them anywhere they like.

Kernel hyper-parameters and inducing points as one bounded vector, for the optimisers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from cavity.gp.kernels.base import theta_setter
from cavity.gp.prior import ParameterGradient
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


@dataclass(frozen=True)
class ParameterSpace:
    """How a kernel and inducing points map to a vector x, and what the vector may be.

    x is the kernel's free theta (log scale, as in scikit-learn) followed, if the inducing points are
    learned, by Z row by row.
    """

    kernel: Any
    """A scikit-learn kernel; its theta is the start."""
    Z: Array
    """[m, d]: the inducing points at the start, and for good if they are not learned."""
    learn_kernel: bool = True
    learn_inducing: bool = True

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # no caches

    @cached_property
    def n_theta(self) -> int:
        """Number of kernel parameters that move."""
        return len(self.kernel.theta) if self.learn_kernel else 0

    @property
    def start(self) -> Array:
        """The vector of the starting values, inside the bounds."""
        return self.project(self.pack(self.kernel.theta, self.Z))

    def pack(self, theta: Array, Z: Array) -> Array:
        """The vector of given values (of a point or of a gradient)."""
        parts = [np.asarray(theta, dtype=np.float64)] if self.learn_kernel else []
        if self.learn_inducing:
            parts.append(np.asarray(Z, dtype=np.float64).ravel())
        return np.concatenate(parts) if parts else np.zeros(0)

    def pack_gradient(self, gradient: ParameterGradient) -> Array:
        """The vector of a gradient."""
        return self.pack(gradient.theta, gradient.Z)

    def unpack(self, x: Array) -> tuple[Any, Array]:
        """Kernel and inducing points of a vector."""
        kernel = self.kernel
        if self.n_theta:
            kernel = self._with_theta(x[: self.n_theta])
        Z = x[self.n_theta :].reshape(self.Z.shape) if self.learn_inducing else self.Z
        return kernel, Z

    @cached_property
    def _with_theta(self) -> Callable[[Array], Any]:
        return theta_setter(self.kernel)

    @cached_property
    def bounds(self) -> Array:
        """[len(x), 2]: the kernel's own bounds; inducing points are free."""
        free = np.tile([-np.inf, np.inf], (self.Z.size if self.learn_inducing else 0, 1))
        if not self.n_theta:
            return free
        return np.vstack([self.kernel.bounds, free])

    def project(self, x: Array) -> Array:
        """The nearest vector inside the bounds."""
        inside = x.copy()
        theta, bounds = inside[: self.n_theta], self.bounds[: self.n_theta]  # the rest has none
        np.maximum(theta, bounds[:, 0], out=theta)
        np.minimum(theta, bounds[:, 1], out=theta)
        return inside
