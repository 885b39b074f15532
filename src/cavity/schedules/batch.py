"""Batch training: every iteration is one sweep over all rows and one step of the parameters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cavity.history import Iteration
from cavity.schedules.budget import Budget
from cavity.schedules.checkpoint import Checkpointer, Position
from cavity.schedules.monitor import Monitor
from cavity.schedules.progress import Progress
from cavity.schedules.step import Trained, Trainer, TrainingState

_WINDOW = 10
"""Iterations whose median objective is compared with that of the window before."""
WARM_UP = 10
"""Iterations before these: the first steps of an optimiser may well lead downhill."""


def train_batch(
    trainer: Trainer,
    state: TrainingState,
    progress: Progress,
    monitor: Monitor,
    checkpointer: Checkpointer,
    position: Position,
    *,
    budget: Budget,
    tol: float,
    warm_up: int = WARM_UP,
) -> Trained:
    """Iterate until the objective stands still, then a little longer with ever smaller steps.

    Still means that the median of its last 10 values rose by less than tol·|objective| above that of
    the 10 before, which come after `warm_up` others. At the latest the steps start to shrink after half
    of the budget, in which an iteration is an epoch.
    """
    interrupted, pace = False, None
    begun, resumed = progress.seconds, position.step
    while True:
        ending = position.ending
        if position.step > resumed:
            pace = (progress.seconds - begun) / (position.step - resumed)
        timed = np.isfinite(budget.max_seconds)
        now = budget if pace is None or not timed else budget.without_polishing(pace)
        now = now if ending is None else now.ending_soon(ending)
        used = now.used(position.step, progress.seconds)
        if used >= 1.0 and position.step:  # one step at least, or there is nothing learned at all
            break
        try:
            state, info = trainer.step(state, rate=now.rate(used))
            assert info is not None
            position = position.after_batch()
            progress.record(info, float(position.step), share=now.used(position.step, progress.seconds))
            plateau = monitor.plateau_after(state, info) or _stands_still(progress.history, tol, warm_up)
            if plateau and ending is None:
                position = replace(position, ending=float(position.step))
            checkpointer.after_step(state, position, trainer, progress, monitor)
        except KeyboardInterrupt:
            interrupted = True
            break
    # Without early stopping the objective decides, and it is at its best at the end.
    chosen = state if monitor.patience is None else monitor.best_or(state)
    converged = position.ending is not None and not interrupted
    return Trained(chosen, position.step, converged, interrupted, pace)


def _stands_still(history: list[Iteration], tol: float, warm_up: int) -> bool:
    if len(history) < warm_up + 2 * _WINDOW:
        return False
    values = [entry.objective for entry in history[-2 * _WINDOW :]]
    before, now = float(np.median(values[:_WINDOW])), float(np.median(values[_WINDOW:]))
    return now - before < tol * max(1.0, abs(before))
