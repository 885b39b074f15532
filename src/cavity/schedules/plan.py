"""From an estimator's settings to a fitted q: train, then polish."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from cavity.optimizers import Optimizer
from cavity.problem import Problem
from cavity.schedules.batch import train_batch
from cavity.schedules.checkpoint import Checkpointer
from cavity.schedules.converged import POLISHING_TOL, FixedPoint, converge, settled
from cavity.schedules.monitor import Monitor
from cavity.schedules.posterior_update import NaturalUpdate, PosteriorUpdate
from cavity.schedules.progress import Progress
from cavity.schedules.step import Trainer, TrainingState
from cavity.schedules.stochastic import StochasticSchedule
from cavity.sweep import SweepOptions

_STALE_LEVERAGE_BATCH = 0.999
"""Bound on a row's own share of q while kernel and q move together, all rows at every step."""
_STALE_LEVERAGE_STOCHASTIC = 0.5
"""The same when a site may be an epoch older than q."""


class Outcome(NamedTuple):
    """What a plan made of a problem."""

    point: FixedPoint
    n_iter: int
    converged: bool
    interrupted: bool


@dataclass(frozen=True)
class Plan:
    """How to fit: the optimiser (None: parameters stay), the schedule, the polishing."""

    optimizer: Optimizer | None
    options: SweepOptions
    max_iter: int
    tol: float
    stochastic: StochasticSchedule | None
    """None trains on all rows at every step."""
    monitor: Monitor
    checkpointer: Checkpointer
    update: PosteriorUpdate = field(default_factory=NaturalUpdate)

    def run(self, problem: Problem, progress: Progress) -> Outcome:
        """Fit a problem."""
        if self.optimizer is None:
            return self._keep_parameters(problem, progress)
        leverage = _STALE_LEVERAGE_BATCH if self.stochastic is None else _STALE_LEVERAGE_STOCHASTIC
        # Minibatches are noisy beyond float32's rounding; the polishing is in full precision.
        rough = problem if self.stochastic is None else replace(problem, dtype=np.dtype(np.float32))
        trainer = Trainer(
            rough, self.optimizer, replace(self.options, max_leverage=leverage), self.update
        )
        state, position = self.checkpointer.resume(trainer, progress, self.monitor)
        context = (trainer, state, progress, self.monitor, self.checkpointer, position)
        if self.stochastic is None:
            trained = train_batch(*context, max_iter=self.max_iter, tol=self.tol)
        else:
            trained = self.stochastic.run(*context)
        point = self._polish(problem, trainer, trained.state)
        self.checkpointer.finish()
        return Outcome(point, len(progress.history), trained.converged, trained.interrupted)

    def _keep_parameters(self, problem: Problem, progress: Progress) -> Outcome:
        point = converge(
            problem.engine,
            problem.prior(problem.space.start),
            damping=self.options.damping,
            tol=self.tol,
            max_sweeps=self.max_iter,
            progress=progress,
        )
        return Outcome(point, point.n_sweeps, point.converged, interrupted=False)

    def _polish(self, problem: Problem, trainer: Trainer, state: TrainingState) -> FixedPoint:
        """Exact sweeps at the final parameters: the true q of all rows."""
        if self.stochastic is not None:
            problem = replace(problem, dtype=np.dtype(np.float64))
        # The same jitter gives the same whitened coordinates, in which q was trained.
        prior = problem.prior(state.x, trainer.problem.prior(state.x).jitter)
        posterior = self.update.posterior(state.q)
        if not isinstance(self.update, NaturalUpdate):
            return settled(problem.engine, prior, posterior)
        start = None if self.stochastic is None else posterior.naturals
        return converge(problem.engine, prior, tol=POLISHING_TOL, start=start)
