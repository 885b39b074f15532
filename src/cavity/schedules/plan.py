"""From an estimator's settings to a fitted q: train, then polish."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from cavity.allocation import return_freed_memory
from cavity.engines.protocol import Engine
from cavity.optimizers import Optimizer
from cavity.posterior import Posterior
from cavity.prior import Prior
from cavity.problem import Problem
from cavity.schedules.batch import WARM_UP, train_batch
from cavity.schedules.budget import Budget
from cavity.schedules.calibration import calibrated
from cavity.schedules.checkpoint import Checkpointer
from cavity.schedules.converged import POLISHING_TOL, FixedPoint, converge, record_sweep, settled
from cavity.schedules.monitor import Monitor
from cavity.schedules.posterior_update import NaturalUpdate, PosteriorUpdate
from cavity.schedules.progress import Progress
from cavity.schedules.step import Trained, Trainer, TrainingState
from cavity.schedules.stochastic import StochasticSchedule
from cavity.sweep import EXACT_LEVERAGE, LAGGING_LEVERAGE, SweepOptions

_MOST_SWEEPS = 100
_GRACE_SECONDS = 2.0
"""Seconds that an interrupted fit may still take to make its q exact."""
_ROWS_TO_REBUILD = 10_000
"""Rows up to which batch training rebuilds q before each pass: it is cheap, and exact."""


class Outcome(NamedTuple):
    """What a plan made of a problem."""

    point: FixedPoint
    n_iter: int
    converged: bool
    interrupted: bool
    stuck: bool = False
    """Whether it ended on a slope, no way up being found."""


def stopped_before_training(problem: Problem, progress: Progress) -> Outcome:
    """What a problem comes to if the user has stopped it before training: q at its start."""
    deadline = progress.seconds + _GRACE_SECONDS
    point = converge(
        problem.engine,
        problem.prior(problem.space.start),
        tol=POLISHING_TOL,
        time_for=lambda taken: progress.seconds + taken <= deadline,
    )
    return Outcome(point, 0, converged=False, interrupted=True)


@dataclass(frozen=True)
class Plan:
    """How to fit: the optimiser (None: parameters stay), the schedule, the polishing."""

    optimizer: Optimizer | None
    options: SweepOptions
    budget: Budget
    max_iter: int
    """Sweeps at most when parameters stay."""
    tol: float
    stochastic: StochasticSchedule | None
    """None trains on all rows at every step."""
    monitor: Monitor
    checkpointer: Checkpointer
    update: PosteriorUpdate = field(default_factory=NaturalUpdate)
    enough: float = np.inf
    """Steps on all rows after which training is done, whether it stands still or not."""
    calibration_seed: int | None = None
    """Of the rows that decide how bold predictions are; None leaves them as they are."""

    def run(self, problem: Problem, progress: Progress) -> Outcome:
        """Fit a problem."""
        if self.optimizer is None:
            return self._keep_parameters(problem, progress)
        natural = isinstance(self.update, NaturalUpdate)
        rebuild = natural and self.stochastic is None and self._rebuilds(problem)
        leverage = EXACT_LEVERAGE if rebuild else LAGGING_LEVERAGE
        rough = problem if self.stochastic is None else problem.for_minibatches()
        options = replace(self.options, max_leverage=leverage)
        trainer = Trainer(rough, self.optimizer, options, self.update, rebuild)
        state, position = self.checkpointer.resume(trainer, progress, self.monitor)
        context = (trainer, state, progress, self.monitor, self.checkpointer, position)
        if self.stochastic is None:
            warm_up = 0 if problem.pretrained else WARM_UP
            trained = train_batch(*context, budget=self.budget, tol=self.tol, warm_up=warm_up)
        else:
            trained = self.stochastic.run(*context)
        arrived = partial(self._arrived, problem, trainer, trained.state)
        try:
            prior, posterior = arrived()
        except KeyboardInterrupt:  # what has been learned is worth another moment
            trained = replace(trained, interrupted=True)
            prior, posterior = arrived()
        deadline = self.budget.max_seconds
        if trained.interrupted:
            deadline = min(deadline, progress.seconds + _GRACE_SECONDS)
        point = self._polish(problem.engine, prior, posterior, trained, progress, deadline)
        point = self._calibrate(problem, point, progress, deadline)
        interrupted = trained.interrupted or point.interrupted
        if not interrupted:
            self.checkpointer.finish(problem.engine)
        converged = trained.converged or trained.n_steps >= self.enough
        return Outcome(point, trained.n_steps, converged, interrupted)

    def _rebuilds(self, problem: Problem) -> bool:
        return self.options.exact or problem.engine.n_rows <= _ROWS_TO_REBUILD

    def _keep_parameters(self, problem: Problem, progress: Progress) -> Outcome:
        point = converge(
            problem.engine,
            problem.prior(problem.space.start),
            options=self.options,
            tol=self.tol,
            max_sweeps=self.max_iter,
            heard=partial(record_sweep, progress),
            time_for=self._time_until(self.budget.max_seconds, progress),
        )
        point = self._calibrate(problem, point, progress, self.budget.max_seconds)
        return Outcome(point, point.n_sweeps, point.converged, point.interrupted)

    def _arrived(
        self, problem: Problem, trainer: Trainer, state: TrainingState
    ) -> tuple[Prior, Posterior]:
        """The prior and q that training has come to, in the precision of what is to follow."""
        if self.stochastic is not None:
            return_freed_memory()  # of shuffled rows: the sweeps to come read in order
            problem = replace(problem, dtype=np.dtype(np.float64))
        # The same jitter gives the same whitened coordinates, in which q was trained.
        prior = problem.prior(state.x, trainer.problem.prior(state.x).jitter)
        return prior, self.update.posterior(state.q, prior)

    def _polish(
        self,
        engine: Engine,
        prior: Prior,
        posterior: Posterior,
        trained: Trained,
        progress: Progress,
        deadline: float,
    ) -> FixedPoint:
        """Exact sweeps at the final parameters, as far as time allows: the true q of all rows."""
        # Without a single step, there are at least the sites of one sweep.
        pace = trained.seconds_per_epoch
        if progress.history and pace is not None and deadline - progress.seconds < pace:
            score = progress.history[-1].leave_one_out
            return FixedPoint(prior, posterior, np.nan, score, 0, np.nan, converged=False)
        if not isinstance(self.update, NaturalUpdate):
            return settled(engine, prior, posterior, lambda: deadline - progress.seconds)
        return converge(
            engine,
            prior,
            tol=POLISHING_TOL,
            options=replace(self.options, damping=1.0),
            start=posterior.naturals,
            max_sweeps=_MOST_SWEEPS,
            heard=lambda point: progress.swept(point.n_sweeps, point.change),
            time_for=self._time_until(deadline, progress),
        )

    def _time_until(self, deadline: float, progress: Progress) -> Callable[[float], bool]:
        """Whether there is time for a sweep, given the seconds it takes, and for what comes after."""
        # The calibration is worth some sweeps, and one more scores the rows.
        after = 0.0 if self.calibration_seed is None else self.budget.epochs_after + 1.0
        return lambda taken: progress.seconds + (1.0 + after) * taken <= deadline

    def _calibrate(
        self, problem: Problem, point: FixedPoint, progress: Progress, deadline: float
    ) -> FixedPoint:
        """The factor on the means of predictions, if one is wanted."""
        try:
            if self.stochastic is not None:
                return_freed_memory()  # of all rows' refined sites: calibration draws few rows
        except KeyboardInterrupt:
            return point._replace(interrupted=True)
        if self.calibration_seed is None or point.interrupted:
            return point
        seconds = deadline - progress.seconds
        return calibrated(problem.engine, point, self.calibration_seed, self.options.spared, seconds)
