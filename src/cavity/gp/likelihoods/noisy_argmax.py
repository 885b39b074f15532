"""The likelihood of many classes: the largest of C latent values, each seen through unit noise.

    p(y | f) = P(f_y + ε_y > f_c + ε_c for all c ≠ y),   ε_c ~ N(0, 1) independent,

the multinomial probit. With f_c ~ N(m_c, V_c) independent and b_c = 1 + V_c its evidence is an integral
over one variable, the noisy value t of the labelled class:

    Z = ∫ N(t | m_y, b_y) ∏_{c≠y} Φ((t − m_c)/√b_c) dt.

The integrand is log-concave in t and jointly in the means, so every curvature below is that of a proper
site. With r = φ/Φ and w = r(r + z) at z_c = (t − m_c)/√b_c, and E, Var under the normalised integrand:

    c ≠ y:  α_c = −E[r_c]/√b_c,         β_c = (E[w_c] − Var[r_c])/b_c
    y:      α_y = −Σ α_c,               β_y = E[Σ w_c/b_c] − Var[Σ r_c/√b_c]

where α = ∂ log Z/∂m and β = −∂² log Z/∂m². The integral is a sum over equidistant nodes
around the integrand's mode, as many as its narrowest feature asks for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import erfcx

from cavity.gp.likelihoods.base import Expected, Tilted
from cavity.gp.likelihoods.normal import density_ratio, expected_log_cdf, log_cdf
from cavity.typing import Array, IntArray

_REACH = 5.3
"""Standard deviations that the nodes reach to either side of the mode."""
_NODES = (14, 18, 26, 40, 80, 160, 360)
"""Nodes that a row may have: as many as its integrand needs, the most if that is more."""
_STEP = 0.8
"""Distance between nodes, in standard deviations of the narrowest factor."""
_SHARED_NODES = tuple(int(43 * 1.5**i) for i in range(16))
"""Nodes that the classes of a row may share; the most, 18,829, are for √b that differ a thousandfold."""
_NEWTON_STEPS = 3
_CHUNK = 2**15
"""Values of Φ worked on at a time: their arrays should stay in the caches."""
_INV_SQRT_2PI = 1.0 / np.sqrt(2.0 * np.pi)
_CERTAIN = 40.0
"""z of the labelled class itself: Φ = 1 to the last bit."""


@dataclass(frozen=True)
class NoisyArgmax:
    """The multinomial probit of C classes.

    >>> mean, variance = np.zeros((4, 1)), np.ones((4, 1))
    >>> float(NoisyArgmax().tilted(np.array([2]), mean, variance).log_evidence.round(6)[0, 0])
    -1.386294
    """

    def tilted(self, labels: IntArray, mean: Array, variance: Array) -> Tilted:
        """Evidence [1, t] and derivatives [C, t] by the latent values, for f ~ N(mean, variance)."""
        b = 1.0 + variance
        mode, width = integrand_mode(labels, mean, b)
        right = np.sqrt(b[labels, np.arange(len(labels))])
        start, stop = mode - _REACH * width, mode + _REACH * right
        # Steps in proportion to the narrowest feature: the trapezoidal rule errs by exp(−2π²/step²).
        finest = np.minimum(width, np.sqrt(b.min(axis=0)))
        needed = (stop - start) / (_STEP * finest)
        log_evidence = np.empty((1, len(labels)))
        slope, curvature = np.empty_like(mean), np.empty_like(mean)
        for part, n_nodes in _by_need(needed, _NODES, len(mean)):
            nodes = np.linspace(start[part], stop[part], n_nodes)
            found = _integrals(labels[part], mean[:, part], b[:, part], nodes)
            log_evidence[:, part], slope[:, part], curvature[:, part] = found
        return Tilted(
            log_evidence=log_evidence,
            slope=slope,
            curvature=curvature,
            gamma=curvature - slope**2,
            variance_ratio=1.0 - curvature * variance,  # at least 1/b, since β ≤ 1/b
        )

    def expected(self, labels: IntArray, mean: Array, variance: Array) -> Expected:
        """Expectations of Σ_{c≠y} log Φ((f_y − f_c)/√2), a lower bound of log p(y | f).

        The differences t_y − t_c are positively correlated, so by Slepian's inequality the probability
        that all are positive is at least the product of the single ones: a bound for every f, tight
        where the label is clear. It is concave and needs integrals over one variable only.
        """
        others = _others(labels, len(mean))
        columns = np.arange(len(labels))
        difference = np.sqrt(0.5) * (mean[labels, columns] - mean)
        spread = 0.5 * (variance[labels, columns] + variance)
        parts = expected_log_cdf(difference, spread)
        value, slope, curvature = (np.where(others, part, 0.0) for part in parts)
        slope, curvature = -np.sqrt(0.5) * slope, 0.5 * curvature
        slope[labels, columns] = -slope.sum(axis=0)
        curvature[labels, columns] = curvature.sum(axis=0)
        return Expected(value.sum(axis=0, keepdims=True), slope, curvature)

    def log_predictive(self, mean: Array, variance: Array) -> Array:
        """Log probabilities [t, C] of all classes for f ~ N(mean, variance), both [C, t].

        All C integrals share their nodes, for their integrands share all factors but one; an improbable
        class has its mass between its own mean and the largest. The sum over classes is one.
        """
        b = 1.0 + variance
        start, stop = _shared_range(mean, b)
        # A product of many factors bends more sharply than each of them.
        spacing = _STEP / (1.0 + 0.27 * np.log(len(mean))) * np.sqrt(b.min(axis=0))
        log_proba = np.empty((mean.shape[1], len(mean)))
        for part, n_nodes in _by_need((stop - start) / spacing, _SHARED_NODES, len(mean)):
            nodes = np.linspace(start[part], stop[part], n_nodes)
            log_proba[part] = _log_probabilities(mean[:, part], b[:, part], nodes)
        return log_proba


def _by_need(needed: Array, n_nodes: tuple[int, ...], n_latents: int) -> Iterator[tuple[IntArray, int]]:
    """Few rows at a time that need about as many nodes, and how many that is; the last is the most."""
    kind = np.minimum(np.searchsorted(n_nodes, needed), len(n_nodes) - 1)
    for i in np.unique(kind):
        rows = np.flatnonzero(kind == i)
        size = max(1, _CHUNK // (n_latents * n_nodes[i]))
        for first in range(0, len(rows), size):
            yield rows[first : first + size], n_nodes[i]


def _shared_range(mean: Array, b: Array) -> tuple[Array, Array]:
    """Between which t [t] the integrands of all classes have their mass; b = 1 + variance."""
    deviation = np.sqrt(b)
    columns, top = np.arange(mean.shape[1]), mean.argmax(axis=0)
    # Against the top class alone, class c wins at the latest from this mean of the two on.
    towards_top = b / (b + b[top, columns])
    likeliest = mean + towards_top * (mean[top, columns] - mean)
    start = (likeliest - _REACH * deviation).min(axis=0)
    stop = (likeliest + _REACH * deviation).max(axis=0)
    return start, stop


def _log_probabilities(mean: Array, b: Array, t: Array) -> Array:
    """[t, C], from equidistant nodes t [J, t]; b = 1 + variance."""
    deviation = np.sqrt(b)
    z = (t - mean[:, None]) / deviation[:, None]
    log_phi = log_cdf(z)
    exponent = log_phi.sum(axis=0) - log_phi - 0.5 * z**2 - np.log(deviation)[:, None]
    largest = exponent.max(axis=1)
    log_proba = largest + np.log(np.exp(exponent - largest[:, None]).sum(axis=1))
    log_proba -= log_proba.max(axis=0)
    return np.asarray((log_proba - np.log(np.exp(log_proba).sum(axis=0))).T)


def _others(labels: IntArray, n_latents: int) -> Array:
    """[C, t]: True for every class but the label."""
    return np.asarray(np.arange(n_latents)[:, None] != labels)


def _integrals(labels: IntArray, mean: Array, b: Array, t: Array) -> tuple[Array, Array, Array]:
    """log Z [1, t], α and β [C, t] of a few rows, from equidistant nodes t [J, t]; b = 1 + variance."""
    columns = np.arange(len(labels))
    own_mean, own_b = mean[labels, columns], b[labels, columns]
    inverse_root = 1.0 / np.sqrt(b)
    z = (t - mean[:, None]) * inverse_root[:, None]
    z[labels, :, columns] = _CERTAIN
    log_phi, ratio = _log_cdf_and_ratio(z)
    exponent = log_phi.sum(axis=0) - 0.5 * (t - own_mean) ** 2 / own_b
    largest = exponent.max(axis=0)
    mass = np.exp(exponent - largest)
    total = mass.sum(axis=0)
    mass /= total
    spacing = t[1] - t[0]
    log_evidence = largest + np.log(total * spacing) - 0.5 * np.log(2.0 * np.pi * own_b)

    mean_ratio = np.einsum("cjt,jt->ct", ratio, mass)
    z += ratio
    z *= ratio  # w = r(r + z)
    mean_bend = np.einsum("cjt,jt->ct", z, mass)
    pull = np.einsum("cjt,ct->jt", ratio, inverse_root)
    ratio -= mean_ratio[:, None]
    spread = np.einsum("cjt,cjt,jt->ct", ratio, ratio, mass)
    slope = -mean_ratio * inverse_root
    curvature = (mean_bend - spread) * inverse_root**2

    slope[labels, columns] = -slope.sum(axis=0)
    drift = pull - slope[labels, columns]
    curvature[labels, columns] = (mean_bend * inverse_root**2).sum(axis=0)
    curvature[labels, columns] -= (mass * drift**2).sum(axis=0)
    curvature = np.clip(curvature, 0.0, inverse_root**2)
    return np.minimum(log_evidence, 0.0)[None], slope, curvature


def _log_cdf_and_ratio(z: Array) -> tuple[Array, Array]:
    """Log Φ(z), to the right accurate absolutely only, and φ(z)/Φ(z): few passes over large arrays."""
    cdf = np.abs(z)
    cdf *= np.sqrt(0.5)
    erfcx(cdf, out=cdf)
    cdf *= 0.5
    exponent = z * z
    exponent *= -0.5
    ratio = np.exp(exponent)
    right = z >= 0.0
    # Φ(z) and φ(z), on the left both divided by exp(−z²/2).
    np.subtract(1.0, ratio * cdf, out=cdf, where=right)
    np.copyto(exponent, 0.0, where=right)
    np.copyto(ratio, 1.0, where=~right)
    ratio /= cdf
    ratio *= _INV_SQRT_2PI
    np.log(cdf, out=cdf)
    cdf += exponent
    return cdf, ratio


def integrand_mode(labels: IntArray, mean: Array, b: Array) -> tuple[Array, Array]:
    """Where the integrand is largest [t], and its standard deviation there.

    Newton's method: the slope of the integrand's logarithm is convex and falls, so from the left, where
    it starts, it never overshoots. To the left of the mode the integrand is at least as narrow as at
    the mode, to the right at most as wide as √b_y.
    """
    columns = np.arange(len(labels))
    own_mean, own_b = mean[labels, columns], b[labels, columns]
    inverse_root = 1.0 / np.sqrt(b)
    mode, curvature = own_mean, 1.0 / own_b
    for _ in range(_NEWTON_STEPS):
        z = (mode - mean) * inverse_root
        z[labels, columns] = _CERTAIN
        ratio = density_ratio(z)
        curvature = 1.0 / own_b + (ratio * (ratio + z) * inverse_root**2).sum(axis=0)
        slope = (ratio * inverse_root).sum(axis=0) - (mode - own_mean) / own_b
        mode = mode + slope / curvature
    return mode, 1.0 / np.sqrt(curvature)
