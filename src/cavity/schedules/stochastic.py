"""Stochastic training: minibatches refine their sites, q is an average, parameters follow."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from cavity.schedules.budget import Budget
from cavity.schedules.checkpoint import Checkpointer, Position
from cavity.schedules.monitor import Monitor
from cavity.schedules.progress import Progress, RunningInfo
from cavity.schedules.step import Trained, Trainer, TrainingState
from cavity.sources.protocol import Block

_RECORDS_PER_EPOCH = 50
_MOST_HASTE = 2.5
"""Factor at most on the steps of a run that has few of them."""


@dataclass(frozen=True)
class StochasticSchedule:
    """Minibatches in random order until a budget is used up.

    Each minibatch stands for all rows: its sums, scaled up, are averaged into q's naturals with the
    gain max(1/t, smallest), and its scaled gradient moves the parameters. Towards the end of the budget
    gains and steps shrink. The order of epoch e depends on (seed, e) alone, so a run that is resumed at
    a position sees the same minibatches as one that was never stopped.
    """

    batch_size: int
    budget: Budget
    smallest_gain: float
    seed: int
    steps_at_rate: float = 0.0
    """Steps of a run that goes at the optimiser's own rate; a shorter one takes longer steps."""

    def run(
        self,
        trainer: Trainer,
        state: TrainingState,
        progress: Progress,
        monitor: Monitor,
        checkpointer: Checkpointer,
        position: Position,
    ) -> Trained:
        """Train from a state at a position."""
        share = self.batch_size / trainer.engine.n_rows
        window = RunningInfo(every=max(1, round(1.0 / (share * _RECORDS_PER_EPOCH))))
        ending, begun = position.ending, (position.epochs(share), progress.seconds)
        try:
            for before, batch in self._batches(trainer, position):
                epochs, seconds = before.epochs(share), progress.seconds
                budget = self._budget(ending, epochs - begun[0], seconds - begun[1])
                used = budget.used(epochs, seconds)
                if used >= 1.0 and before.step:  # one step at least, or there is nothing learned at all
                    break
                step = before.step + 1
                gain = max(1.0 / step, self.smallest_gain * budget.gain(used))
                state, info = trainer.step(
                    state, batch, gain=gain, rate=self._rate(budget, used, before.step)
                )
                position = before.after_batch()
                if info is None:
                    continue
                if (mean := window.add(info, step)) is not None:
                    progress.record(mean, position.epochs(share), share=used)
                if monitor.plateau_after(state, info) and ending is None:
                    ending = position.epochs(share)
                position = replace(position, ending=ending)
                checkpointer.after_step(state, position, trainer, progress, monitor)
        except KeyboardInterrupt:
            return Trained(state, position.step, converged=False, interrupted=True)
        if not progress.history and (mean := window.rest()) is not None:
            progress.record(mean, position.epochs(share))  # what comes after goes by a step's seconds
        return Trained(monitor.best_or(state), position.step, converged=True, interrupted=False)

    def _budget(self, ending: float | None, epochs: float, seconds: float) -> Budget:
        """The budget as it stands, given the epochs and seconds of this run so far."""
        budget = self.budget if ending is None else self.budget.ending_soon(ending)
        if epochs == 0.0 or not np.isfinite(budget.max_seconds):
            return budget
        return budget.without_polishing(seconds / epochs)

    def _rate(self, budget: Budget, used: float, step: int) -> float:
        """Factor on the optimiser's steps: it cools with the budget, and few steps must go further."""
        expected = step / used if used > 0.0 else np.inf
        haste = math.sqrt(self.steps_at_rate / expected) if expected > 0.0 else 1.0
        return budget.rate(used) * min(max(1.0, haste), _MOST_HASTE)

    def _batches(self, trainer: Trainer, position: Position) -> Iterator[tuple[Position, Block]]:
        """Every minibatch from a position on, without end, with the position before it."""
        while True:
            rng = np.random.default_rng([self.seed, position.epoch])
            batches = trainer.engine.batches(self.batch_size, rng, skip=position.batch)
            for batch in batches:
                yield position, batch
                position = position.after_batch()
            position = replace(position, epoch=position.epoch + 1, batch=0)
