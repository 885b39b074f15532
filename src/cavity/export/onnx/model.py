"""The model itself as operators of a graph: covariances by type of kernel, probabilities by likelihood.

Two classes use the normal distribution function in float64, built from elementary operators because
runtimes have Erf in float32 only. C ≥ 3 classes use the multinomial probit, the largest of C latent
values with unit noise:

    p_y = ∫ N(t | m_y, b_y) ∏_{c≠y} Φ((t − m_c)/√b_c) dt,      b_c = 1 + variance_c

All classes share the nodes of one trapezoidal rule. Below the largest m_c − r√b_c some factor is
smaller than Φ(−r), and above the largest m_c + r√b_c all densities vanish. In between, the sum
converges faster than any power of the spacing; products of more factors vary more sharply and need a
smaller spacing. With the spacing used, in units of the smallest possible √b, the error is below 2e-7
for up to a hundred classes. Φ itself is the runtime's float32 function, which is equally exact.

The graph has the same number of nodes for all rows, 1,025 at most. That is enough for latent variances
up to 30,000 (the default kernel has 30 at most). Beyond, the error grows, to 3e-4 at 1e5 if some
classes are known far better than others. `NoisyArgmax` chooses the number of nodes for each row and has
no such limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache, singledispatch
from math import ceil, inf, log, pi, sqrt
from typing import NamedTuple, TypeVar, overload

import numpy as np
from scipy.special import erfcx
from sklearn.gaussian_process import kernels
from sklearn.gaussian_process.kernels import Kernel

from cavity.data.scaling import Knots, Scaling
from cavity.export.onnx.graph import Operand, Value
from cavity.export.onnx.routing import leaf_numbers
from cavity.gp.kernels import noise_free
from cavity.gp.kernels.base import registered_for
from cavity.gp.leaves import LocalPrior
from cavity.gp.likelihoods import BinaryLikelihood, Likelihood, Logit, NoisyArgmax, Probit
from cavity.gp.likelihoods.binary import logistic_mixture
from cavity.gp.likelihoods.normal import SQRT_HALF
from cavity.gp.mean_function import LinearScore
from cavity.gp.model import Model
from cavity.typing import Array


class Covariances(NamedTuple):
    """Covariances that a prediction needs."""

    cross: Value
    """k(x, z) [N, m] of the rows with the inducing points, without white noise."""
    diagonal: Value
    """k(x, x) [N, 1], white noise included."""


Emitter = Callable[[Kernel, Value, Value], Covariances]
E = TypeVar("E", bound=Emitter)


@singledispatch
def _emitter(kernel: object, X: Value, Z: Value) -> Covariances:
    name = type(kernel).__name__
    raise TypeError(
        f"kernel of type {name!r} has no ONNX form; write a function (kernel, X, Z) -> "
        f"cavity.export.onnx.Covariances and call cavity.export.onnx.register({name}, your_function)"
    )


def covariances(kernel: Kernel, X: Value, Z: Operand) -> Covariances:
    """Covariances of rows X [N, d] and inducing points Z [m, d], both scaled."""
    return registered_for(_emitter, type(kernel))(kernel, X, X.graph.value(Z))


@overload
def register(kernel_type: type) -> Callable[[E], E]: ...
@overload
def register(kernel_type: type, emitter: E) -> E: ...
def register(kernel_type: type, emitter: E | None = None) -> E | Callable[[E], E]:
    """Register a kernel type for `to_onnx`: ``register(MyKernel, emitter)``, or use it as a decorator.

    The emitter takes the kernel, the rows X [N, d] and the inducing points Z [m, d], and returns
    `Covariances`. Both are a `Value`, which supports the operators of arrays.

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


def _constant(value: float, X: Value, Z: Value) -> Covariances:
    """The same covariance of all rows and points."""
    return Covariances(X @ (Z * 0.0).T + value, (X * 0.0).sum() + value)


@register(kernels.ConstantKernel)
def _emit_constant(kernel: kernels.ConstantKernel, X: Value, Z: Value) -> Covariances:
    return _constant(float(kernel.constant_value), X, Z)


