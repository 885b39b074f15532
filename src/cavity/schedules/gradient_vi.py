"""The variational bound climbed by L-BFGS-B on (m, R), kernel and inducing points together."""

from __future__ import annotations

import numpy as np

from cavity.schedules.converged import settled
from cavity.schedules.lbfgs import Evaluated, maximize
from cavity.schedules.plan import Outcome
from cavity.schedules.progress import Progress
from cavity.schedules.step import Trainer
from cavity.typing import Array

_WINDOW = 10
"""Iterations that together must raise the bound: with all of q in the vector single ones are slow."""


def fit_gradient_batch(
    trainer: Trainer, progress: Progress, *, max_iter: int, tol: float, max_seconds: float = np.inf
) -> Outcome:
    """All of q and the parameters as one vector, all rows at every evaluation."""
    problem, state = trainer.problem, trainer.start()
    split = len(state.x)

    def evaluate(vector: Array) -> Evaluated:
        evaluation = trainer.evaluate(vector[:split], vector[split:], damping=1.0)
        assert evaluation is not None
        problem.engine.commit()  # the sites that leave-one-out scores are told by
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
        max_seconds=max_seconds,
    )
    prior = problem.prior(maximum.x[:split])
    point = settled(problem.engine, prior, trainer.update.posterior(maximum.x[split:], prior))
    interrupted = maximum.interrupted or point.interrupted
    return Outcome(point, len(progress.history), maximum.converged, interrupted, stuck=maximum.stuck)
