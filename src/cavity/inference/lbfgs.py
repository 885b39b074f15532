"""Training by L-BFGS-B on all rows, which the paper uses for the methods that it compares with.

`fit_evidence_by_lbfgs` is GFITC's schedule: EP to convergence at every evaluation, then the gradient of
the evidence by the parameters. `fit_bound_by_lbfgs` maximises the variational bound over the posterior,
N(m, R Rᵀ), and the parameters together.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy.optimize import OptimizeResult, minimize

from cavity.errors import NumericalError
from cavity.inference.converge import EXACT_SWEEPS_TOL, FitResult, converge, score_fixed_posterior
from cavity.inference.history import Progress, StepInfo
from cavity.inference.sweep import Sweep, SweepOptions
from cavity.inference.trainer import Problem, Trainer
from cavity.inference.updates import gradient, objective
from cavity.typing import Array

_GRADIENT_TOL = 1e-5
"""Largest entry of the gradient at which SciPy counts a point as a maximum."""
_FLAT = 1e-3
"""Largest slope, relative to the objective, at which a failed line search counts as convergence."""
_WORSE = 1e3
"""A point that cannot be evaluated counts as this much worse than the best so far."""
_CONVERGED, _OUT_OF_ITERATIONS, _LINE_SEARCH_FAILED = 0, 1, 2
"""Values of SciPy's status."""


class Evaluated(NamedTuple):
    """An objective and its gradient at a point."""

    gradient: Array
    info: StepInfo
    passes: int = 1
    """Number of passes over all rows that the evaluation took."""
    complete: bool = True
    """Whether there was time for all passes; otherwise the objective is an estimate."""


class Maximum(NamedTuple):
    """Where L-BFGS ended."""

    x: Array
    converged: bool
    stuck: bool = False
    """Whether the line search failed where the gradient is not zero."""


class _StopError(Exception):
    """Ends SciPy's loop: the objective has converged, the time is over, or the user has stopped it."""


@dataclass
class _Ascent:
    """The best point of the line searches so far, and the test of convergence."""

    evaluate: Callable[[Array], Evaluated]
    progress: Progress
    x: Array
    """The best point."""
    tol: float
    window: int
    best: Evaluated | None = None
    passes: int = 0
    values: list[float] = field(default_factory=list)
    """Best objective after every iteration."""
    still: bool = False
    """Whether the objective has converged to `tol`."""

    def negative(self, x: Array) -> tuple[float, Array]:
        """The negative objective and its gradient, which SciPy minimises."""
        if self.best is not None and self.progress.seconds_left <= 0.0:
            raise _StopError
        try:
            now = self.evaluate(x)
            self.passes += now.passes
            if not (np.isfinite(now.info.objective) and np.isfinite(now.gradient).all()):
                raise NumericalError("the objective or its gradient is not finite")
        except (NumericalError, np.linalg.LinAlgError) as error:
            if self.best is None:
                raise NumericalError(
                    "the objective cannot be evaluated at the starting values; try other kernel "
                    f'parameters or inducing_points, or scaling="standard"; the cause: {error}'
                ) from error
            return _WORSE - self.best.info.objective, np.zeros_like(x)
        if self.best is not None and not now.complete:
            raise _StopError
        if self.best is None or now.info.objective > self.best.info.objective:
            self.x, self.best = x.copy(), now
        return -now.info.objective, -now.gradient

    def after_iteration(self, _: Array) -> None:
        """Record an iteration; stop if the objective has converged or the time is over."""
        self.record()
        if len(self.values) > self.window:
            before = self.values[-1 - self.window]
            self.still = self.values[-1] - before < self.tol * max(1.0, abs(before))
        if self.still or self.progress.seconds_left <= 0.0:
            raise _StopError

    def record(self) -> None:
        """Record the best point as an iteration of the history."""
        assert self.best is not None
        self.values.append(self.best.info.objective)
        self.progress.record(self.best.info, epochs=float(self.passes))

    def is_flat(self, bounds: Array) -> bool:
        """Whether the gradient at the best point is small, except where a bound holds a parameter."""
        assert self.best is not None
        x, slope = self.x, self.best.gradient
        held = ((x <= bounds[:, 0]) & (slope < 0)) | ((x >= bounds[:, 1]) & (slope > 0))
        steepest = float(np.abs(np.where(held, 0.0, slope)).max(initial=0.0))
        return steepest <= _FLAT * max(1.0, abs(self.best.info.objective))


