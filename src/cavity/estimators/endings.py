"""Warnings at the end of a fit: interrupted, not converged, or a kernel parameter at a bound."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from cavity.errors import warn_user
from cavity.inference.converge import FitResult

if TYPE_CHECKING:
    from sklearn.gaussian_process.kernels import Kernel

    from cavity.estimators.base import SparseGPClassifier

_AT = 1e-3
"""Distance from a bound, on the log scale, that counts as at the bound."""
_HARMLESS = {
    "length_scale": "upper",
    "alpha": "upper",
    "constant_value": "lower",
    "noise_level": "lower",
    "sigma_0": "lower",
}
"""Bounds at which nothing is missed: there a feature is irrelevant, a kernel has its simplest form, or a
part of it is off."""


class BoundWarning(ConvergenceWarning):
    """A fit has ended with a kernel parameter at a bound."""


class AtBound(NamedTuple):
    """A kernel parameter at one of its bounds."""

    name: str
    """As `kernel.get_params()` names it."""
    value: float
    side: str
    """"lower" or "upper"."""
    bounds: tuple[float, float]

    def wider(self) -> tuple[float, float]:
        """Bounds that are ten times as wide on that side."""
        low, high = self.bounds
        return (low / 10.0, high) if self.side == "lower" else (low, high * 10.0)


def warn_of_ending(model: SparseGPClassifier, result: FitResult) -> None:
    """Warn about a fit that was interrupted, has not converged, or ended at a bound of the kernel."""
    words = _words_of_ending(model, result)
    found = parameters_at_bounds(model.kernel_) if model.config_.learn_kernel else []
    if found and not result.interrupted:
        bounds = _words_of_bounds(model, found)
        warn_user(bounds if words is None else f"{words}. {bounds}", BoundWarning)
    elif words is not None:
        warn_user(words, ConvergenceWarning)


def _words_of_ending(model: SparseGPClassifier, result: FitResult) -> str | None:
    name, steps = type(model).__name__, f"{result.n_iter} iterations"
    if result.interrupted:
        return f"{name} was interrupted after {steps}; it is fitted with what it had learned by then"
    if result.stuck:
        return (
            f"{name} stopped after {steps}: L-BFGS found no way up, though the gradient is not zero; "
            'try scaling="standard", other inducing_points or tighter kernel bounds'
        )
    if not result.converged:
        given = model.get_params(deep=False)
        limits = [one for one in ("tol", "max_epochs", "max_iter") if one in given]
        limits += ["max_seconds"] if given.get("max_seconds") is not None else []
        return (
            f"{name} stopped after {steps} before it converged to tol={model.config_.tol:g}; raise "
            f"{' or '.join(limits)}"
        )
    return None


def parameters_at_bounds(kernel: Kernel) -> list[AtBound]:
    """The parameters of a kernel that are at a bound which keeps them from a better fit.

    >>> from sklearn.gaussian_process.kernels import RBF, ConstantKernel
    >>> kernel = ConstantKernel(30.0, (0.01, 30.0)) * RBF([1e3, 1.0], (0.01, 1e3))
    >>> [(found.name, found.side) for found in parameters_at_bounds(kernel)]
    [('k1__constant_value', 'upper')]
    """
    return list(_at_bounds(kernel))


def _at_bounds(kernel: Kernel) -> Iterator[AtBound]:
    theta, bounds, start = kernel.theta, kernel.bounds, 0
    for parameter in kernel.hyperparameters:
        if parameter.fixed:
            continue
        part = slice(start, start + parameter.n_elements)
        start = part.stop
        harmless = _HARMLESS.get(parameter.name.rpartition("__")[2])
        distances = np.abs(bounds[part] - theta[part, None])
        for column, side in enumerate(("lower", "upper")):
            nearest = int(np.argmin(distances[:, column]))
            low, high = np.exp(bounds[part][nearest]).tolist()
            if side != harmless and distances[nearest, column] <= _AT and high > low * (1.0 + _AT):
                yield AtBound(parameter.name, float(np.exp(theta[part][nearest])), side, (low, high))


def _words_of_bounds(model: SparseGPClassifier, found: list[AtBound]) -> str:
    """Which parameters are at a bound, and what a kernel of the user's own would change.

    With leaves the learned kernel is a sum, of whose parts the user gives one for both.
    """
    local, kernel, leaves = model.model_.local, "kernel_", ""
    if local is not None:
        kernel = "kernel_.k1"
        leaves = f" with leaves={len(local.leaves)}" if isinstance(model.leaves, str) else ""
    where = " and ".join(f"{one.name} = {one.value:.3g}, its {one.side} bound" for one in found)
    wider: dict[str, tuple[float, float]] = {}
    for one in found:
        parameter = one.name if local is None else one.name.partition("__")[2]
        low, high = one.wider()
        known = wider.get(parameter, (low, high))
        wider[parameter] = min(low, known[0]), max(high, known[1])
    changes = ", ".join(f"{key}_bounds=({low:.3g}, {high:.3g})" for key, (low, high) in wider.items())
    return (
        f"{type(model).__name__} ended with a kernel parameter at a bound: {where}. A kernel of your "
        f"own with wider bounds may fit better{leaves}: kernel=model.{kernel}.set_params({changes})"
    )
