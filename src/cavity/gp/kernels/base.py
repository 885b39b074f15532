"""What a pass needs from a kernel: values, the diagonal, and gradients by its parameters.

A gradient by the values of a kernel is *pulled back* to its parameters: the chain rule, in the reverse
mode of automatic differentiation, with what the forward call has kept on a *tape*.

A scikit-learn kernel says which covariance function is meant. `bind` turns it, with inducing points,
into a `BoundKernel` that computes; `register` adds a kernel type; `theta_setter` copies a kernel with
other hyperparameters, which scikit-learn's `clone_with_theta` does too slowly for some hundred steps a
second.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, singledispatch
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, overload, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from sklearn.gaussian_process.kernels import Exponentiation, Kernel, KernelOperator, WhiteKernel

from cavity.typing import Array, Dtype

if TYPE_CHECKING:
    from functools import _SingleDispatchCallable

Array64: TypeAlias = NDArray[np.float64]

SetTheta: TypeAlias = Callable[[Array], Kernel]
"""Gives a copy of a kernel with another theta [p]."""

Tape: TypeAlias = Any
"""What a forward call keeps for its pull-back; only the kernel that made it reads it."""


@runtime_checkable
class BoundKernel(Protocol):
    """A kernel with fixed hyperparameters and inducing points Z: [m, d].

    A bound kernel never changes after construction: whatever one call must remember for its
    pull-back is in the tape that it returns, so threads can share one bound kernel.
    All arrays over rows are in the dtype of Z; gradients are always float64.

    `theta`, with p entries, is scikit-learn's: the logarithms of the hyperparameters that
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


@runtime_checkable
class RoundedKernel(Protocol):
    """A bound kernel that can be rounded to another precision, which is cheaper than binding again."""

    def in_precision(self, dtype: Dtype) -> BoundKernel:
        """The same kernel and points in another precision."""
        ...


T = TypeVar("T")


def shallow_copy(original: T) -> T:
    """Copy an object with its attributes; four times as fast as the general `copy.copy`.

    >>> from sklearn.gaussian_process.kernels import RBF
    >>> shallow_copy(RBF(2.0))
    RBF(length_scale=2)
    """
    other = object.__new__(type(original))
    other.__dict__.update(original.__dict__)
    return other


def total(G: Array) -> float:
    """Σ G. Rows are summed in G's dtype, which is fast, and their sums in float64."""
    return float(G.sum(axis=-1).sum(dtype=np.float64))


def inner(G: Array, K: Array) -> float:
    """Σ G∘K for G, K: [n, m], without the [n, m] product."""
    return float(np.einsum("ij,ij->i", G, K).sum(dtype=np.float64))


def is_fixed(kernel: Kernel, name: str) -> bool:
    """Whether a hyperparameter is fixed: `kernel.hyperparameter_<name>.fixed`, without its cost."""
    return isinstance(getattr(kernel, f"{name}_bounds"), str)


def if_free(fixed: bool, value: float) -> Array64:
    """The gradient of a scalar hyperparameter: one entry, or none when it is fixed."""
    return np.empty(0) if fixed else np.array([value], dtype=np.float64)


def theta_setter(kernel: Kernel) -> SetTheta:
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


def _operator_setter(kernel: Kernel) -> SetTheta:
    first, second, split = theta_setter(kernel.k1), theta_setter(kernel.k2), kernel.k1.n_dims

    def with_theta(theta: Array) -> Kernel:
        changed = shallow_copy(kernel)
        changed.k1, changed.k2 = first(theta[:split]), second(theta[split:])
        return changed

    return with_theta


def _part_setter(kernel: Kernel, name: str, part: SetTheta) -> SetTheta:
    def with_theta(theta: Array) -> Kernel:
        changed = shallow_copy(kernel)
        setattr(changed, name, part(theta))
        return changed

    return with_theta


def _leaf_setter(kernel: Kernel) -> SetTheta:
    free = [(h.name, h.n_elements) for h in kernel.hyperparameters if not h.fixed]

    def with_theta(theta: Array) -> Kernel:
        changed, values, start = shallow_copy(kernel), np.exp(theta), 0
        for name, n_elements in free:
            value = values[start : start + n_elements]
            setattr(changed, name, value if n_elements > 1 else float(value[0]))
            start += n_elements
        return changed

    return with_theta


def noise_free(kernel: Kernel) -> Kernel:
    """A copy of the kernel in which white noise has the level zero.

    >>> from sklearn.gaussian_process.kernels import RBF
    >>> noise_free(RBF(1.0) + WhiteKernel(0.5))
    RBF(length_scale=1) + WhiteKernel(noise_level=0)
    """
    changed = shallow_copy(kernel)
    if isinstance(kernel, WhiteKernel):
        changed.noise_level = 0.0
    elif isinstance(kernel, KernelOperator):
        changed.k1, changed.k2 = noise_free(kernel.k1), noise_free(kernel.k2)
    elif isinstance(kernel, Exponentiation):
        changed.kernel = noise_free(kernel.kernel)
    return changed


Binder: TypeAlias = Callable[[Kernel, Array], BoundKernel]
B = TypeVar("B", bound=Binder)


@singledispatch
def _binder(kernel: Kernel, Z: Array) -> BoundKernel:
    name = type(kernel).__name__
    raise TypeError(
        f"kernel of type {name!r} is not registered; write a class with the methods of "
        f"cavity.gp.kernels.BoundKernel and call cavity.gp.kernels.register({name}, YourBoundKernel)"
    )


def bind(kernel: Kernel, Z: Array) -> BoundKernel:
    """Bind a scikit-learn kernel to inducing points Z: [m, d], in the dtype of Z.

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


def bind_rounded(kernel: Kernel, Z: Array, dtype: Dtype, bound: BoundKernel) -> BoundKernel:
    """Bind to Z in another precision, given what `bind` made of the same kernel and points."""
    if isinstance(bound, RoundedKernel):
        return bound.in_precision(dtype)
    return bind(kernel, Z.astype(dtype))


@lru_cache(maxsize=256)  # called several times a step
def _binder_of(kernel_type: type) -> Binder:
    return registered_for(_binder, kernel_type)


def registered_for(function: _SingleDispatchCallable[T], kernel_type: type) -> Callable[..., T]:
    """What a `singledispatch` function does for a type of kernel.

    A subclass inherits what is registered for its parent, unless it overrides what the kernel computes:
    then it counts as not registered.
    """
    owner = next(t for t in kernel_type.__mro__ if t in function.registry)
    if owner is not object and any(
        getattr(kernel_type, method) is not getattr(owner, method) for method in ("__call__", "diag")
    ):
        owner = object
    return function.dispatch(owner)


@overload
def register(kernel_type: type) -> Callable[[B], B]: ...
@overload
def register(kernel_type: type, binder: B) -> B: ...
def register(kernel_type: type, binder: B | None = None) -> B | Callable[[B], B]:
    """Add a kernel type: ``register(MyKernel, MyBound)``, or as a decorator with one argument.

    ``MyBound(kernel, Z)`` (a class or a function) returns a `BoundKernel`.
    `cavity.gp.kernels.check_kernel` tells whether its values and gradients are right.

    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import DotProduct
    >>> from cavity.gp.kernels import check_kernel
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
