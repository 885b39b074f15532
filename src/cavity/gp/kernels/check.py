"""Check a registered kernel against scikit-learn's values and finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from cavity.gp.kernels.base import Array64, bind
from cavity.typing import Array

if TYPE_CHECKING:
    from sklearn.gaussian_process.kernels import Kernel

_STEP = 1e-5
"""Step of the central differences: their truncation and rounding errors are both near 1e-10."""
_NOISE = 1e-9
"""Error allowed for them, relative to the size of what is summed."""


def check_kernel(
    kernel: Kernel, X: Array64 | None = None, Z: Array64 | None = None, rtol: float = 1e-5
) -> None:
    """Check the bound form of a kernel against scikit-learn's own and finite differences.

    Parameters
    ----------
    kernel
        A scikit-learn kernel of a registered type.
    X, Z
        Rows: [n, d] and inducing points: [m, d], drawn at random by default. A kernel that is not
        differentiable everywhere needs rows apart from the inducing points.
    rtol
        Tolerance of the gradients, relative.

    Raises
    ------
    AssertionError
        Naming the method and the hyperparameter or coordinate that disagrees.

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF, WhiteKernel
    >>> check_kernel(2.0 * RBF([0.5, 2.0]) + WhiteKernel(0.1))
    """
    rng = np.random.default_rng(0)
    columns = max((h.n_elements for h in kernel.hyperparameters if h.n_elements > 1), default=3)
    if X is None:
        X = rng.normal(size=(7, columns if Z is None else Z.shape[1]))
    if Z is None:
        Z = rng.normal(size=(4, X.shape[1]))
    G, g = rng.normal(size=(len(X), len(Z))), rng.normal(size=len(X))
    _check_values(kernel, X, Z)
    _check_cross_gradients(kernel, X, Z, G, rtol)
    _check_diagonal_gradient(kernel, X, Z, g, rtol)


def theta_names(kernel: Kernel) -> list[str]:
    """A name for each entry of ``kernel.theta``, such as ``k2__length_scale[0]``: p of them."""
    return [
        h.name if h.n_elements == 1 else f"{h.name}[{i}]"
        for h in kernel.hyperparameters
        if not h.fixed
        for i in range(h.n_elements)
    ]


def _check_values(kernel: Kernel, X: Array64, Z: Array64) -> None:
    for dtype, tolerance in ((np.float64, 1e-10), (np.float32, 1e-4)):
        Xt: Array = X.astype(dtype)
        Zt: Array = Z.astype(dtype)
        bound = bind(kernel, Zt)
        X64, Z64 = Xt.astype(np.float64), Zt.astype(np.float64)
        for call, value, expected in (
            ("cross(X)", bound.cross(Xt)[0], kernel(X64, Z64)),
            ("cross(Z)", bound.cross(Zt)[0], kernel(Z64, Z64)),
            ("diagonal(X)", bound.diagonal(Xt)[0], kernel.diag(X64)),
        ):
            if value.shape != expected.shape or value.dtype != dtype:
                raise AssertionError(
                    f"{call} of {kernel} has shape {value.shape} and dtype {value.dtype}, "
                    f"expected {expected.shape} and {np.dtype(dtype)}"
                )
            error = np.max(np.abs(value - expected), initial=0.0)
            if not error <= tolerance * np.max(np.abs(expected), initial=1.0):
                raise AssertionError(
                    f"{call} of {kernel} in {np.dtype(dtype)} differs from scikit-learn's "
                    f"values by up to {error:.3g}"
                )


def _check_cross_gradients(kernel: Kernel, X: Array64, Z: Array64, G: Array64, rtol: float) -> None:
    bound = bind(kernel, Z)
    K, tape = bound.cross(X)
    floor = _NOISE * float(np.abs(G * K).sum())
    given = G.copy()
    dtheta, dZ = bound.pull_back(tape, G)
    if not np.array_equal(G, given):
        raise AssertionError(f"pull_back of {kernel} modified G")
    _compare(
        "pull_back",
        theta_names(kernel),
        dtheta,
        _differences(lambda t: (G * kernel.clone_with_theta(t)(X, Z)).sum(), kernel.theta),
        rtol,
        floor,
    )
    _compare(
        "pull_back",
        [f"Z[{j}, {k}]" for j in range(Z.shape[0]) for k in range(Z.shape[1])],
        dZ,
        _differences(lambda z: (G * kernel(X, z)).sum(), Z),
        rtol,
        floor,
    )


def _check_diagonal_gradient(kernel: Kernel, X: Array64, Z: Array64, g: Array64, rtol: float) -> None:
    bound = bind(kernel, Z)
    k, tape = bound.diagonal(X)
    _compare(
        "pull_back_diagonal",
        theta_names(kernel),
        bound.pull_back_diagonal(tape, g),
        _differences(lambda t: g @ kernel.clone_with_theta(t).diag(X), kernel.theta),
        rtol,
        _NOISE * float(np.abs(g * k).sum()),
    )


def _differences(function: Callable[[Array64], float], at: Array64) -> Array64:
    """Central differences of a scalar function by every entry of its argument."""
    gradient = np.empty_like(at)
    for index in np.ndindex(at.shape):
        step = np.zeros_like(at)
        step[index] = _STEP
        gradient[index] = (function(at + step) - function(at - step)) / (2 * _STEP)
    return gradient


def _compare(
    method: str, names: list[str], actual: Array, expected: Array64, rtol: float, floor: float
) -> None:
    if actual.shape != expected.shape or actual.dtype != np.float64:
        raise AssertionError(
            f"{method} gave a gradient of shape {actual.shape} and dtype {actual.dtype}, "
            f"expected {expected.shape} and float64"
        )
    for name, a, e in zip(names, actual.ravel(), expected.ravel(), strict=True):
        if not abs(a - e) <= rtol * abs(e) + floor:
            raise AssertionError(
                f"{method} disagrees with finite differences in {name}: {a:.8g}, expected {e:.8g}"
            )
