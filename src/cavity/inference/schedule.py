"""Budgets and early stopping: when training ends, how its steps shrink, and which state is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from cavity.inference.config import TrainingConfig
from cavity.inference.decisions import PATIENCE
from cavity.inference.history import StepInfo
from cavity.inference.trainer import TrainingState

_LAST_RATE = 0.01
"""Factor on the optimiser's steps at the end of the budget."""
_LAST_GAIN = 0.05
"""Factor on the smallest gain at the end of the budget."""
_SWEEPS_EPOCHS = 4.0
"""Time that is reserved for the exact sweeps after training, in epochs."""
_SWEEPS_SHARE = 0.25
"""Most of max_seconds that is reserved for these sweeps and the calibration."""
_LATER_SHARE = 0.2
"""Share of max_seconds that is reserved for more inducing points after these sweeps."""
_FULL_BATCH_WINDOW = 5
"""Steps on all rows between two scores."""
_SCORES = 40
"""Number of scores that a budget of epochs is divided into."""
_SMALLEST_WINDOW = 5
"""Minibatch steps between two scores, at least, so that scores take the smaller part of the time."""
_LARGEST_WINDOW = 200
"""Minibatch steps between two scores, at most, so that long runs can end early, too."""
_WINDOW_WITHOUT_EPOCHS = 50
"""Minibatch steps between two scores if the budget is in seconds alone."""
_SHORT_COOLING = 0.25
"""Length of the cooling when training ends early, as a share of the training so far."""


@dataclass(frozen=True)
class Budget:
    """Limits on epochs and seconds; training ends when either is reached."""

    max_epochs: float
    max_seconds: float = np.inf
    cooling_starts: float = 0.5
    """Share of the budget after which steps and gains shrink; 1 means never."""
    sweeps: bool = False
    """Whether exact sweeps follow the steps."""
    calibration: float = 0.0
    """The work, in epochs, of the calibration after them."""
    later: float = 0.0
    """The least work, in epochs, that may follow the sweeps."""

    @classmethod
    def of(cls, config: TrainingConfig) -> Budget:
        """The budget that a configuration gives the steps of a run, if nothing follows them."""
        return cls(config.max_epochs, config.max_seconds, 0.5 if config.cools else 1.0)

    def used(self, epochs: float, seconds: float) -> float:
        """Share of the budget that is used; more than 1 if it is exceeded."""
        return max(epochs / self.max_epochs, seconds / self.max_seconds)

    def rate(self, used: float) -> float:
        """Factor on the optimiser's steps: 1 at first, then falling along half a cosine.

        >>> budget = Budget(max_epochs=10)
        >>> budget.rate(0.2), round(budget.rate(0.75), 6), budget.rate(1.0)
        (1.0, 0.5, 0.01)
        """
        return float(max(_LAST_RATE, 0.5 * (1.0 + np.cos(np.pi * self._cooled(used)))))

    def gain(self, used: float) -> float:
        """Factor on the smallest gain: 1 at first, then falling linearly."""
        return max(_LAST_GAIN, 1.0 - self._cooled(used))

    def ending_soon(self, epochs: float) -> Budget:
        """A budget whose steps shrink from `epochs` on, and which ends a quarter of them later.

        It counts epochs and not seconds, so that without max_seconds no result depends on the clock.
        """
        longer = 1.0 + _SHORT_COOLING
        soon = min(self.max_epochs, longer * epochs)
        return replace(self, max_epochs=soon, cooling_starts=1.0 / longer)

    def of_the_steps(self, seconds_per_epoch: float) -> Budget:
        """The budget of the training steps alone, without the time that is reserved for what follows.

        The exact sweeps get the time of four epochs, if that is at most a quarter of all seconds. If
        the data are too large for that, there are no such sweeps, and q stays the average over
        minibatches. The calibration gets its time within that quarter, or none. What
        may follow the sweeps gets a fifth of all seconds, if that is enough for it.

        >>> budget = Budget(max_epochs=10, max_seconds=100.0, sweeps=True)
        >>> budget.of_the_steps(5.0).max_seconds, budget.of_the_steps(10.0).max_seconds
        (80.0, 100.0)
        >>> replace(budget, calibration=4.0).of_the_steps(3.0).max_seconds
        76.0
        >>> replace(budget, later=4.0).of_the_steps(5.0).max_seconds
        60.0
        """
        reserve, most = _SWEEPS_EPOCHS * seconds_per_epoch, _SWEEPS_SHARE * self.max_seconds
        if not self.sweeps or reserve > most:
            return self
        calibration = self.calibration * seconds_per_epoch
        if reserve + calibration <= most:
            reserve += calibration
        if 0.0 < self.later * seconds_per_epoch <= _LATER_SHARE * self.max_seconds:
            reserve += _LATER_SHARE * self.max_seconds
        return replace(self, max_seconds=self.max_seconds - reserve)

    def _cooled(self, used: float) -> float:
        if used <= self.cooling_starts or self.cooling_starts >= 1.0:
            return 0.0
        return min(1.0, (used - self.cooling_starts) / (1.0 - self.cooling_starts))


@dataclass
class Monitor:
    """Averages a score over windows of steps and keeps the state with the best average.

    The score is `score(state)` at the end of each window, for instance on held-out rows; without it,
    what every pass computes: the objective if a pass is over all rows and nothing ends training early,
    else the leave-one-out log probability.
    """

    window: int
    """Steps in a window."""
    patience: int | None
    """Windows without improvement after which training should end; None means never."""
    tol: float = 1e-4
    """Smallest improvement that counts, in nats per row, or relative to the objective."""
    score: Callable[[TrainingState], float] | None = None
    by_objective: bool = False
    """Whether the objective is the score."""
    scores: list[float] = field(default_factory=list)
    """Score of every window so far."""
    best: TrainingState | None = None
    seen: list[float] = field(default_factory=list)
    """Scores of the steps in the current window."""

    @classmethod
    def of(
        cls,
        config: TrainingConfig,
        n_rows: int,
        score: Callable[[TrainingState], float] | None = None,
    ) -> Monitor:
        """The monitor of a run over `n_rows` rows; `score` rates a state on held-out rows."""
        patience = None if config.early_stopping is None else PATIENCE
        window = _FULL_BATCH_WINDOW
        if config.batch_size is not None:
            steps = n_rows / config.batch_size * config.max_epochs
            window = _WINDOW_WITHOUT_EPOCHS
            if np.isfinite(steps):
                window = int(np.clip(steps / _SCORES, _SMALLEST_WINDOW, _LARGEST_WINDOW))
            # To score a state, the view of every leaf is needed: as much work as a step for eight.
            window = max(window, config.n_leaves or 0)
        by_objective = config.batch_size is None and patience is None
        return cls(window=window, patience=patience, score=score, by_objective=by_objective)

    def plateau_after(self, state: TrainingState, info: StepInfo) -> bool:
        """Add the score of a step; True if the score has not improved for `patience` windows."""
        self.seen.append(info.objective if self.by_objective else info.mean_log_predictive)
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
        """The best state, or the given last one if its score is within the noise of the best."""
        if self.best is None:
            return state
        best = max(self.scores)
        if self.by_objective:
            return state if self.scores[-1] >= best - self.tol * max(1.0, abs(best)) else self.best
        changes = np.abs(np.diff(self.scores))
        # A single change is the first rise of the score, not noise.
        noise = float(np.median(changes)) if len(changes) > 1 else 0.0
        return state if self.scores[-1] >= best - 3.0 * noise else self.best
