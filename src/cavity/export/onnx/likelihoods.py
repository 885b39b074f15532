"""Class probabilities in an ONNX graph, by type of likelihood.

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

from functools import lru_cache, singledispatch
from math import ceil, log, pi, sqrt

import numpy as np
from scipy.special import erfcx

from cavity.export.onnx.graph import Value
from cavity.gp.likelihoods import BinaryLikelihood, Likelihood, Logit, NoisyArgmax, Probit
from cavity.gp.likelihoods.logit import logistic_mixture
from cavity.typing import Array

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


_SQRT_HALF = sqrt(0.5)


@singledispatch
def probabilities(
    likelihood: Likelihood, mean: Value, variance: Value, largest_variance: float
) -> Value:
    """Class probabilities [N, C] from latent moments mean, variance [N, L], as the likelihood has them.

    largest_variance: what no variance exceeds.
    """
    raise TypeError(f"likelihood of type {type(likelihood).__name__!r} has no ONNX form")


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
    raise TypeError(f"likelihood of type {type(likelihood).__name__!r} has no ONNX form")


@_rarer.register
def _rarer_probit(likelihood: Probit, a: Value, variance: Value) -> Value:
    """Φ(−x) with x = a/√(1 + variance)."""
    x = a / (1.0 + variance).sqrt() * _SQRT_HALF
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
    terms = weights[None] * (reference - half_square).exp() * scaled_erfc(x * _SQRT_HALF)
    tail = 0.5 * terms.sum()
    log_z = left.where(tail, 1.0 - tail).log() - reference
    return (log_z + reflected.where(0.5 * variance - a, 0.0)).exp()
