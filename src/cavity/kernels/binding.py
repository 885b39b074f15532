"""From a scikit-learn kernel to its bound form, by type."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, singledispatch
from typing import Any, TypeVar, overload

import numpy as np

from cavity.kernels.protocol import BoundKernel
from cavity.typing import Array, Dtype

Binder = Callable[[Any, Array], BoundKernel]
B = TypeVar("B", bound=Binder)


@singledispatch
def _binder(kernel: Any, Z: Array) -> BoundKernel:
    name = type(kernel).__name__
    raise TypeError(
        f"kernel of type {name!r} is not registered; write a class with the methods of "
        f"cavity.kernels.BoundKernel and call cavity.kernels.register({name}, YourBoundKernel)"
    )


def bind(kernel: Any, Z: Array) -> BoundKernel:
    """Bind a scikit-learn kernel to inducing points Z: [m, d], whose dtype rules all computation.

    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> Z = np.array([[0.0], [1.0]])
    >>> K, tape = bind(2.0 * RBF(length_scale=1.0), Z).cross(np.array([[0.0], [3.0]]))
    >>> K.round(3)
    array([[2.   , 1.213],
           [0.022, 0.271]])

    Raises
    ------
    TypeError
        If the type of the kernel (or of one inside it) is not registered, or Z is not an array
        of float32 or float64.
    ValueError
        If Z is not two-dimensional, or the kernel's parameters do not fit it.
    """
    if not isinstance(Z, np.ndarray) or Z.dtype not in (np.float32, np.float64):
        got = Z.dtype if isinstance(Z, np.ndarray) else type(Z).__name__
        raise TypeError(f"Z must be an array of float32 or float64, got {got}")
    if Z.ndim != 2:
        raise ValueError(f"Z must have shape [m, d], got {Z.shape}")
    kernel_type: type = type(kernel)
    return _binder_of(kernel_type)(kernel, Z)


def bind_rounded(kernel: Any, Z: Array, dtype: Dtype, bound: BoundKernel) -> BoundKernel:
    """Bind to Z in another precision, given what `bind` made of the same kernel and points.

    A bound kernel may have a method ``in_precision(dtype)`` that is cheaper than to bind again.
    """
    round_it: Callable[[Dtype], BoundKernel] | None = getattr(bound, "in_precision", None)
    return bind(kernel, Z.astype(dtype)) if round_it is None else round_it(dtype)


@lru_cache(maxsize=256)  # asked several times a step
def _binder_of(kernel_type: type) -> Binder:
    # A subclass may inherit its parent's bound form, but not once it computes something else.
    owner = next(t for t in kernel_type.__mro__ if t in _binder.registry)
    if owner is not object and any(
        getattr(kernel_type, method) is not getattr(owner, method) for method in ("__call__", "diag")
    ):
        return _binder.dispatch(object)
    return _binder.dispatch(kernel_type)


@overload
def register(kernel_type: type) -> Callable[[B], B]: ...
@overload
def register(kernel_type: type, binder: B) -> B: ...
def register(kernel_type: type, binder: B | None = None) -> B | Callable[[B], B]:
    """Teach `bind` a kernel type: ``register(MyKernel, MyBound)``, or decorate with one argument.

    ``MyBound(kernel, Z)`` (a class or a function) returns a `BoundKernel`.
    `cavity.kernels.check_kernel` tells whether its values and gradients are right.

    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import DotProduct
    >>> from cavity.kernels import check_kernel
    >>> class Linear(DotProduct):
    ...     '''k(x, z) = x.z, with no free hyperparameter.'''
    ...
    ...     def __init__(self):
    ...         super().__init__(sigma_0=0.0, sigma_0_bounds="fixed")
    ...
    ...     def __call__(self, X, Y=None, eval_gradient=False):
    ...         return X @ (X if Y is None else Y).T
    >>> @register(Linear)
    ... class BoundLinear:
    ...     def __init__(self, kernel, Z):
    ...         self.Z = Z
    ...
    ...     def cross(self, X):
    ...         return X @ self.Z.T, X
    ...
    ...     def pull_back(self, tape, G):
    ...         return np.empty(0), (G.T @ tape).astype(np.float64)
    ...
    ...     def diagonal(self, X):
    ...         return np.einsum("ij,ij->i", X, X), None
    ...
    ...     def pull_back_diagonal(self, tape, g):
    ...         return np.empty(0)
    >>> check_kernel(3.0 * Linear() + 1.0)
    """
    if binder is None:
        return lambda decorated: register(kernel_type, decorated)
    _binder.register(kernel_type, binder)
    _binder_of.cache_clear()
    return binder
