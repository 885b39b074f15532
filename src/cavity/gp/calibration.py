"""Calibrate predictions by two numbers, fitted to labels of rows that predictions have not used.

The latent value of a row is predicted with mean e and variance v + s: v is the posterior variance of
what the inducing points say of the row, and s is the residual variance, which they leave unexplained.
The scale b says which part of the residual really is uncertainty of a prediction. The inverse
temperature c is a factor on the latent function, for functions that are too flat or too steep. So the
calibrated prediction has the mean c·e and the variance c²(v + b·s). The mean e is that of the whole
latent value, offset or mean function included. For the probit

    p(y | x) = Φ(y·c·e/√(1 + c²(v + b·s))).

With Z = E[p(y | f)] under independent f_c ~ N(m_c, V_c), a likelihood gives α_c = ∂ log Z/∂m_c and
γ_c = −∂²Z/∂m_c²/Z. A normal density solves the heat equation, ∂Z/∂V_c = ½ ∂²Z/∂m_c², and so

    ∂ log Z/∂ log c = Σ_c (α_c·m_c − γ_c·V_c),      ∂ log Z/∂ log b = −½ Σ_c γ_c·c²·b·s_c

are exact for every likelihood, at the price of one evaluation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import Bounds, minimize

from cavity.errors import NumericalError
from cavity.gp.likelihoods import Likelihood
from cavity.typing import Array, IntArray

MOST_VALUES = 20_000
"""Most latent values, rows times latent functions, that the numbers are fitted to: the integrals of many
classes are slow. Two numbers fitted to n rows cost about 1/n nats a row against the best numbers."""
FEWEST_ROWS = 1_000
"""Rows that they are fitted to in any case, if there are as many."""
SMALLEST_CENTRE = float(np.exp(-4.0))
"""Smallest centre of the prior on b. Training with a residual scale κ assumes κ·s, and the prior is
centred there; κ = 0 has no logarithm. It is replaced by e⁻⁴ = 0.018: training
without the residual was seen to need a b between 0.004 and 0.04."""
_DEVIATIONS = np.array([0.5, 1.0])
"""Standard deviations of the normal priors on log c and log b. Labels determine c well, and b badly: of
rows whose probability is near 0 or 1, they do not show the error of the latent mean. Fits of the
benchmarks' sets had a log b within 1.5 of the centre, with a standard deviation of 0.6."""
_REACH = 3.0
"""Prior deviations within which the numbers are searched, which keeps them finite for any rows."""
LOO_PASSES = 9
"""Number of values of c whose leave-one-out scores are compared, at the price of a pass over the rows
each."""
_NEWTON_STEPS = 2
"""Steps of Newton's method after the search. They make the result exact, so that a difference in
rounding, by which the search may end a step earlier or later, stays a difference in rounding."""
_DIFFERENCE = 1e-4
"""Distance of the gradients whose differences are the Hessian of these steps."""


class LatentParts(NamedTuple):
    """Uncalibrated moments of latent functions at n rows, in the parts that calibration needs.

    The white noise that a kernel asks for is part of the variance.
    """

    mean: Array
    """[C, n]: e, the means, offsets included."""
    variance: Array
    """[C, n]: v, the variances of what the inducing points say, plus the kernel's white noise."""
    residual: Array
    """[n] or [C, n]: s ≥ 0, the prior variance that the inducing points leave unexplained."""

    def of(self, rows: slice | IntArray) -> LatentParts:
        """The parts of some rows."""
        return LatentParts(*(part[..., rows] for part in self))


@dataclass(frozen=True)
class Calibration:
    """The numbers c and b of a calibrated prediction: latent mean c·e, latent variance c²(v + b·s)."""

    inverse_temperature: float = 1.0
    """The factor c > 0 on latent functions."""
    residual_variance_scale: float = 1.0
    """The factor b ≥ 0 on the residual variance."""

    def moments(self, parts: LatentParts) -> tuple[Array, Array]:
        """Calibrated mean and variance [C, n] of latent functions.

        >>> mean, variance = Calibration(2.0, 0.5).moments(LatentParts(*np.ones((3, 1, 1))))
        >>> float(mean[0, 0]), float(variance[0, 0])
        (2.0, 6.0)
        """
        c, b = self.inverse_temperature, self.residual_variance_scale
        return c * parts.mean, c**2 * (parts.variance + b * parts.residual)


