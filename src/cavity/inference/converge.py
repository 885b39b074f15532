"""How a fit ends: sweeps over all rows until the sites stop changing, and scores on held-out rows.

Kernel and inducing points are fixed in these sweeps. Held-out rows score states and configurations, and
calibrate the predictions.

The posterior may also be computed with more inducing points than were used for learning. Kernel
parameters are learned well with few points, and steps with few points are cheap; sweeps alone, at the
kernel that was learned, then give the posterior of many. The points of the training stay, and others are
added among the rows. Held-out rows decide whether that is worth it: more points make predictions slower,
so they must be better by more than a standard error, and by more than a hundredth.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from cavity.engines.protocol import Engine
from cavity.errors import NumericalError
from cavity.gp.calibration import Calibration, LatentParts, LogLoss, cross_fitted_losses, fit_calibration
from cavity.gp.inducing import initial_inducing_points, sample_size, starting_rows
from cavity.gp.likelihoods import Likelihood
from cavity.gp.model import Model
from cavity.gp.posterior import NaturalParameters, Posterior
from cavity.gp.prior import Prior
from cavity.gp.tiles import Sums
from cavity.inference.history import Clock, Progress, StepInfo
from cavity.inference.rule import Rule
from cavity.inference.sweep import EXACT_LEVERAGE, LAGGING_LEVERAGE, SiteSum, Sweep, SweepOptions
from cavity.inference.updates import objective
from cavity.memory import available_bytes
from cavity.typing import Array, IntArray


class HeldOutScore(NamedTuple):
    """How probable the labels of held-out rows are, after calibration on other held-out rows."""

    log_loss: float
    """Mean negative log probability of a label, in nats."""
    standard_error: float
    n_rows: int

    def __str__(self) -> str:
        return f"held-out NLL {self.log_loss:.4f} ± {self.standard_error:.4f} ({self.n_rows:,} rows)"


NOT_SCORED = HeldOutScore(np.nan, np.nan, 0)
"""The score if no rows are held out."""


class HeldOutMoments(NamedTuple):
    """Latent moments of a state at held-out rows, with the labels and weights of these rows."""

    likelihood: Likelihood
    parts: LatentParts
    labels: IntArray
    """[n]: class codes."""
    counts: Array
    """[n]: weight of each row in the score and the calibration."""

    @classmethod
    def of(
        cls,
        engine: Engine,
        likelihood: Likelihood,
        prior: Prior,
        posterior: Posterior,
        most: int | None = None,
    ) -> HeldOutMoments:
        """Moments at the engine's held-out rows, or at the first `most` of them."""
        assert engine.held_out is not None
        rows, offset, counts = engine.held_out.rows, engine.held_out.offset, engine.held_out.counts
        if most is not None and most < len(rows.labels):
            rows, offset = rows.take(slice(most)), None if offset is None else offset[:most]
            counts = counts[:most]
        model = Model.from_prior(prior, posterior, engine.scaling, likelihood)
        parts = model.latent_parts(
            rows.X, engine.threads.map, offset=None if offset is None else offset.T
        )
        return cls(likelihood, parts, rows.labels, counts)

    def calibration(self, residual_scale: float) -> Calibration:
        """The two numbers that make these labels most probable."""
        return fit_calibration(self.likelihood, self.parts, self.labels, self.counts, residual_scale)

    def log_loss(self, calibration: Calibration) -> float:
        """Mean negative log probability of these labels with a calibration."""
        moments = calibration.moments(self.parts)
        log_proba = self.likelihood.log_predictive(self.labels, *moments)
        return -float(np.average(log_proba, weights=self.counts))

    def score(self, residual_scale: float) -> HeldOutScore:
        """The mean log loss of these labels, each calibrated on the other half of the rows."""
        return self.score_of(self.losses(residual_scale))

    def score_of(self, losses: Array) -> HeldOutScore:
        """The score of some losses [n] of these labels."""
        found = LogLoss.of(losses, self.counts)
        return HeldOutScore(found.mean, found.standard_error, len(self.labels))

    def losses(self, residual_scale: float) -> Array:
        """The losses [n] of which the score is the mean."""
        return cross_fitted_losses(self.likelihood, self.parts, self.labels, self.counts, residual_scale)


