"""A kernel with other values of theta, without scikit-learn's generic cloning.

`Kernel.clone_with_theta` looks up every attribute of every part; at some hundred steps a second that
costs more than the covariances themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import Exponentiation, KernelOperator

from cavity.kernels.shallow import shallow_copy
from cavity.typing import Array


def theta_setter(kernel: Any) -> Callable[[Array], Any]:
    """A function from theta [p] to a copy of the kernel with that theta.

    >>> from sklearn.gaussian_process.kernels import RBF, ConstantKernel
    >>> theta_setter(ConstantKernel(2.0) * RBF(1.0))(np.log([3.0, 0.5]))
    1.73**2 * RBF(length_scale=0.5)
    """
    if isinstance(kernel, KernelOperator):
        return _operator_setter(kernel)
    if isinstance(kernel, Exponentiation):
        return _part_setter(kernel, "kernel", theta_setter(kernel.kernel))
    return _leaf_setter(kernel)


def _operator_setter(kernel: Any) -> Callable[[Array], Any]:
    first, second, split = theta_setter(kernel.k1), theta_setter(kernel.k2), kernel.k1.n_dims

    def with_theta(theta: Array) -> Any:
        changed = shallow_copy(kernel)
        changed.k1, changed.k2 = first(theta[:split]), second(theta[split:])
        return changed

    return with_theta


def _part_setter(kernel: Any, name: str, part: Callable[[Array], Any]) -> Callable[[Array], Any]:
    def with_theta(theta: Array) -> Any:
        changed = shallow_copy(kernel)
        setattr(changed, name, part(theta))
        return changed

    return with_theta


def _leaf_setter(kernel: Any) -> Callable[[Array], Any]:
    free = [(h.name, h.n_elements) for h in kernel.hyperparameters if not h.fixed]

    def with_theta(theta: Array) -> Any:
        changed, values, start = shallow_copy(kernel), np.exp(theta), 0
        for name, n_elements in free:
            value = values[start : start + n_elements]
            setattr(changed, name, value if n_elements > 1 else float(value[0]))
            start += n_elements
        return changed

    return with_theta