class LogLoss(NamedTuple):
    """Mean negative log probability of labels, in nats a row, and its standard error."""

    mean: float
    standard_error: float

    @classmethod
    def of(cls, losses: Array, weight: Array) -> LogLoss:
        """The mean of some losses [n] with weights [n]."""
        total = float(weight.sum())
        average = float(weight @ losses) / total
        return cls(average, float(np.sqrt(weight @ (losses - average) ** 2)) / total)


def fit_calibration(
    likelihood: Likelihood,
    parts: LatentParts,
    labels: IntArray,
    weight: Array | None = None,
    residual_scale: float = 1.0,
) -> Calibration:
    """The numbers c and b that make held-out labels most probable, under a weak prior.

    They maximise Σ w log p(y | c·e, c²(v + b·s)) − ½(2 log c)² − ½ log²(b/κ), where κ is the residual
    scale of training, but at least `SMALLEST_CENTRE`. The result is never worse than (1, κ). Without
    rows it is (1, κ).

    parts: those of the held-out rows; labels: class codes [n]; weight: [n], a row counts w times. At
    most `MOST_VALUES`/C rows are used, evenly spaced, or `FEWEST_ROWS` if that is more.

    >>> from cavity.gp.likelihoods import Probit
    >>> rng = np.random.default_rng(0)
    >>> e, v, s = rng.normal(size=(1, 4000)), np.full((1, 4000), 0.1), np.zeros(4000)
    >>> labels = (2.0 * e[0] + np.sqrt(1.4) * rng.normal(size=4000) > 0.0).astype(int)
    >>> round(fit_calibration(Probit(), LatentParts(e, v, s), labels).inverse_temperature, 1)
    2.0
    """
    n_latents, n = parts.mean.shape
    most = max(MOST_VALUES // n_latents, FEWEST_ROWS)
    chosen = slice(None) if n <= most else np.linspace(0, n - 1, most).round().astype(np.int64)
    w = np.ones(n) if weight is None else weight
    objective = PenalisedLogLoss(likelihood, parts.of(chosen), labels[chosen], w[chosen], residual_scale)
    if not np.isfinite(objective(objective.centre)[0]):
        raise NumericalError(
            "calibration failed, because the log probabilities of held-out labels are not finite; pass "
            "validation_fraction=None, or a kernel with tighter bounds"
        )
    return objective.calibration(_minimum(objective))


def cross_fitted_log_loss(
    likelihood: Likelihood,
    parts: LatentParts,
    labels: IntArray,
    weight: Array | None = None,
    residual_scale: float = 1.0,
) -> LogLoss:
    """Score of calibrated predictions on held-out rows that also choose the calibration.

    The numbers are fitted to every other row and score the rows between, both ways, so that no label is
    scored with numbers that it has helped to choose. Parameters are those of `fit_calibration`. The mean
    is over all rows; the standard error is that of a mean of Σw independent rows.
    """
    w = np.ones(len(labels)) if weight is None else weight
    return LogLoss.of(cross_fitted_losses(likelihood, parts, labels, w, residual_scale), w)


def cross_fitted_losses(
    likelihood: Likelihood,
    parts: LatentParts,
    labels: IntArray,
    weight: Array,
    residual_scale: float = 1.0,
) -> Array:
    """The losses [n] of which `cross_fitted_log_loss` is the mean, one for each row."""
    if not float(weight.sum()) > 0.0:
        raise ValueError(
            "there are no held-out rows of positive weight to score; set validation_fraction"
        )
    loss = np.empty(len(labels))
    halves = slice(0, None, 2), slice(1, None, 2)
    for fitted, scored in (halves, halves[::-1]):
        calibration = fit_calibration(
            likelihood, parts.of(fitted), labels[fitted], weight[fitted], residual_scale
        )
        moments = calibration.moments(parts.of(scored))
        loss[scored] = -likelihood.log_predictive(labels[scored], *moments)
    return loss


def leave_one_out_temperature(log_probability: Callable[[float], float]) -> float:
    """The inverse temperature c that makes labels most probable with their rows left out.

    The best of some values of log c is moved to the top of the parabola through it and its neighbours:
    a difference in rounding then stays one in the result.

    It maximises log_probability(c) − ½(2 log c)², with the prior of `fit_calibration`.

    log_probability: Σ w log p(y | the other rows) at c.

    >>> round(leave_one_out_temperature(lambda c: -1e3 * np.log(c / 1.3) ** 2), 2)
    1.3
    """
    deviation = float(_DEVIATIONS[0])
    logs, step = np.linspace(-_REACH * deviation, _REACH * deviation, LOO_PASSES, retstep=True)
    values = np.array([log_probability(float(np.exp(x))) for x in logs])
    values -= 0.5 * (logs / deviation) ** 2
    best = int(np.clip(np.argmax(values), 1, len(logs) - 2))
    left, top, right = values[best - 1 : best + 2]
    bend = 2.0 * top - left - right
    moved = 0.5 * (right - left) / bend if 0.0 < bend < np.inf else 0.0
    return float(np.exp(logs[best] + step * np.clip(moved, -1.0, 1.0)))


class PenalisedLogLoss:
    """What `fit_calibration` minimises, as a function of (log c, log b), with its gradient.

    It is divided by the weight of the rows, so that its size does not depend on their number.
    """

    def __init__(
        self,
        likelihood: Likelihood,
        parts: LatentParts,
        labels: IntArray,
        weight: Array,
        residual_scale: float,
    ) -> None:
        self._likelihood = likelihood
        self._parts, self._labels, self._weight = parts, labels, weight
        self._total = max(float(weight.sum()), 1.0)
        self.centre = np.array([0.0, np.log(max(residual_scale, SMALLEST_CENTRE))])
        """Centre of the prior, (log 1, log κ)."""

    @staticmethod
    def calibration(x: Array) -> Calibration:
        """The calibration at x = (log c, log b)."""
        return Calibration(*(float(value) for value in np.exp(x)))

    def __call__(self, x: Array) -> tuple[float, Array]:
        """Value and gradient [2] at x = (log c, log b)."""
        mean, variance = self.calibration(x).moments(self._parts)
        at = self._likelihood.tilted(self._labels, mean, variance)
        by_log_c = (at.slope * mean - at.gamma * variance).sum(axis=0)
        by_log_b = -0.5 * np.exp(2.0 * x[0] + x[1]) * (at.gamma * self._parts.residual).sum(axis=0)
        steps = (x - self.centre) / _DEVIATIONS
        value = 0.5 * float(steps @ steps) - float(self._weight @ at.log_evidence[0])
        gradient = steps / _DEVIATIONS - self._weight @ np.stack([by_log_c, by_log_b], axis=1)
        return value / self._total, gradient / self._total


def _minimum(objective: PenalisedLogLoss) -> Array:
    """Where the objective is smallest near the centre of its prior; never above its value there."""
    centre = objective.centre
    lower, upper = centre - _REACH * _DEVIATIONS, centre + _REACH * _DEVIATIONS
    search = {"ftol": 1e-8, "gtol": 1e-8}
    found = minimize(
        objective, centre, jac=True, method="L-BFGS-B", bounds=Bounds(lower, upper), options=search
    )
    x: Array = found.x
    value, gradient = objective(x)
    for _ in range(_NEWTON_STEPS):
        moved = [objective(x + step)[1] for step in _DIFFERENCE * np.eye(2)]
        hessian = (np.stack(moved) - gradient) / _DIFFERENCE
        proposed = np.clip(x - np.linalg.solve(0.5 * (hessian + hessian.T), gradient), lower, upper)
        there = objective(proposed)
        if not there[0] <= value + 1e-12:  # the sums are rounded
            break
        x, (value, gradient) = proposed, there
    return x
