"""The likelihoods of two classes: probit, p(z) = Φ(z), and logit, p(z) = 1/(1 + exp(−z)).

Probit is the sign of f seen through standard normal noise. The Gaussian integrals of logit are mixtures
of those of probit.

If K has Kolmogorov's distribution and ε is standard normal, then 2Kε has the standard logistic
distribution (Andrews and Mallows, 1974). So

    sigmoid(z) = E[Φ(z/τ)],      τ = 2K,

and integrals of sigmoid, or of log sigmoid, against a normal are mixtures of closed forms. The
expectation over τ is a Gauss rule in log τ, with positive weights that sum to 1 (`logistic_mixture`).

The mixture has a small absolute error, but the far left tail of sigmoid is exponential and the mixture's
is not. With Z(m) = ∫ sigmoid(z) N(z | m, V) dz, the identity sigmoid(z) = exp(z) sigmoid(−z) says

    Z(m) = exp(m + V/2) Z(−m − V),

which takes any m < −V/2 to one > −V/2, where the mixture is accurate.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import erfcx

from cavity.gp.likelihoods.base import Expected, Likelihood, Tilted
from cavity.gp.likelihoods.normal import (
    INV_SQRT_2PI,
    SQRT_2_OVER_PI,
    SQRT_HALF,
    density_ratio,
    expected_log_cdf,
    gauss_rule,
    log_cdf,
    log_cdf_curvature,
)
from cavity.typing import Array, IntArray


class BinaryLikelihood(Likelihood):
    """A likelihood of two classes that depends on the margin z = y f alone, with y = ±1.

    It is symmetric: p(z) + p(−z) = 1. A first derivative by f is y times that by z, and a second
    derivative is the same. A subclass gives functions of the margin's mean and variance, arrays of one
    common shape, element by element, without warnings for any finite margin up to 1e100.
    """

    n_latents = 1

    @abstractmethod
    def tilted_margin(self, mean: Array, variance: Array) -> Tilted:
        """The evidence of z ~ N(mean, variance) and its derivatives by the mean; the slope is ≥ 0."""

    @abstractmethod
    def expected_margin(self, mean: Array, variance: Array) -> Expected:
        """Expectations of log p and its derivatives by z ~ N(mean, variance); the slope is ≥ 0."""

    @abstractmethod
    def log_predictive_margin(self, mean: Array, variance: Array) -> Array:
        """Log ∫ p(z) N(z | mean, variance) dz, increasing in the mean."""

    @abstractmethod
    def score(self, mean: Array, variance: Array) -> Array:
        """Decision score: odd in the mean, and increasing with the predictive probability."""

    def tilted(self, labels: IntArray, mean: Array, variance: Array) -> Tilted:
        """Evidence and its derivatives by f, each [1, t]; see `Likelihood`."""
        y = signs(labels)
        by_margin = self.tilted_margin(y * mean, variance)
        return by_margin._replace(slope=y * by_margin.slope)

    def expected(self, labels: IntArray, mean: Array, variance: Array) -> Expected:
        """Expectations of log p and its derivatives by f, each [1, t]; see `Likelihood`."""
        y = signs(labels)
        by_margin = self.expected_margin(y * mean, variance)
        return by_margin._replace(slope=y * by_margin.slope)

    def log_predictive(self, labels: IntArray, mean: Array, variance: Array) -> Array:
        """Log probabilities [t] of the labels [t]; see `Likelihood`."""
        return self.log_predictive_margin(signs(labels) * mean[0], variance[0])

    def predict_log_proba(self, mean: Array, variance: Array) -> Array:
        """Log probabilities [t, 2] of the two classes; see `Likelihood`."""
        margins = (-mean[0], mean[0])
        return np.stack([self.log_predictive_margin(z, variance[0]) for z in margins], axis=1)

    def decision_score(self, mean: Array, variance: Array) -> Array:
        """Score [t] of the second class, zero where both are as probable; see `Likelihood`."""
        return self.score(mean[0], variance[0])


def signs(labels: IntArray) -> Array:
    """y = ±1 [t] of class codes [t].

    >>> signs(np.array([0, 1]))
    array([-1.,  1.])
    """
    return np.where(labels == 1, 1.0, -1.0)


@dataclass(frozen=True)
class Probit(BinaryLikelihood):
    """p(z) = Φ(z): all integrals in closed form, but E[log p], which is a quadrature to 1e-10.

    >>> Probit().log_predictive_margin(np.array([0.0]), np.array([3.0])).round(6)
    array([-0.693147])
    """

    def tilted_margin(self, mean: Array, variance: Array) -> Tilted:
        """Evidence and derivatives, with b = 1 + variance, x = mean/√b and r = φ(x)/Φ(x).

        log Z = log Φ(x),   α = r/√b,   β = w/b,   γ = r x/b,
        1 − β·variance = (1 + variance·(1 − w))/b

        where 0 < w = r(r + x) < 1.
        """
        b = 1.0 + variance
        root_b = np.sqrt(b)
        x = mean / root_b
        ratio = density_ratio(x)
        w, rest = log_cdf_curvature(x, ratio)
        return Tilted(
            log_evidence=log_cdf(x),
            slope=ratio / root_b,
            curvature=w / b,
            gamma=ratio * x / b,
            variance_ratio=(1.0 + variance * rest) / b,
        )

    def expected_margin(self, mean: Array, variance: Array) -> Expected:
        """Expectations of log Φ and its derivatives; see `expected_log_cdf`."""
        return expected_log_cdf(mean, variance)

    def log_predictive_margin(self, mean: Array, variance: Array) -> Array:
        """Log Φ(mean/√(1 + variance))."""
        return log_cdf(self.score(mean, variance))

    def score(self, mean: Array, variance: Array) -> Array:
        """mean/√(1 + variance), of which Φ is the predictive probability."""
        return np.asarray(mean / np.sqrt(1.0 + variance))


N_COMPONENTS = 16
"""Components of the mixture: sigmoid, its integral and its derivative err by at most 3e-11."""
_DEEP = 4.0
"""Standard deviations left of zero beyond which formulas without differences are used."""


@lru_cache(maxsize=1)
def logistic_mixture() -> tuple[Array, Array]:
    """Weights p and scales τ, each [16], with sigmoid(z) = Σ p Φ(z/τ).

    >>> weights, scales = logistic_mixture()
    >>> float((weights * scales**2).sum() / (np.pi**2 / 3)).__round__(6)
    1.0
    """
    log_half_scale = np.arange(np.log(0.1), np.log(7.0), 0.01)
    k = np.exp(log_half_scale)
    nodes, weights = gauss_rule(log_half_scale, k * kolmogorov_density(k), N_COMPONENTS)
    return weights / weights.sum(), 2.0 * np.exp(nodes)


def kolmogorov_density(k: Array) -> Array:
    """Density of Kolmogorov's distribution at k [N] > 0.

    For large k, 8k Σ (−1)^{j+1} j² exp(−2j²k²). For small k, the other side of the theta function's
    identity, √(2π) Σ (2a/k⁴ − 1/k²) exp(−a/k²) with a = (2j − 1)²π²/8.
    """
    j = np.arange(1.0, 9.0)[:, None]
    large = 8.0 * k * ((-1.0) ** (j + 1) * j**2 * np.exp(-2.0 * (j * k) ** 2)).sum(axis=0)
    a = ((2.0 * j - 1.0) * np.pi) ** 2 / 8.0
    small = ((2.0 * a / k**4 - 1.0 / k**2) * np.exp(-a / k**2)).sum(axis=0) * np.sqrt(2.0 * np.pi)
    return np.asarray(np.where(k > 0.8, large, small))


@dataclass(frozen=True)
class Logit(BinaryLikelihood):
    """p(z) = 1/(1 + exp(−z)): every integral is a mixture of 16 closed forms.

    >>> Logit().log_predictive_margin(np.array([0.0]), np.array([3.0])).round(6)
    array([-0.693147])
    """

    def expected_margin(self, mean: Array, variance: Array) -> Expected:
        """Expectations of log sigmoid and its derivatives.

        With a = |mean|, T² = τ² + variance, x = a/T:

            E[(log p)″] = −Σ p φ(x)/T,   E[(log p)′] = Σ p Φ(−x),   E[log p] = −Σ p (Tφ(x) − aΦ(−x))

        at mean = a; at mean = −a the slope is one minus that, and the value less by a. Each is exactly
        the derivative of the one before.
        """
        weights, T2, x, scaled = _tail_terms(mean, variance)
        a = np.abs(mean)
        gauss = weights * np.exp(-0.5 * x * x)
        upper = 0.5 * (gauss * scaled).sum(axis=0)
        gauss /= np.sqrt(T2)
        curvature = -INV_SQRT_2PI * gauss.sum(axis=0)
        value = a * upper - INV_SQRT_2PI * (gauss * T2).sum(axis=0)
        left = mean < 0.0
        return Expected(value - np.where(left, a, 0.0), np.where(left, 1.0 - upper, upper), curvature)

    def tilted_margin(self, mean: Array, variance: Array) -> Tilted:
        """Evidence and derivatives; reflecting the mean turns α into 1 − α and leaves β."""
        reflected = mean < -0.5 * variance
        at = _mixture_tilted(np.where(reflected, -mean - variance, mean), variance)
        slope = np.where(reflected, 1.0 - at.slope, at.slope)
        return at._replace(
            log_evidence=at.log_evidence + np.where(reflected, mean + 0.5 * variance, 0.0),
            slope=slope,
            gamma=np.where(reflected, at.curvature - slope**2, at.gamma),
        )

    def log_predictive_margin(self, mean: Array, variance: Array) -> Array:
        """Log Z(mean); the larger probability is one minus the smaller, so the two add up to 1."""
        rarer = self._log_rarer(np.abs(mean), variance)
        return np.where(mean < 0.0, rarer, np.log1p(-np.exp(rarer)))

    def score(self, mean: Array, variance: Array) -> Array:
        """Log odds of the predictive probability."""
        rarer = self._log_rarer(np.abs(mean), variance)
        return np.asarray(np.sign(mean) * (np.log1p(-np.exp(rarer)) - rarer))

    def _log_rarer(self, a: Array, variance: Array) -> Array:
        """Log Z(−a), a ≥ 0: the log probability of the less probable class."""
        reflected = a > 0.5 * variance
        log_z = _mixture_log_evidence(np.where(reflected, a - variance, -a), variance)
        return np.asarray(log_z + np.where(reflected, 0.5 * variance - a, 0.0))


def _columns(ndim: int) -> tuple[Array, Array]:
    """Weights and scales of the mixture [K, 1, …], to broadcast against arrays of `ndim` axes."""
    weights, scales = logistic_mixture()
    shape = (-1, *([1] * ndim))
    return weights.reshape(shape), scales.reshape(shape)


def _tail_terms(mean: Array, variance: Array) -> tuple[Array, Array, Array, Array]:
    """p, T² = τ² + variance, x = |mean|/T and 2Φ(−x)exp(x²/2) of each component, [K, …]."""
    weights, scales = _columns(np.ndim(mean))
    T2 = scales**2 + variance
    x = np.abs(mean) / np.sqrt(T2)
    return weights, T2, x, erfcx(SQRT_HALF * x)


def _mixture_log_evidence(mean: Array, variance: Array) -> Array:
    """Log Σ p Φ(mean/T), for variances of any size."""
    weights, _, x, scaled = _tail_terms(mean, variance)
    half_square = 0.5 * x * x
    # To the left the sum may underflow: it is taken relative to its widest component.
    reference = np.where(mean < 0.0, half_square[-1], 0.0)
    tail = 0.5 * (weights * np.exp(reference - half_square) * scaled).sum(axis=0)
    return np.asarray(_log_of_side(mean, tail) - reference)


def _log_of_side(mean: Array, tail: Array) -> Array:
    """Log(tail) to the left of zero and log(1 − tail) to the right."""
    left = mean < 0.0
    return np.where(left, np.log(np.where(left, tail, 1.0)), np.log1p(-np.where(left, 0.0, tail)))


def _mixture_tilted(mean: Array, variance: Array) -> Tilted:
    """Tilted moments of Σ p Φ(z/τ), for mean ≥ −variance/2."""
    deep = mean < -_DEEP * np.sqrt(variance)
    if not deep.any():
        return _shallow_tilted(mean, variance)
    out = np.empty((len(Tilted._fields), *mean.shape))
    for rows, tilted in ((deep, _deep_tilted), (~deep, _shallow_tilted)):
        out[:, rows] = tilted(mean[rows], variance[rows])
    return Tilted(*out)


def _shallow_tilted(mean: Array, variance: Array) -> Tilted:
    """From Z = Σ p Φ(mean/T) and its derivatives by the mean: α = Z′/Z, γ = −Z″/Z, β = γ + α²."""
    weights, T2, x, scaled = _tail_terms(mean, variance)
    left = mean < 0.0
    gauss = weights * np.exp(-0.5 * x * x)
    tail = 0.5 * (gauss * scaled).sum(axis=0)
    gauss /= np.sqrt(T2)
    first = INV_SQRT_2PI * gauss.sum(axis=0)
    second = -INV_SQRT_2PI * mean * (gauss / T2).sum(axis=0)
    evidence = np.where(left, tail, 1.0 - tail)
    slope, gamma = first / evidence, -second / evidence
    curvature = np.maximum(gamma + slope**2, 0.0)
    return Tilted(_log_of_side(mean, tail), slope, curvature, gamma, 1.0 - curvature * variance)


def _deep_tilted(mean: Array, variance: Array) -> Tilted:
    """The tilted moments far to the left (mean < 0), where γ + α² and 1 − βV would cancel.

        π ∝ p Φ(−x),   α = E_π[α_k],   β = E_π[β_k] − Var_π[α_k],   γ = E_π[γ_k]
        1 − βV = E_π[1 − β_k V] + V·Var_π[α_k]

    with α_k, β_k, γ_k those of a probit with noise τ² in place of 1. The last line adds positive terms.
    """
    weights, T2, x, scaled = _tail_terms(mean, variance)
    half_square = 0.5 * x * x
    mass = 0.5 * weights * np.exp(half_square[-1] - half_square) * scaled
    evidence = mass.sum(axis=0)
    share = mass / evidence
    ratio = SQRT_2_OVER_PI / scaled
    slopes = ratio / np.sqrt(T2)
    slope = (share * slopes).sum(axis=0)
    spread = (share * (slopes - slope) ** 2).sum(axis=0)
    w, rest = log_cdf_curvature(-x, ratio)
    share /= T2
    return Tilted(
        log_evidence=np.log(evidence) - half_square[-1],
        slope=slope,
        curvature=np.maximum((share * w).sum(axis=0) - spread, 0.0),
        gamma=-(share * ratio * x).sum(axis=0),
        variance_ratio=(share * (T2 - variance + variance * rest)).sum(axis=0) + variance * spread,
    )
