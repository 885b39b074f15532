"""More inducing points for predicting than for learning.

Kernel parameters are learned well with few inducing points, and steps with few points are cheap. After
training, the posterior can be computed with more points by sweeps alone, at the kernel that was learned.
The points of the training stay, and others are added among the rows.

Whether that is worth it is the last question of a race. It is decided by the held-out rows: a larger
number of points makes predictions slower, so it must be better by more than a standard error, and by
more than a hundredth.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from cavity.engines.protocol import Engine
from cavity.gp.calibration import LogLoss
from cavity.gp.inducing import initial_inducing_points, sample_size, starting_rows
from cavity.gp.prior import Prior
from cavity.inference.clock import Clock
from cavity.inference.converge import EXACT_SWEEPS_TOL, FixedPoint, HeldOutMoments, converge
from cavity.inference.history import Progress
from cavity.inference.rule import Rule
from cavity.inference.sweep import SweepOptions
from cavity.memory import available_bytes
from cavity.typing import Array

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
