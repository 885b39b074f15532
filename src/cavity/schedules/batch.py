"""Batch training: every iteration is one sweep over all rows and one step of the parameters."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cavity.schedules.progress import Progress
from cavity.schedules.step import Trainer, TrainingState

_WINDOW = 20
"""Iterations over which the objective must stand still."""


class Trained(NamedTuple):
    """Where a training run ended."""

    state: TrainingState
    converged: bool
    interrupted: bool


def train_batch(
    trainer: Trainer, state: TrainingState, progress: Progress, *, max_iter: int, tol: float
) -> Trained:
    """Iterate until the objective has stood still for a while, or `max_iter` times.

    Still means: over the last 20 iterations its best value rose by less than tol·|objective|.
    """
    values: list[float] = []
    for iteration in range(1, max_iter + 1):
        try:
            state, info = trainer.step(state)
        except KeyboardInterrupt:
            return Trained(state, converged=False, interrupted=True)
        progress.record(info, epochs=float(iteration))
        values.append(info.objective)
        if _stands_still(values, tol):
            return Trained(state, converged=True, interrupted=False)
    return Trained(state, converged=False, interrupted=False)


def _stands_still(values: list[float], tol: float) -> bool:
    if len(values) < 2 * _WINDOW:
        return False
    before = max(values[:-_WINDOW])
    return bool(max(values[-_WINDOW:]) - before < tol * max(1.0, np.abs(before)))
