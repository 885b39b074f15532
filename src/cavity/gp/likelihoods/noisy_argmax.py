"""The likelihood of many classes: the largest of C latent values wins, each seen through unit noise.

    p(y | f) = P(f_y + ε_y > f_c + ε_c for all c ≠ y),   ε_c ~ N(0, 1) independent,

the multinomial probit. With f_c ~ N(m_c, V_c) independent and b_c = 1 + V_c its evidence is an integral
over one variable, the noisy value t of the labelled class:

    Z = ∫ N(t | m_y, b_y) ∏_{c≠y} Φ((t − m_c)/√b_c) dt.

The integrand is log-concave in t and jointly in the means, so every curvature below is that of a proper
site. With r = φ/Φ and w = r(r + z) at z_c = (t − m_c)/√b_c, and E, Var under the normalised integrand:

    c ≠ y:  α_c = −E[r_c]/√b_c,         β_c = (E[w_c] − Var[r_c])/b_c
    y:      α_y = −Σ α_c,               β_y = E[Σ w_c/b_c] − Var[Σ r_c/√b_c]

where α = ∂ log Z/∂m and β = −∂² log Z/∂m². The integral is a sum over equidistant nodes
around the integrand's mode, as many as its narrowest feature needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import erfcx, ndtr

from cavity.gp.likelihoods.base import Expected, Likelihood, Tilted
from cavity.gp.likelihoods.normal import INV_SQRT_2PI, density_ratio, expected_log_cdf, log_cdf
from cavity.typing import Array, IntArray

_REACH = 5.3
"""Standard deviations that the nodes reach to either side of the mode."""
_NODES = (14, 18, 26, 40, 80, 160, 360)
"""Numbers of nodes to choose from: the smallest that a row's integrand needs, or the last."""
_STEP = 0.8
"""Distance between nodes, in standard deviations of the narrowest factor."""
_SHARED_NODES = tuple(int(43 * 1.5**i) for i in range(16))
"""The same for nodes that all classes of a row share; 18,829 are for √b that differ a thousandfold."""
_NOISE_REACH = 5.5
"""Standard deviations that the nodes of `proba_given_latents` reach."""
_NEWTON_STEPS = 3
"""Steps towards the integrand's mode."""
_CHUNK = 2**15
"""Values of Φ worked on at a time, so that their arrays stay in the caches."""
_CACHED = 100_000
"""The same for `proba_given_latents`."""
_CERTAIN = 40.0
"""Value of z for the labelled class itself: Φ = 1 to the last bit."""


@dataclass(frozen=True)
class NoisyArgmax(Likelihood):
    """The multinomial probit of C classes.

    >>> mean, variance = np.zeros((4, 1)), np.ones((4, 1))
    >>> float(NoisyArgmax(4).tilted(np.array([2]), mean, variance).log_evidence.round(6)[0, 0])
    -1.386294
    """

    n_latents: int
    """Number C of classes, each with its own latent function."""
    translation_invariant: ClassVar[bool] = True

    def tilted(self, labels: IntArray, mean: Array, variance: Array) -> Tilted:
        """Evidence [1, t] and its derivatives [C, t] by the means; see `Likelihood`."""
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

    def log_predictive(self, labels: IntArray, mean: Array, variance: Array) -> Array:
        """Log probabilities [t] of the labels [t]; see `Likelihood`."""
        return np.asarray(self.tilted(labels, mean, variance).log_evidence[0])

    def predict_log_proba(self, mean: Array, variance: Array) -> Array:
        """Log probabilities [t, C] of all classes; see `Likelihood`.

        All C integrals share their nodes, for their integrands share all factors but one. An improbable
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

    def decision_score(self, mean: Array, variance: Array) -> Array:
        """The log probabilities [t, C]; see `Likelihood`."""
        return self.predict_log_proba(mean, variance)

    def proba_given_latents(self, f: Array) -> Array:
        """p(y | f) = ∫ φ(t − f_y) ∏_{c≠y} Φ(t − f_c) dt [C, t] at latent values f [C, t].

        A trapezoidal sum over nodes around the largest f, to 1e-6 for up to a hundred classes. It is
        faster than `predict_log_proba`: without variance the noise of all classes is the same, so that
        a few nodes do.
        """
        spacing = 0.75 / (1.0 + 0.27 * np.log(len(f)))
        nodes = np.arange(-_NOISE_REACH, _NOISE_REACH + spacing, spacing)[:, None]
        p = np.empty_like(f)
        for part in np.array_split(np.arange(f.shape[1]), 1 + f.size * len(nodes) // _CACHED):
            z = nodes + (f[:, part].max(axis=0) - f[:, part])[:, None]  # [C, J, t]
            cdf = ndtr(z)
            others = cdf.prod(axis=0) / cdf
            p[:, part] = np.einsum("cjk,cjk->ck", np.exp(-0.5 * z * z), others)
        p /= p.sum(axis=0)
        return p


def _by_need(needed: Array, n_nodes: tuple[int, ...], n_latents: int) -> Iterator[tuple[IntArray, int]]:
    """Groups of rows that need about the same number of nodes, and that number."""
    kind = np.minimum(np.searchsorted(n_nodes, needed), len(n_nodes) - 1)
    for i in np.unique(kind):
        rows = np.flatnonzero(kind == i)
        size = max(1, _CHUNK // (n_latents * n_nodes[i]))
        for first in range(0, len(rows), size):
            yield rows[first : first + size], n_nodes[i]


def _shared_range(mean: Array, b: Array) -> tuple[Array, Array]:
    """Start and end [t] of the interval that holds the integrands of all classes; b = 1 + variance."""
    deviation = np.sqrt(b)
    columns, top = np.arange(mean.shape[1]), mean.argmax(axis=0)
    # Against the top class alone, class c wins at the latest from this mean of the two on.
    towards_top = b / (b + b[top, columns])
    likeliest = mean + towards_top * (mean[top, columns] - mean)
    start = (likeliest - _REACH * deviation).min(axis=0)
    stop = (likeliest + _REACH * deviation).max(axis=0)
    return start, stop


def _log_probabilities(mean: Array, b: Array, t: Array) -> Array:
    """Log probabilities [t, C], from equidistant nodes t [J, t]; b = 1 + variance."""
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
    mean_curvature = np.einsum("cjt,jt->ct", z, mass)
    pull = np.einsum("cjt,ct->jt", ratio, inverse_root)
    ratio -= mean_ratio[:, None]
    spread = np.einsum("cjt,cjt,jt->ct", ratio, ratio, mass)
    slope = -mean_ratio * inverse_root
    curvature = (mean_curvature - spread) * inverse_root**2

    slope[labels, columns] = -slope.sum(axis=0)
    drift = pull - slope[labels, columns]
    curvature[labels, columns] = (mean_curvature * inverse_root**2).sum(axis=0)
    curvature[labels, columns] -= (mass * drift**2).sum(axis=0)
    curvature = np.clip(curvature, 0.0, inverse_root**2)
    return np.minimum(log_evidence, 0.0)[None], slope, curvature


def _log_cdf_and_ratio(z: Array) -> tuple[Array, Array]:
    """Log Φ(z), for z > 0 with a small absolute error only, and φ(z)/Φ(z), in few passes over z."""
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
    ratio *= INV_SQRT_2PI
    np.log(cdf, out=cdf)
    cdf += exponent
    return cdf, ratio


def integrand_mode(labels: IntArray, mean: Array, b: Array) -> tuple[Array, Array]:
    """The integrand's mode [t], and its standard deviation there.

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