class FixedPoint(NamedTuple):
    """Where the sweeps have ended: a prior, the posterior under it, and how good they are."""

    prior: Prior
    posterior: Posterior
    objective: float
    """log Z_q or the ELBO; NaN if no sweep began with a q that is the sum of the sites."""
    mean_log_predictive: float
    """Mean leave-one-out log probability of a row's label."""
    n_sweeps: int
    change: float
    """Root mean square change that an undamped sweep would still make, in units of the marginals."""
    converged: bool
    interrupted: bool = False
    """Whether the user has stopped the sweeps."""
    calibration: Calibration = Calibration()
    """The two numbers of the predictions."""
    seconds_per_sweep: float | None = None
    """Seconds of the last sweep, if there was any."""


class FitResult(NamedTuple):
    """The result of a training run."""

    point: FixedPoint
    """The final parameters and posterior."""
    n_iter: int
    converged: bool
    interrupted: bool = False
    """Whether the user has stopped the run."""
    validation: HeldOutScore | None = None
    """The score on held-out rows, if there are any."""
    engine: Engine | None = None
    """The engine of the rows that are in the posterior; None is the one of the problem."""
    n_predicting: int | None = None
    """Number of inducing points that were chosen for predictions; None is that of the training."""
    stuck: bool = False
    """Whether L-BFGS ended where the gradient is not zero, because its line search failed."""


_COUPLED_DAMPING = 0.6
"""Largest damping when a row has several sites, since each is refined as if the others were fixed."""
_PLAIN = SweepOptions()
EXACT_SWEEPS_TOL = 1e-4
"""Tolerance of the sweeps after training: smaller changes of the sites do not matter to predictions."""


def converge(
    engine: Engine,
    prior: Prior,
    rule: Rule,
    *,
    options: SweepOptions = _PLAIN,
    tol: float = 1e-6,
    max_sweeps: int = 100,
    start: NaturalParameters | None = None,
    callback: Callable[[FixedPoint], object] | None = None,
    clock: Clock | None = None,
    passes_after: int = 0,
) -> FixedPoint:
    """Iterate the sites of an engine's rows to the fixed point of a rule.

    Every sweep begins with the q that is the sum of the sites under this prior, so leverage and
    objective are exact. Only the first sweep may begin with another q, `start`. The damping begins with
    that of the options; it is halved when a sweep overshoots and grows by a tenth when it does not.
    `callback` is called after every sweep. Another sweep begins only if the clock has time for it, and
    for some `passes_after` it. Ctrl-C ends the sweeps, unless nothing is known about the sites yet.
    """
    clock = Clock() if clock is None else clock
    point, last_change, leverage = None, np.inf, EXACT_LEVERAGE
    most = 1.0 if rule.n_latents == 1 else _COUPLED_DAMPING
    damping = min(options.damping, most)
    options = replace(options, gradient=False, trace_penalty=0.0)  # the objective is the evidence
    naturals = start
    with clock.until_interrupted() as block:
        if naturals is None:
            naturals = engine.run(SiteSum(prior)).naturals
        else:
            leverage = LAGGING_LEVERAGE
        for n_sweeps in range(1, max_sweeps + 1):
            begun = clock.seconds
            now = replace(options, damping=damping, max_leverage=leverage)
            point, sums = _sweep(engine, prior, rule, naturals, now, n_sweeps, tol)
            naturals, leverage = sums.naturals, EXACT_LEVERAGE
            point = point._replace(seconds_per_sweep=clock.seconds - begun)
            if callback is not None:
                callback(point)
            engine.commit()
            if point.converged:
                return point
            overshot = point.change > last_change
            damping = max(0.05, 0.5 * damping) if overshot else min(most, 1.1 * damping)
            last_change = point.change
            if not clock.has_time((1 + passes_after) * (clock.seconds - begun)):
                break
    if block.interruption is not None and (naturals is None or not naturals.precision.any()):
        raise block.interruption  # nothing has been learned yet
    assert naturals is not None
    if point is None:
        q = naturals.posterior()
        return FixedPoint(prior, q, np.nan, np.nan, 0, np.inf, converged=False, interrupted=True)
    return _as_far_as_known(point, naturals, start)._replace(interrupted=block.interrupted)


