"""More inducing points for predicting than for learning.

Kernel parameters are learned well with few inducing points, and steps with few points are cheap. After
training, the posterior can be computed with more points by sweeps alone, at the kernel that was learned.
The points of the training stay, and others are added among the rows.

Whether that is worth it is the last question of a race. It is decided by the held-out rows: a larger
number of points makes predictions slower, so it must be better by more than a standard error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from cavity.engines.protocol import Engine
from cavity.gp.calibration import LogLoss
from cavity.gp.inducing import initial_inducing_points, sample_size, starting_rows
from cavity.gp.prior import Prior
from cavity.inference.converge import POLISHING_TOL, FixedPoint, converge
from cavity.inference.held_out import HeldOutMoments
from cavity.inference.history import Progress
from cavity.inference.rule import Rule
from cavity.inference.sweep import SweepOptions
from cavity.memory import available_bytes
from cavity.typing import Array

SWEEPS = 10
"""Sweeps with more points at most: the sites of the rows are known already, up to the new points."""
_LAST_SWEEPS = 4
"""Passes over the rows that follow with the number of points that is kept, about."""
_COPIES = 12
"""Matrices [k, k] for each latent function that a fit with k points holds, about."""


class MorePoints(NamedTuple):
    """A posterior with more points, and the engine with the sites of its rows."""

    n_points: int
    point: FixedPoint
    engine: Engine


def later_work(m: int, n_rows: int, n_latents: int, wanted: int | None = None) -> tuple[float, ...]:
    """What more points would cost, in passes over the rows with m points, smallest first.

    wanted: the number of points that is set; None tries one after the other, and the costs add up.

    >>> later_work(100, 1_000_000, 2)[:2] > (4 * SWEEPS, 16 * SWEEPS)
    True
    """
    if wanted is not None:
        return (_passes(wanted, m, n_rows),)
    costs = [_passes(k, m, n_rows) for k in numbers_of_points(m, n_rows, n_latents)]
    return tuple(np.cumsum(costs).tolist())


def numbers_of_points(m: int, n_rows: int, n_latents: int) -> Iterator[int]:
    """Numbers of points to try after training with m: they double, up to the rows and the memory."""
    available = available_bytes()
    k = 2 * m
    while k <= n_rows and (available is None or 8 * _COPIES * n_latents * k**2 <= available):
        yield k
        k *= 2


def best_number_of_points(
    engine: Engine,
    rule: Rule,
    start: FixedPoint,
    options: SweepOptions,
    seed: int,
    progress: Progress,
    passes: float,
    has_time: Callable[[float], bool],
) -> MorePoints | None:
    """The best posterior with more points by the held-out rows; None if fewer are as good.

    passes: most passes over the rows that all trials may cost together, in passes with the present
    points; has_time: whether there is time for a number of such passes.
    """
    m, n_rows, scale = len(start.prior.Z), engine.n_rows, options.residual_scale
    losses, counts = _losses(engine, rule, start, scale)
    best: MorePoints | None = None
    for k in numbers_of_points(m, n_rows, rule.n_latents):
        cost = _passes(k, m, n_rows)
        passes -= cost
        if passes < 0.0 or not has_time(cost):
            break
        found = with_points(engine, rule, start, options, k, seed)
        if found.point.interrupted:
            raise KeyboardInterrupt
        new, _ = _losses(engine, rule, found.point, scale)
        gain = LogLoss.of(losses - new, counts)
        progress.stage(
            f"race: held-out NLL {LogLoss.of(new, counts).mean:.4f} with {k} inducing points for "
            f"predictions, better by {gain.mean:.4f} ± {gain.standard_error:.4f}"
        )
        if gain.mean > gain.standard_error:
            best, losses = found, new
    return best


def with_points(
    engine: Engine,
    rule: Rule,
    start: FixedPoint,
    options: SweepOptions,
    n_points: int,
    seed: int,
    has_time: Callable[[float], bool] | None = None,
) -> MorePoints:
    """The posterior with so many inducing points at the same kernel, from the sites of an engine.

    The engine keeps its own sites, so that the result does not depend on numbers tried before.
    """
    prior = start.prior
    Z = _extended(engine, prior, n_points, np.random.RandomState(seed))
    another = engine.fresh()
    another.adopt(engine)
    point = converge(
        another,
        Prior(prior.kernel, Z, prior.dtype),
        rule,
        tol=POLISHING_TOL,
        options=replace(options, damping=1.0),
        max_sweeps=SWEEPS,
        has_time=has_time,
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


def _passes(k: int, m: int, n_rows: int) -> float:
    """What k points cost, in passes over the rows with m points: O(nk²), and O(k³) for the algebra."""
    return (SWEEPS + _LAST_SWEEPS) * (k**2 * (n_rows + k)) / (m**2 * (n_rows + m))