@register(kernels.WhiteKernel)
def _emit_white(kernel: kernels.WhiteKernel, X: Value, Z: Value) -> Covariances:
    diagonal = _constant(float(kernel.noise_level), X, Z).diagonal
    return Covariances(_constant(0.0, X, Z).cross, diagonal)


@register(kernels.DotProduct)
def _emit_dot_product(kernel: kernels.DotProduct, X: Value, Z: Value) -> Covariances:
    bias = float(kernel.sigma_0) ** 2
    return Covariances(X @ Z.T + bias, (X * X).sum() + bias)


@register(kernels.RBF)
def _emit_rbf(kernel: kernels.RBF, X: Value, Z: Value) -> Covariances:
    return _stationary(_exponent(kernel, X, Z).exp(), X, Z)


@register(kernels.Matern)
def _emit_matern(kernel: kernels.Matern, X: Value, Z: Value) -> Covariances:
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
def _emit_rational_quadratic(kernel: kernels.RationalQuadratic, X: Value, Z: Value) -> Covariances:
    alpha = float(kernel.alpha)
    base = 1.0 - _exponent(kernel, X, Z) / alpha
    return _stationary((base.log() * -alpha).exp(), X, Z)


def _exponent(kernel: Kernel, X: Value, Z: Value) -> Value:
    """E = −½ Σ_k (x_k − z_k)²/l_k² [N, m]."""
    lengthscale = np.asarray(kernel.length_scale, dtype=np.float64)
    # The centre keeps the distances, and avoids cancellation for large offsets.
    centre = Z.op("ReduceMean", axes=[0], keepdims=1)
    Zs = (Z - centre) / lengthscale
    Xs = (X - centre) / lengthscale
    exponent = Xs @ Zs.T - (Xs * Xs).sum() * 0.5 - (Zs * Zs).sum().T * 0.5
    return exponent.at_most(0.0)


def _stationary(cross: Value, X: Value, Z: Value) -> Covariances:
    return Covariances(cross, _constant(1.0, X, Z).diagonal)


@register(kernels.Sum)
def _emit_sum(kernel: kernels.Sum, X: Value, Z: Value) -> Covariances:
    left, right = covariances(kernel.k1, X, Z), covariances(kernel.k2, X, Z)
    return Covariances(left.cross + right.cross, left.diagonal + right.diagonal)


@register(kernels.Product)
def _emit_product(kernel: kernels.Product, X: Value, Z: Value) -> Covariances:
    left, right = covariances(kernel.k1, X, Z), covariances(kernel.k2, X, Z)
    return Covariances(left.cross * right.cross, left.diagonal * right.diagonal)


@register(kernels.Exponentiation)
def _emit_power(kernel: kernels.Exponentiation, X: Value, Z: Value) -> Covariances:
    base, exponent = covariances(kernel.kernel, X, Z), float(kernel.exponent)
    return Covariances(base.cross**exponent, base.diagonal**exponent)


class LatentMoments(NamedTuple):
    """Moments of the latent functions, [N, L]."""

    mean: Value
    variance: Value


def scaled(scaling: Scaling, X: Value) -> Value:
    """Scaled inputs [N, d] of raw inputs X [N, d]; see `Scaling.apply`."""
    if not scaling.is_identity:
        X = (X - scaling.centre) * (1.0 / scaling.scale)
    if scaling.bend is not None:
        X = _bent(X, scaling.bend)
    if scaling.knots is not None:
        X = _on_lines(X, scaling.knots)
    return X if scaling.whitening_matrix is None else X @ scaling.whitening_matrix


def _bent(X: Value, bend: Array) -> Value:
    """The values asinh(b·x)/b for columns with b > 0; ONNX Runtime has asinh for float32 only."""
    b = np.where(bend > 0, bend, 1.0)
    size = (abs(X) * b).at_most(1e150)  # its square is finite
    grown = ((size * size + 1.0).sqrt() + size).log() * (1.0 / b)
    straight = X.graph.constant(bend == 0)
    return straight.op("Where", X, (X < 0.0).where(-grown, grown))