def _as_far_as_known(
    point: FixedPoint, found: NaturalParameters, start: NaturalParameters | None
) -> FixedPoint:
    """The result if no more sweeps are made: the point of the last sweep, with its new sites `found`."""
    if point.n_sweeps == 1 and not point.posterior.naturals.precision.any():
        # A single sweep began without sites: those that it has found are the best posterior there is.
        return point._replace(posterior=found.posterior(), objective=np.nan)
    if point.n_sweeps == 1 and start is not None:
        # The terms of the objective belong to the rows' sites, and q was not the sum of these.
        return point._replace(objective=np.nan)
    return point


def record_sweep(progress: Progress, point: FixedPoint) -> None:
    """Record a sweep as an iteration of the history."""
    info = StepInfo(point.objective, point.mean_log_predictive, 0.0, point.change)
    progress.record(info, epochs=float(point.n_sweeps))


def _sweep(
    engine: Engine,
    prior: Prior,
    rule: Rule,
    naturals: NaturalParameters,
    options: SweepOptions,
    n_sweeps: int,
    tol: float,
) -> tuple[FixedPoint, Sums]:
    posterior = naturals.posterior(engine.threads.map)
    sums = engine.run(Sweep(prior, posterior, rule, options))
    change = float(np.sqrt(sums.site_change / sums.weight)) / options.damping
    value = objective(sums, posterior, rule)
    if not np.isfinite(value + change):
        raise NumericalError(
            "the sweeps at fixed kernel produced a non-finite objective; try a smaller damping, "
            'tighter kernel bounds, scaling="standard" or, if weights are far below 1, larger ones'
        )
    score = sums.log_predictive / sums.weight
    return FixedPoint(prior, posterior, value, score, n_sweeps, change, change <= tol), sums


def score_fixed_posterior(
    engine: Engine,
    prior: Prior,
    posterior: Posterior,
    rule: Rule,
    clock: Clock | None = None,
) -> FixedPoint:
    """Score a posterior that does not change; the rows are given the sites that it implies.

    A first sweep finds the sites. A second one, if the clock has time for it, leaves them out to score
    the rows.
    """
    clock = Clock() if clock is None else clock
    leverage = LAGGING_LEVERAGE
    point = FixedPoint(prior, posterior, np.nan, np.nan, 0, np.nan, converged=True)
    with clock.until_interrupted() as block:
        for n_sweeps in (1, 2):
            begun = clock.seconds
            options = SweepOptions(1.0, leverage, gradient=False)
            sums = engine.run(Sweep(prior, posterior, rule, options))
            engine.commit()
            leverage = _credible_leverage(sums.naturals, posterior)
            point = point._replace(
                objective=objective(sums, posterior, rule),
                mean_log_predictive=sums.log_predictive / sums.weight,
                n_sweeps=n_sweeps,
                change=float(np.sqrt(sums.site_change / sums.weight)),
            )
            if not clock.has_time(clock.seconds - begun):
                break
    return point._replace(interrupted=block.interrupted)


