"""Watching a noisy score: the best state is kept, and a plateau can end training early."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from cavity.schedules.progress import StepInfo
from cavity.schedules.step import TrainingState


@dataclass
class Monitor:
    """Averages a score over windows of steps and remembers the state with the best average.

    The score is the leave-one-out log probability that every pass gives for free, or `score(state)`,
    for instance on rows that were held out, taken at the end of each window.
    """

    window: int
    """Steps in a window."""
    patience: int | None
    """Windows without improvement after which training should end; None: never."""
    tol: float = 1e-4
    """What counts as an improvement, in nats a row."""
    score: Callable[[TrainingState], float] | None = None
    scores: list[float] = field(default_factory=list)
    """Score of every window so far."""
    best: TrainingState | None = None
    seen: list[float] = field(default_factory=list)
    """Leave-one-out scores of the steps in the current window."""

    def plateau_after(self, state: TrainingState, info: StepInfo) -> bool:
        """Take note of a step; True when the score has not improved for too long."""
        self.seen.append(info.mean_log_predictive)
        if len(self.seen) < self.window:
            return False
        value = float(np.mean(self.seen)) if self.score is None else self.score(state)
        self.seen = []
        if self.best is None or value >= max(self.scores):
            self.best = state
        self.scores.append(value)
        if self.patience is None or len(self.scores) <= self.patience:
            return False
        recent, before = self.scores[-self.patience :], self.scores[: -self.patience]
        return max(recent) < max(before) + self.tol

    def best_or(self, state: TrainingState) -> TrainingState:
        """The best state seen, or the given last one if its score is within the noise of the best."""
        if self.best is None:
            return state
        changes = np.abs(np.diff(self.scores))
        noise = float(np.median(changes)) if len(changes) > 1 else 0.0  # the first rise is no noise
        return state if self.scores[-1] >= max(self.scores) - 3.0 * noise else self.best
