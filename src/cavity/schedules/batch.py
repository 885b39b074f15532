"""Batch training: every iteration is one sweep over all rows and one step of the parameters."""

from __future__ import annotations

import numpy as np

from cavity.history import Iteration
from cavity.schedules.budget import Budget
from cavity.schedules.checkpoint import Checkpointer, Position
from cavity.schedules.monitor import Monitor
from cavity.schedules.progress import Progress
from cavity.schedules.step import Trained, Trainer, TrainingState

_WINDOW = 10
"""Iterations whose median objective is compared with that of the window before."""


def train_batch(
    trainer: Trainer,
    state: TrainingState,
    progress: Progress,
    monitor: Monitor,
    checkpointer: Checkpointer,
    position: Position,
    *,
    max_iter: int,
    tol: float,
) -> Trained:
    """Iterate until the objective stands still, then a little longer with ever smaller steps.

    Still means that the median of its last 10 values rose by less than tol·|objective| above that of
    the 10 before. At the latest the steps start to shrink after half of `max_iter` iterations.
    """
    budget, still = Budget(max_epochs=max_iter), False
    while (used := budget.used(position.step, 0.0)) < 1.0:
        try:
            state, info = trainer.step(state, rate=budget.rate(used))
            position = position.after_batch()
            progress.record(info, epochs=float(position.step), share=position.step / max_iter)
            checkpointer.after_step(state, position, trainer, progress, monitor)
        except KeyboardInterrupt:
            return Trained(state, converged=False, interrupted=True)
        plateau = monitor.plateau_after(state, info)
        if not still and (plateau or _stands_still(progress.history, tol)):
            still = True
            budget = budget.ending_soon(position.step, np.inf)
    # Without early stopping the objective decides, and it is at its best at the end.
    chosen = state if monitor.patience is None else monitor.best_or(state)
    return Trained(chosen, converged=still, interrupted=False)


def _stands_still(history: list[Iteration], tol: float) -> bool:
    if len(history) < 3 * _WINDOW:
        return False
    values = [entry.objective for entry in history[-2 * _WINDOW :]]
    before, now = np.median(values[:_WINDOW]), np.median(values[_WINDOW:])
    return bool(now - before < tol * max(1.0, abs(before)))
