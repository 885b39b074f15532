"""The variational bound climbed by L-BFGS-B on (m, R), kernel and inducing points together."""

from __future__ import annotations

import numpy as np

from cavity.schedules.converged import settled
from cavity.schedules.lbfgs import Evaluated, maximize
from cavity.schedules.plan import Outcome
from cavity.schedules.progress import Progress
from cavity.schedules.step import Trainer
from cavity.typing import Array


def fit_gradient_batch(trainer: Trainer, progress: Progress, *, max_iter: int, tol: float) -> Outcome:
    """All of q and the parameters as one vector, all rows at every evaluation."""
    problem, state = trainer.problem, trainer.start()
    split = len(state.x)

    def evaluate(vector: Array) -> Evaluated:
        evaluation = trainer.evaluate(vector[:split], vector[split:], damping=1.0)
        assert evaluation is not None
        return Evaluated(evaluation.slope, evaluation.info)

    free = np.tile([-np.inf, np.inf], (len(state.q), 1))
    maximum = maximize(
        evaluate,
        np.concatenate([state.x, state.q]),
        np.vstack([problem.space.bounds, free]),
        progress,
        max_iter=max_iter,
        tol=tol,
    )
    prior = problem.prior(maximum.x[:split])
    point = settled(problem.engine, prior, trainer.update.posterior(maximum.x[split:], prior))
    interrupted = maximum.interrupted or point.interrupted
    return Outcome(point, len(progress.history), maximum.converged, interrupted)
