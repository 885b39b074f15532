"""How much training may cost, and how steps and gains shrink towards its end.

Watching a noisy score: the best state is kept, and a plateau can end training early.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from cavity.inference.calibration import epochs_needed
from cavity.inference.config import PATIENCE, TrainingConfig
from cavity.inference.history import StepInfo
from cavity.inference.trainer import TrainingState

_LAST_RATE = 0.01
_LAST_GAIN = 0.05
_POLISHING_EPOCHS = 3.0
_POLISHING_SHARE = 0.25
_FULL_BATCH_WINDOW = 5
"""Steps on all rows between two scores."""
_SCORES = 40
"""Scores over a budget of epochs."""
_SHORT_COOLING = 0.25
"""Length of the cooling when training ends early, as a share of the training so far."""


@dataclass(frozen=True)
class Budget:
    """Epochs and seconds at most; whichever binds first decides."""

    max_epochs: float
    max_seconds: float = np.inf
    cooling_starts: float = 0.5
    """Share of the budget after which steps and gains shrink: worth more in NLL than anything else.
    1 means never."""
    epochs_after: float = 0.0
    """Epochs' worth of seconds that will be needed when training is over, besides the exact sweeps."""

    @classmethod
    def of(cls, config: TrainingConfig, n_rows: int) -> Budget:
        """The budget that a configuration gives a run over so many rows."""
        after = 0.0
        if config.calibration is not None:
            after = epochs_needed(n_rows, config.calibration_fraction)
        return cls(config.max_epochs, config.max_seconds, 0.5 if config.cools else 1.0, after)

    def used(self, epochs: float, seconds: float) -> float:
        """Share of the budget that is gone, from 0 to 1 and beyond."""
        return max(epochs / self.max_epochs, seconds / self.max_seconds)

    def rate(self, used: float) -> float:
        """Factor on the optimiser's steps: 1 before the cooling, then half a cosine.

        >>> budget = Budget(max_epochs=10)
        >>> budget.rate(0.2), round(budget.rate(0.75), 6), budget.rate(1.0)
        (1.0, 0.5, 0.01)
        """
        return float(max(_LAST_RATE, 0.5 * (1.0 + np.cos(np.pi * self._cooled(used)))))

    def gain(self, used: float) -> float:
        """Factor on the smallest gain: 1 before the cooling, then straight down."""
        return max(_LAST_GAIN, 1.0 - self._cooled(used))

    def ending_soon(self, epochs: float) -> Budget:
        """A budget that cools from `epochs` on and ends a quarter of them later.

        Epochs decide, not seconds: without max_seconds the clock has no say in a result.
        """
        longer = 1.0 + _SHORT_COOLING
        soon = min(self.max_epochs, longer * epochs)
        return replace(self, max_epochs=soon, cooling_starts=1.0 / longer)

    def without_polishing(self, seconds_per_epoch: float) -> Budget:
        """The budget of the training proper, with some seconds kept for what comes after it.

        For the exact sweeps that is three epochs' worth, if it is at most a quarter of all seconds.
        Sweeps of data that are too large for that are left out: q is then the average that training has
        made.

        >>> budget = Budget(max_epochs=10, max_seconds=100.0, epochs_after=1.0)
        >>> budget.without_polishing(5.0).max_seconds, budget.without_polishing(10.0).max_seconds
        (80.0, 90.0)
        """
        most = _POLISHING_SHARE * self.max_seconds
        polishing, after = _POLISHING_EPOCHS * seconds_per_epoch, self.epochs_after * seconds_per_epoch
        reserve = min(after, most) + (polishing if polishing <= most else 0.0)
        return replace(self, max_seconds=self.max_seconds - reserve)

    def _cooled(self, used: float) -> float:
        if used <= self.cooling_starts or self.cooling_starts >= 1.0:
            return 0.0
        return min(1.0, (used - self.cooling_starts) / (1.0 - self.cooling_starts))


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

    @classmethod
    def of(
        cls,
        config: TrainingConfig,
        n_rows: int,
        score: Callable[[TrainingState], float] | None = None,
    ) -> Monitor:
        """The monitor of a run over so many rows; `score` judges a state by held-out rows."""
        patience = None if config.early_stopping is None else PATIENCE
        window = _FULL_BATCH_WINDOW
        if config.batch_size is not None:
            steps = n_rows / config.batch_size * config.max_epochs
            window = 50 if not np.isfinite(steps) else int(np.clip(steps / _SCORES, 5, 200))
        return cls(window=window, patience=patience, score=score)

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
