"""Covariances of the kernels in an ONNX graph, by type of kernel."""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from math import inf, sqrt
from typing import NamedTuple, TypeVar, overload

import numpy as np
from sklearn.gaussian_process import kernels
from sklearn.gaussian_process.kernels import Kernel

from cavity.export.onnx.graph import Value
from cavity.typing import Array


class Covariances(NamedTuple):
    """Covariances that a prediction needs."""

    cross: Value
    """k(x, z) [N, m] of the rows with the inducing points, without white noise."""
    diagonal: Value
    """k(x, x) [N, 1], white noise included."""


Emitter = Callable[[Kernel, Value, Array], Covariances]
E = TypeVar("E", bound=Emitter)


@singledispatch
def _emitter(kernel: object, X: Value, Z: Array) -> Covariances:
    name = type(kernel).__name__
    raise TypeError(
        f"kernel of type {name!r} has no ONNX form; write a function (kernel, X, Z) -> "
        f"cavity.export.onnx.Covariances and call cavity.export.onnx.register({name}, your_function)"
    )


def covariances(kernel: Kernel, X: Value, Z: Array) -> Covariances:
    """Covariances of rows X [N, d] and inducing points Z [m, d], both scaled."""
    # A subclass uses the emitter of its parent only if it computes the same function.
    owner = next(t for t in type(kernel).__mro__ if t in _emitter.registry)
    if owner is not object and any(
        getattr(type(kernel), method) is not getattr(owner, method) for method in ("__call__", "diag")
    ):
        return _emitter.dispatch(object)(kernel, X, Z)
    return _emitter(kernel, X, Z)


@overload
def register(kernel_type: type) -> Callable[[E], E]: ...
@overload
def register(kernel_type: type, emitter: E) -> E: ...
def register(kernel_type: type, emitter: E | None = None) -> E | Callable[[E], E]:
    """Register a kernel type for `to_onnx`: ``register(MyKernel, emitter)``, or use it as a decorator.

    The emitter takes the kernel, the rows as a `Value` X [N, d] and the inducing points as an array
    Z [m, d], and returns `Covariances`. A `Value` supports the operators of arrays.

    >>> from sklearn.gaussian_process.kernels import DotProduct
    >>> class Linear(DotProduct):
    ...     '''k(x, z) = x.z'''
    ...
    ...     def __call__(self, X, Y=None, eval_gradient=False):
    ...         return X @ (X if Y is None else Y).T
    >>> @register(Linear)
    ... def emit_linear(kernel, X, Z):
    ...     return Covariances(X @ Z.T, (X * X).sum())
    """
    if emitter is None:
        return lambda decorated: register(kernel_type, decorated)
    _emitter.register(kernel_type, emitter)
    return emitter


def _constant(value: float, X: Value, Z: Array) -> Value:
    """A constant matrix [N, m]."""
    return X @ np.zeros(Z.T.shape) + value


@register(kernels.ConstantKernel)
def _emit_constant(kernel: kernels.ConstantKernel, X: Value, Z: Array) -> Covariances:
    value = float(kernel.constant_value)
    return Covariances(_constant(value, X, Z), _constant(value, X, Z[:1]))


@register(kernels.WhiteKernel)
def _emit_white(kernel: kernels.WhiteKernel, X: Value, Z: Array) -> Covariances:
    return Covariances(_constant(0.0, X, Z), _constant(float(kernel.noise_level), X, Z[:1]))


@register(kernels.DotProduct)
def _emit_dot_product(kernel: kernels.DotProduct, X: Value, Z: Array) -> Covariances:
    bias = float(kernel.sigma_0) ** 2
    return Covariances(X @ Z.T + bias, (X * X).sum() + bias)


@register(kernels.RBF)
def _emit_rbf(kernel: kernels.RBF, X: Value, Z: Array) -> Covariances:
    return _stationary(_exponent(kernel, X, Z).exp(), X, Z)


@register(kernels.Matern)
def _emit_matern(kernel: kernels.Matern, X: Value, Z: Array) -> Covariances:
    exponent = _exponent(kernel, X, Z)
    if kernel.nu == inf:
        return _stationary(exponent.exp(), X, Z)
    t = (-2.0 * exponent).sqrt() * sqrt(2.0 * kernel.nu)
    cross = (-t).exp()
    if kernel.nu == 1.5:
        cross = cross * (t + 1.0)
    elif kernel.nu == 2.5:
        cross = cross * (t * t / 3.0 + t + 1.0)
    return _stationary(cross, X, Z)


@register(kernels.RationalQuadratic)
def _emit_rational_quadratic(kernel: kernels.RationalQuadratic, X: Value, Z: Array) -> Covariances:
    alpha = float(kernel.alpha)
    base = 1.0 - _exponent(kernel, X, Z) / alpha
    return _stationary((base.log() * -alpha).exp(), X, Z)


def _exponent(kernel: Kernel, X: Value, Z: Array) -> Value:
    """E = −½ Σ_k (x_k − z_k)²/l_k² [N, m]."""
    lengthscale = np.asarray(kernel.length_scale, dtype=np.float64)
    centre = Z.mean(axis=0)  # keeps the distances, and avoids cancellation for large offsets
    Zs = (Z - centre) / lengthscale
    Xs = (X - centre) / lengthscale
    half_norms: Array = 0.5 * np.sum(Zs**2, axis=1)[None]
    exponent: Value = Xs @ Zs.T - (Xs * Xs).sum() * 0.5 - half_norms
    return exponent.at_most(0.0)


def _stationary(cross: Value, X: Value, Z: Array) -> Covariances:
    return Covariances(cross, _constant(1.0, X, Z[:1]))


@register(kernels.Sum)
def _emit_sum(kernel: kernels.Sum, X: Value, Z: Array) -> Covariances:
    left, right = covariances(kernel.k1, X, Z), covariances(kernel.k2, X, Z)
    return Covariances(left.cross + right.cross, left.diagonal + right.diagonal)


@register(kernels.Product)
def _emit_product(kernel: kernels.Product, X: Value, Z: Array) -> Covariances:
    left, right = covariances(kernel.k1, X, Z), covariances(kernel.k2, X, Z)
    return Covariances(left.cross * right.cross, left.diagonal * right.diagonal)


@register(kernels.Exponentiation)
def _emit_power(kernel: kernels.Exponentiation, X: Value, Z: Array) -> Covariances:
    base, exponent = covariances(kernel.kernel, X, Z), float(kernel.exponent)
    return Covariances(base.cross**exponent, base.diagonal**exponent)
