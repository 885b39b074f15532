"""Batch training: every iteration is one sweep over all rows and one step of the parameters."""

from __future__ import annotations

from cavity.schedules.checkpoint import Checkpointer, Position
from cavity.schedules.monitor import Monitor
from cavity.schedules.progress import Progress
from cavity.schedules.step import Trained, Trainer, TrainingState

_WINDOW = 20
"""Iterations over which the objective must stand still."""


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
    """Iterate until the objective has stood still for a while, or `max_iter` times.

    Still means: over the last 20 iterations its best value rose by less than tol·|objective|.
    """
    while position.step < max_iter:
        try:
            state, info = trainer.step(state)
            position = position.after_batch()
            progress.record(info, epochs=float(position.step))
            checkpointer.after_step(state, position, trainer, progress, monitor)
        except KeyboardInterrupt:
            return Trained(state, converged=False, interrupted=True)
        plateau = monitor.plateau_after(state, info)
        if plateau or _stands_still([entry.objective for entry in progress.history], tol):
            return Trained(_chosen(state, monitor), converged=True, interrupted=False)
    return Trained(_chosen(state, monitor), converged=False, interrupted=False)


def _chosen(state: TrainingState, monitor: Monitor) -> TrainingState:
    # Without early stopping the objective decides, and it is at its best at the end.
    return state if monitor.patience is None else monitor.best_or(state)


def _stands_still(values: list[float], tol: float) -> bool:
    if len(values) < 2 * _WINDOW:
        return False
    before = max(values[:-_WINDOW])
    return max(values[-_WINDOW:]) - before < tol * max(1.0, abs(before))
