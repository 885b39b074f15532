"""EP to convergence at every setting of the parameters, then one gradient: GFITC's schedule."""

from __future__ import annotations

import numpy as np

from cavity.problem import Problem
from cavity.schedules.converged import POLISHING_TOL, converge
from cavity.schedules.evaluation import gradient, objective
from cavity.schedules.lbfgs import Evaluated, maximize
from cavity.schedules.plan import Outcome
from cavity.schedules.progress import Progress, StepInfo
from cavity.sweep import SweepOptions
from cavity.typing import Array

_EP_TOL = 1e-6
"""Site change at which the evidence is stationary enough for a line search."""


def fit_outer(
    problem: Problem, progress: Progress, *, max_iter: int, tol: float, max_seconds: float = np.inf
) -> Outcome:
    """Maximise the evidence over the parameters, q at its fixed point throughout.

    The sites of one evaluation are the start of the next, so most evaluations take few sweeps. When the
    seconds are over, each of what is still to be done, the first evaluation and EP at the best
    parameters, has one sweep.
    """
    engine, hyperprior = problem.engine, problem.hyperprior

    def time_for(taken: float) -> bool:
        return progress.seconds + taken <= max_seconds

    def evaluate(x: Array) -> Evaluated:
        prior = problem.prior(x)
        point = converge(engine, prior, tol=_EP_TOL, time_for=time_for)
        if point.interrupted:
            raise KeyboardInterrupt
        sums = engine.sweep(prior, point.posterior, SweepOptions(damping=0.0))
        slope = problem.space.pack_gradient(gradient(sums, prior, point.posterior))
        slope = slope + hyperprior.gradient(x)
        value = point.objective
        if np.isnan(value):  # there was time for one sweep only
            value = objective(sums, point.posterior, engine.rule)
        value += hyperprior.log_density(x)
        norm = float(np.linalg.norm(slope))
        info = StepInfo(value, point.mean_log_predictive, norm, point.change)
        complete = point.converged or time_for(0.0)
        return Evaluated(slope, info, passes=point.n_sweeps + 1, complete=complete)

    space = problem.space
    maximum = maximize(
        evaluate,
        space.start,
        space.bounds,
        progress,
        max_iter=max_iter,
        tol=tol,
        max_seconds=max_seconds,
    )
    prior = problem.prior(maximum.x)
    point = converge(engine, prior, tol=POLISHING_TOL, time_for=time_for)
    interrupted = maximum.interrupted or point.interrupted
    return Outcome(point, len(progress.history), maximum.converged, interrupted, stuck=maximum.stuck)