def _on_lines(X: Value, knots: Knots) -> Value:
    """Piecewise linear functions of columns of X; a value is on the line from the last knot below it."""
    functions = {j: (positions, values) for j, positions, values in knots.columns()}
    columns = []
    for j in range(len(knots.starts) - 1):
        column = X.columns([j])
        if j in functions:
            positions, values = functions[j]
            slopes = np.diff(values) / np.diff(positions)
            inner = (column > positions[1:-1]).cast(np.int64)
            line = inner.op("ReduceSum", np.array([1], dtype=np.int64), keepdims=1)
            start, value, slope = (
                X.graph.op("Gather", part, line) for part in (positions[:-1], values[:-1], slopes)
            )
            column = value + slope * (column - start)
        columns.append(column)
    return X.graph.concat(columns)


def latent_moments(model: Model, X: Value) -> LatentMoments:
    """Mean and variance of the latent functions at raw inputs X [N, d]; see `Model.latent_moments`."""
    offset = _mean_function(model, X)
    leaf = None if model.local is None else leaf_numbers(model.local.leaves.routing, X)
    X = scaled(model.scaling, X)
    # Squared distances must stay finite: beyond this bound a row is infinitely far anyway.
    farthest = 1e-4 * float(np.sqrt(np.finfo(model.dtype).max))
    X = X.at_least(-farthest).at_most(farthest)
    Z = X.graph.constant(model.Z)
    if leaf is None:
        A = covariances(model.kernel, X, Z).cross @ model.prior.L_inverse.T
        mean, variance, explained = _explained(A, model.posterior.mean.T, model.posterior.covariance)
    else:
        mean, variance, explained = _explained_in_leaves(model, X, Z, leaf)
    diagonal = covariances(model.kernel, X, Z).diagonal
    smooth_kernel = noise_free(model.kernel)
    if smooth_kernel != model.kernel:  # white noise is not part of the residual
        smooth = covariances(smooth_kernel, X, Z).diagonal
        variance, diagonal = variance + (diagonal - smooth), smooth
    residual = (diagonal - explained).at_least(0.0)
    c, b = model.inverse_temperature, model.residual_variance_scale
    mean = mean if offset is None else mean + offset
    return LatentMoments(mean * c, (variance + residual * b) * c**2)


class _Explained(NamedTuple):
    """What inducing points say of rows."""

    mean: Value
    """[N, L]"""
    variance: Value
    """[N, L]"""
    prior_variance: Value
    """[N, 1]: the prior variance |A|² that they explain."""


def _explained(A: Value, mean: Operand, covariances: Iterable[Operand]) -> _Explained:
    """The moments of rows A [N, m] from those of q: mean [m, L], and L covariances [m, m]."""
    variances = [(A * (A @ S)).sum().at_least(0.0) for S in covariances]
    return _Explained(A @ mean, A.graph.concat(variances), (A * A).sum())