def _credible_leverage(sites: NaturalParameters, posterior: Posterior) -> float:
    """Bound on a row's leverage ν̃v under a q that is not, but may be close to, the sum of the sites.

    If q is up to 1 + δ times as wide as the sum of the sites, so is ν̃v, and 1 − ν̃v is only known up to
    δ. If δ is large, a row would seem to contribute more to q than q contains.
    """
    widest = 0.0
    surplus = sites.precision - posterior.naturals.precision
    for D, covariance in zip(surplus, posterior.covariance, strict=True):
        values, vectors = np.linalg.eigh(covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        widest = max(widest, float(np.linalg.eigvalsh(root.T @ D @ root)[-1]))
    return float(np.clip(1.0 - widest, LAGGING_LEVERAGE, EXACT_LEVERAGE))


SWEEPS = 6
"""Sweeps with more points at most: the sites of the rows are known already, up to the new points."""
_PASSES = SWEEPS + 3
"""Passes over the rows that more points cost, with those that let the held-out rows take part."""
WORTH = 0.01
"""Share of the held-out NLL that more points must save: all predictions pay for them."""
_COPIES = 12
"""Matrices [k, k] for each latent function that a fit with k points holds, about."""


class MorePoints(NamedTuple):
    """A posterior with more points, and the engine with the sites of its rows."""

    n_points: int
    point: FixedPoint
    engine: Engine


def least_work(m: int, n_predicting: int | None) -> float:
    """What more points cost at least, in passes over the rows with m points.

    n_predicting: their number; None means twice as many, since a few more are not worth a trial.

    >>> least_work(100, None), least_work(100, 400)
    (36.0, 144.0)
    """
    return _PASSES * ((n_predicting or 2 * m) / m) ** 2


def affordable_points(m: int, n_rows: int, n_latents: int, passes: float) -> int | None:
    """How many points a number of passes with m points pays for; None if it is less than twice m.

    A pass over n rows with m points is O(nm²).

    >>> affordable_points(100, 10_000, 1, passes=90.0), affordable_points(100, 10_000, 1, passes=30.0)
    (316, None)
    """
    most = float(n_rows)
    available = available_bytes()
    if available is not None:
        most = min(most, math.sqrt(available / (8 * _COPIES * n_latents)))
    number = int(min(most, m * math.sqrt(max(0.0, passes) / _PASSES)))
    return number if number >= 2 * m else None


def chosen_points(
    engine: Engine,
    rule: Rule,
    start: FixedPoint,
    options: SweepOptions,
    seed: int,
    progress: Progress,
    passes: float,
) -> MorePoints | None:
    """The posterior with more points, if the held-out rows prefer it; None if they do not.

    passes: what it may cost, in passes over the rows with the present points.
    """
    m, scale = len(start.prior.Z), options.residual_scale
    number = affordable_points(m, engine.n_rows, rule.n_latents, passes)
    if number is None:
        return None
    found = with_points(engine, rule, start, options, number, seed, progress)
    if found.point.interrupted:
        return None
    before, counts = _losses(engine, rule, start, scale)
    now, _ = _losses(engine, rule, found.point, scale)
    gain = LogLoss.of(before - now, counts)
    progress.stage(
        f"race: held-out NLL {LogLoss.of(now, counts).mean:.4f} with {number} inducing points for "
        f"predictions, better by {gain.mean:.4f} ± {gain.standard_error:.4f} than with {m}"
    )
    needed = max(gain.standard_error, WORTH * LogLoss.of(before, counts).mean)
    return found if gain.mean > needed else None


def with_points(
    engine: Engine,
    rule: Rule,
    start: FixedPoint,
    options: SweepOptions,
    n_points: int,
    seed: int,
    clock: Clock,
) -> MorePoints:
    """The posterior with so many inducing points at the same kernel, from the sites of an engine.

    The engine keeps its own sites, for the case that fewer points are as good.
    """
    prior = start.prior
    Z = _extended(engine, prior, n_points, np.random.RandomState(seed))
    another = engine.fresh()
    another.adopt(engine)
    point = converge(
        another,
        Prior(prior.kernel, Z, prior.dtype),
        rule,
        tol=EXACT_SWEEPS_TOL,
        options=replace(options, damping=1.0),
        max_sweeps=SWEEPS,
        clock=clock,
    )
    return MorePoints(n_points, point, another)


def _extended(engine: Engine, prior: Prior, n_points: int, rng: np.random.RandomState) -> Array:
    """The inducing points of a prior and others [n_points, d]: centres of clusters of the rows."""
    draw = np.random.default_rng(rng.randint(2**31))
    size = sample_size(n_points, n_features=engine.n_features)
    raw, weight = starting_rows(engine.source, size, draw)
    X = engine.scaling.apply(raw, np.dtype(np.float64))
    more = n_points - len(prior.Z)
    return np.vstack([prior.Z, initial_inducing_points(X, weight, more, "kmeans", prior.kernel, rng)])


def _losses(engine: Engine, rule: Rule, point: FixedPoint, scale: float) -> tuple[Array, Array]:
    moments = HeldOutMoments.of(engine, rule.likelihood, point.prior, point.posterior)
    return moments.losses(scale), moments.counts