def maximize(
    evaluate: Callable[[Array], Evaluated],
    start: Array,
    bounds: Array,
    progress: Progress,
    *,
    max_iter: int,
    tol: float,
    window: int = 1,
) -> Maximum:
    """Maximise `info.objective` from `start` [p] within `bounds` [p, 2], and return the best point.

    It converges when the last `window` iterations together have raised the objective by less than
    tol·max(1, |objective|). A point where the evaluation fails numerically counts as bad, so that the
    line search steps back. If a line search fails, L-BFGS starts again from the best point without its
    memory, as long as that helps. It ends early when the time of `progress` is over, or by Ctrl-C.
    """
    ascent = _Ascent(evaluate, progress, start, tol, window)
    result, height, stopped = OptimizeResult(status=_LINE_SEARCH_FAILED), -np.inf, True
    with progress.until_interrupted(), suppress(_StopError):
        if not len(start):  # no free parameters; SciPy refuses an empty vector
            ascent.negative(start)
            result.status = _CONVERGED
        while result.status == _LINE_SEARCH_FAILED and len(ascent.values) < max_iter:
            left = max_iter - len(ascent.values)
            result = minimize(
                ascent.negative,
                ascent.x,
                jac=True,
                method="L-BFGS-B",
                bounds=bounds,
                callback=ascent.after_iteration,
                options={"maxiter": left, "maxfun": 3 * left, "ftol": 0.0, "gtol": _GRADIENT_TOL},
            )
            assert ascent.best is not None
            if ascent.best.info.objective <= height:
                break
            height = ascent.best.info.objective
        stopped = False
    if ascent.best is not None and not progress.history:
        ascent.record()
    if stopped:
        return Maximum(ascent.x, converged=ascent.still)
    if result.status != _LINE_SEARCH_FAILED:
        return Maximum(ascent.x, converged=result.status != _OUT_OF_ITERATIONS)
    flat = ascent.is_flat(bounds)
    return Maximum(ascent.x, converged=flat, stuck=not flat)


_WINDOW = 10
"""Window of the test of convergence when q is part of the vector: single iterations are slow then."""


def fit_bound_by_lbfgs(trainer: Trainer, progress: Progress, *, max_iter: int, tol: float) -> FitResult:
    """Maximise the variational bound over q and the parameters as one vector."""
    problem, state = trainer.problem, trainer.init()
    split = len(state.x)

    def evaluate(vector: Array) -> Evaluated:
        evaluation = trainer.evaluate(vector[:split], vector[split:], damping=1.0)
        assert evaluation is not None
        problem.engine.commit()  # leave-one-out scores need the sites
        return Evaluated(evaluation.slope, evaluation.info)

    free = np.tile([-np.inf, np.inf], (len(state.q), 1))
    maximum = maximize(
        evaluate,
        np.concatenate([state.x, state.q]),
        np.vstack([problem.space.bounds, free]),
        progress,
        max_iter=max_iter,
        tol=tol,
        window=_WINDOW,
    )
    prior = problem.prior(maximum.x[:split])
    posterior = trainer.update.posterior(maximum.x[split:], prior)
    point = score_fixed_posterior(problem.engine, prior, posterior, problem.rule, progress)
    return FitResult(point, len(progress.history), maximum.converged, stuck=maximum.stuck)


_EP_TOL = 1e-6
"""Site change at which EP is close enough to its fixed point for a line search."""


def fit_evidence_by_lbfgs(
    problem: Problem, progress: Progress, *, max_iter: int, tol: float
) -> FitResult:
    """Maximise the evidence over the parameters, with q at its fixed point in every evaluation.

    The sites of one evaluation are the start of the next, so most evaluations take few sweeps. When the
    time is over, the first evaluation and EP at the best parameters still get one sweep each.
    """
    engine, rule, hyperprior = problem.engine, problem.rule, problem.hyperprior

    def evaluate(x: Array) -> Evaluated:
        prior = problem.prior(x)
        point = converge(engine, prior, rule, tol=_EP_TOL, clock=progress)
        if point.interrupted:
            raise _StopError
        sums = engine.run(Sweep(prior, point.posterior, rule, SweepOptions(damping=0.0)))
        slope = problem.space.pack_gradient(gradient(sums, prior, point.posterior))
        slope = slope + hyperprior.gradient(x)
        value = point.objective
        if np.isnan(value):  # there was time for one sweep only
            value = objective(sums, point.posterior, rule)
        value += hyperprior.log_density(x)
        norm = float(np.linalg.norm(slope))
        info = StepInfo(value, point.mean_log_predictive, norm, point.change)
        complete = point.converged or progress.has_time()
        return Evaluated(slope, info, passes=point.n_sweeps + 1, complete=complete)

    space = problem.space
    maximum = maximize(evaluate, space.start, space.bounds, progress, max_iter=max_iter, tol=tol)
    prior = problem.prior(maximum.x)
    point = converge(engine, prior, rule, tol=EXACT_SWEEPS_TOL, clock=progress)
    return FitResult(point, len(progress.history), maximum.converged, stuck=maximum.stuck)