def _explained_in_leaves(model: Model, X: Value, Z: Value, leaf: Value) -> _Explained:
    """The moments of scaled rows X [N, d] in leaves [N], for a model with leaves.

    The graph goes over the leaves that occur, and looks up what belongs to each. All have as many points
    there: a point that is added has a row of zeros in the whitener, so that it says nothing.
    """
    graph, prior, views = X.graph, model.prior, model.views
    assert isinstance(prior, LocalPrior)
    K, m, size, L = len(views), len(model.Z), max(prior.leaves.sizes), len(model.posterior.mean)
    points, whitener = np.zeros((K, size, model.Z.shape[1])), np.zeros((K, size, size))
    means, covariance = np.zeros((K, m + size, L)), np.zeros((L, K, m + size, m + size))
    for k, q in enumerate(views):
        own = prior.leaf(k)
        n = len(own.Z)
        points[k, :n], points[k, n:] = own.Z, own.Z[0]
        whitener[k, :n, :n] = own.L_inverse.T
        means[k, : m + n], covariance[:, k, : m + n, : m + n] = q.mean.T, q.covariance
    stacks = [graph.constant(stack) for stack in (points, whitener, means, *covariance)]
    A = covariances(model.kernel.k1, X, Z).cross @ prior.L_inverse.T

    def of_leaf(number: Value, found: Value) -> Value:
        rows = leaf.op("Equal", number).op("NonZero").op("Reshape", np.array([-1, 1], dtype=np.int64))
        index = rows.flat()
        Z_k, W_k, mean, *S = (stack.op("Gather", number, axis=0) for stack in stacks)
        local = covariances(model.kernel.k2, X.op("Gather", index, axis=0), Z_k).cross
        whole = graph.concat([A.op("Gather", index, axis=0), local @ W_k])
        return found.op("ScatterND", rows, graph.concat(list(_explained(whole, mean, S))))

    found = graph.for_each(leaf.op("Unique"), A @ np.zeros((m, 2 * L + 1)), of_leaf)
    every = np.arange(2 * L + 1)
    return _Explained(*(found.columns(part) for part in (every[:L], every[L : 2 * L], every[2 * L :])))


def _mean_function(model: Model, X: Value) -> Value | None:
    """What the mean function adds to the latent functions at raw inputs X [N, d]: [N, L], or None."""
    if model.needs_offset:
        raise TypeError(
            "a model that was fitted with an offset for each row cannot be exported, because the graph "
            "has no input for it; use mean_function instead"
        )
    mean = model.mean_function
    if mean is None:
        return None
    if not isinstance(mean.classifier, LinearScore):
        raise TypeError(
            f"mean_function={type(mean.classifier).__name__} has no ONNX form here; "
            'mean_function="linear" and None have one'
        )
    linear = mean.classifier
    return scaled(linear.scaling, X) @ (mean.coefficient * linear.weights) + (
        mean.coefficient * linear.intercept
    )


_FOLD = 3.75
"""The constant c of the map t = (x − c)/(x + c)."""
_DEGREE = 30
"""Degree of the Chebyshev series of erfcx."""


@lru_cache(maxsize=1)
def erfcx_coefficients() -> Array:
    """Chebyshev coefficients of (1 + 2x) erfcx(x), x ≥ 0, in t = (x − c)/(x + c), from −1 to 1.

    The product varies little and smoothly over all of x ≥ 0 (Shepherd and Laframboise, 1981); at this
    degree the series is exact to rounding.
    """

    def folded(t: Array) -> Array:
        x = _FOLD * (1.0 + t) / (1.0 - t)
        return np.asarray((1.0 + 2.0 * x) * erfcx(x))

    return np.real(np.polynomial.Chebyshev.interpolate(folded, _DEGREE).coef).astype(np.float64)


def scaled_erfc(x: Value) -> Value:
    """erfcx(x) = exp(x²) erfc(x) for x ≥ 0, by Clenshaw's recurrence."""
    t = (x - _FOLD) / (x + _FOLD)
    twice = t + t
    first, *others = (float(c) for c in erfcx_coefficients()[::-1])
    current, before = x.graph.constant(first), x.graph.constant(0.0)
    for coefficient in others[:-1]:
        current, before = twice * current - before + coefficient, current
    return (t * current - before + others[-1]) / (1.0 + 2.0 * x)


_REACH = 6.0
"""Standard deviations r beyond which densities are neglected."""
_MOST_NODES = 1024
"""Largest number of intervals of the trapezoidal rule."""


