"""Kernel hyperparameters and inducing points as one bounded vector, and a weak prior on it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from cavity.gp.kernels.base import SetTheta, theta_setter
from cavity.gp.prior import ParameterGradient
from cavity.typing import Array, IntArray

if TYPE_CHECKING:
    from sklearn.gaussian_process.kernels import Kernel


@dataclass(frozen=True)
class Hyperprior:
    """Independent Gaussians N(centre, scale²) on the parameter vector; flat where infinite.

    It keeps small data from driving the parameters to extremes. On the kernel's theta, which is in log
    scale, it is a log-normal prior on the parameter itself.
    """

    centre: Array
    scale: Array

    def log_density(self, x: Array) -> float:
        """Log density at x, up to a constant."""
        at, precision = self._informative
        return -0.5 * float((x[at] - self.centre[at]) ** 2 @ precision)

    def gradient(self, x: Array) -> Array:
        """Derivative of the log density."""
        at, precision = self._informative
        gradient = np.zeros_like(x)
        gradient[at] = (self.centre[at] - x[at]) * precision
        return gradient

    @cached_property
    def _informative(self) -> tuple[IntArray, Array]:
        """The coordinates with a finite scale, and their precisions."""
        at = np.flatnonzero(np.isfinite(self.scale))
        return at, 1.0 / self.scale[at] ** 2


@dataclass(frozen=True)
class ParameterSpace:
    """The map between a kernel with inducing points and a vector x, and the bounds of x.

    x is the kernel's free theta (log scale, as in scikit-learn) followed, if the inducing points are
    learned, by Z row by row.
    """

    kernel: Kernel
    """A scikit-learn kernel; its theta is the start."""
    Z: Array
    """[m, d]: the inducing points at the start; they stay if they are not learned."""
    learn_kernel: bool = True
    learn_inducing: bool = True

    def __getstate__(self) -> dict[str, object]:
        return {field.name: vars(self)[field.name] for field in fields(self)}  # no caches

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

    def unpack(self, x: Array) -> tuple[Kernel, Array]:
        """Kernel and inducing points of a vector."""
        kernel = self.kernel
        if self.n_theta:
            kernel = self._with_theta(x[: self.n_theta])
        Z = x[self.n_theta :].reshape(self.Z.shape) if self.learn_inducing else self.Z
        return kernel, Z

    @cached_property
    def _with_theta(self) -> SetTheta:
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
