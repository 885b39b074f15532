"""From latent moments to class probabilities, by the type of rule and likelihood."""

from __future__ import annotations

from functools import singledispatch
from math import sqrt
from typing import Any

from cavity.onnx.graph import Value
from cavity.onnx.many_classes import noisy_argmax
from cavity.onnx.special import scaled_erfc
from cavity.rules.expectation_propagation import ExpectationPropagation
from cavity.rules.likelihoods import Logit, Probit
from cavity.rules.likelihoods.logistic_mixture import logistic_mixture
from cavity.rules.many_classes import ManyClassPropagation, ManyClassVariational
from cavity.rules.variational import Variational

_SQRT_HALF = sqrt(0.5)


@singledispatch
def probabilities(rule: Any, mean: Value, variance: Value, largest_variance: float) -> Value:
    """Class probabilities [N, C] from latent moments mean, variance [N, L], as the rule has them.

    largest_variance: what no variance exceeds.
    """
    raise TypeError(f"rule of type {type(rule).__name__!r} has no ONNX form")


@probabilities.register(ExpectationPropagation)
@probabilities.register(Variational)
def _two_classes(rule: Any, mean: Value, variance: Value, largest_variance: float) -> Value:
    rarer = _rarer(rule.likelihood, abs(mean), variance)
    negative = mean < 0.0
    return mean.graph.concat([negative.where(1.0 - rarer, rarer), negative.where(rarer, 1.0 - rarer)])


@probabilities.register(ManyClassPropagation)
@probabilities.register(ManyClassVariational)
def _many_classes(rule: Any, mean: Value, variance: Value, largest_variance: float) -> Value:
    return noisy_argmax(mean, variance, rule.n_latents, largest_variance)


@singledispatch
def _rarer(likelihood: Any, a: Value, variance: Value) -> Value:
    """Probability [N, 1] of the less probable class, for a = |mean| [N, 1]; exact far into the tail."""
    raise TypeError(f"likelihood of type {type(likelihood).__name__!r} has no ONNX form")


@_rarer.register
def _rarer_probit(likelihood: Probit, a: Value, variance: Value) -> Value:
    """Φ(−x) with x = a/√(1 + variance)."""
    x = a / (1.0 + variance).sqrt() * _SQRT_HALF
    return 0.5 * (-(x * x)).exp() * scaled_erfc(x)


@_rarer.register
def _rarer_logit(likelihood: Logit, a: Value, variance: Value) -> Value:
    """Z(−a) = exp(variance/2 − a) Z(a − variance), by whichever side holds; see `Logit`."""
    reflected = a > 0.5 * variance
    mean = reflected.where(a - variance, -a)
    weights, scales = logistic_mixture()
    x = abs(mean) / (variance + scales[None] ** 2).sqrt()
    half_square = 0.5 * x * x
    left = mean < 0.0
    # To the left the sum may underflow: it is taken relative to its widest component.
    reference = left.where(half_square.columns([len(scales) - 1]), 0.0)
    terms = weights[None] * (reference - half_square).exp() * scaled_erfc(x * _SQRT_HALF)
    tail = 0.5 * terms.sum()
    log_z = left.where(tail, 1.0 - tail).log() - reference
    return (log_z + reflected.where(0.5 * variance - a, 0.0)).exp()