def noisy_argmax(mean: Value, variance: Value, n_classes: int, largest_variance: float) -> Value:
    """Probabilities [N, C] from latent moments mean, variance [N, C].

    largest_variance: upper bound of the variances, which decides the number of nodes.
    """
    spacing = 0.75 / (1.0 + 0.27 * log(n_classes))
    n_intervals = min(ceil(2.0 * _REACH * sqrt(1.0 + largest_variance) / spacing), _MOST_NODES)
    root = (1.0 + variance).sqrt()
    low = _largest(mean - _REACH * root)
    width = _largest(mean + _REACH * root) - low
    t = _deep(low) + _deep(width) * np.linspace(0.0, 1.0, n_intervals + 1)[None, None]  # [N, 1, J]
    z = (t - _deep(mean)) / _deep(root)  # [N, C, J]
    # The floor avoids 0/0. The factor of the class itself cancels, so its rounding does not matter.
    cdf = (0.5 + 0.5 * (z * sqrt(0.5)).cast(np.float32).op("Erf").cast(np.float64)).at_least(1e-9)
    product = cdf.op("ReduceProd", axes=[1], keepdims=1)
    density = (-0.5 * z * z).exp() / (_deep(root) * sqrt(2.0 * pi))
    mass = (density * product / cdf).op("ReduceSum", np.array([2], dtype=np.int64), keepdims=0)
    p = mass * (width / float(n_intervals))
    return p / p.sum()


def _largest(value: Value) -> Value:
    """Maximum of each row, [N, 1]."""
    return value.op("ReduceMax", axes=[1], keepdims=1)


def _deep(value: Value) -> Value:
    """Reshape [N, k] to [N, k, 1]."""
    return value.op("Unsqueeze", np.array([2], dtype=np.int64))


def _no_form(likelihood: Likelihood) -> TypeError:
    """The error for a likelihood that a graph cannot express."""
    return TypeError(
        f"likelihood of type {type(likelihood).__name__!r} has no ONNX form; use cavity.save"
    )


@singledispatch
def probabilities(
    likelihood: Likelihood, mean: Value, variance: Value, largest_variance: float
) -> Value:
    """Class probabilities [N, C] from latent moments mean, variance [N, L], as the likelihood has them.

    largest_variance: what no variance exceeds.
    """
    raise _no_form(likelihood)


@probabilities.register
def _two_classes(
    likelihood: BinaryLikelihood, mean: Value, variance: Value, largest_variance: float
) -> Value:
    rarer = _rarer(likelihood, abs(mean), variance)
    negative = mean < 0.0
    return mean.graph.concat([negative.where(1.0 - rarer, rarer), negative.where(rarer, 1.0 - rarer)])


@probabilities.register
def _many_classes(
    likelihood: NoisyArgmax, mean: Value, variance: Value, largest_variance: float
) -> Value:
    return noisy_argmax(mean, variance, likelihood.n_latents, largest_variance)


@singledispatch
def _rarer(likelihood: BinaryLikelihood, a: Value, variance: Value) -> Value:
    """Probability [N, 1] of the less probable class, for a = |mean| [N, 1]; exact far into the tail."""
    raise _no_form(likelihood)


@_rarer.register
def _rarer_probit(likelihood: Probit, a: Value, variance: Value) -> Value:
    """Φ(−x) with x = a/√(1 + variance)."""
    x = a / (1.0 + variance).sqrt() * float(SQRT_HALF)
    return 0.5 * (-(x * x)).exp() * scaled_erfc(x)


@_rarer.register
def _rarer_logit(likelihood: Logit, a: Value, variance: Value) -> Value:
    """Z(−a), or its reflection exp(variance/2 − a) Z(a − variance) where a > variance/2; see `Logit`."""
    reflected = a > 0.5 * variance
    mean = reflected.where(a - variance, -a)
    weights, scales = logistic_mixture()
    x = abs(mean) / (variance + scales[None] ** 2).sqrt()
    half_square = 0.5 * x * x
    left = mean < 0.0
    # For negative means the sum may underflow, so it is taken relative to its widest component.
    reference = left.where(half_square.columns([len(scales) - 1]), 0.0)
    terms = weights[None] * (reference - half_square).exp() * scaled_erfc(x * float(SQRT_HALF))
    tail = 0.5 * terms.sum()
    log_z = left.where(tail, 1.0 - tail).log() - reference
    return (log_z + reflected.where(0.5 * variance - a, 0.0)).exp()
