"""Batch training: every iteration is one sweep over all rows and one step of the parameters.

Stochastic training: minibatches refine their sites, q is an average, parameters follow.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from cavity.data.source import Block
from cavity.errors import SourceError
from cavity.inference.checkpoint import Checkpointer, Position
from cavity.inference.history import Iteration, Progress, RunningInfo
from cavity.inference.schedule import Budget, Monitor
from cavity.inference.trainer import Trained, Trainer, TrainingState

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


_RECORDS_PER_EPOCH = 50
_MOST_BOOST = 2.5
"""Factor at most on the steps of a run that has few of them."""


@dataclass(frozen=True)
class StochasticSchedule:
    """Minibatches in random order until a budget is used up.

    Each minibatch stands for all rows: its sums, scaled up, are averaged into q's naturals with the
    gain max(1/t, smallest), and its scaled gradient moves the parameters. Most of its rows whose labels
    are all but certain may be left out, a few standing for them. Towards the end of the budget gains and
    steps shrink. The order of epoch e depends on (seed, e) alone, so a run that is resumed at a position
    sees the same minibatches as one that was never stopped.
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
        every = max(1, math.ceil(1.0 / (share * _RECORDS_PER_EPOCH)))
        window = RunningInfo(every, progress.pending)
        ending, begun, visited = position.ending, progress.seconds, 0.0
        resumed, interrupted = position.step, False
        try:
            for before, batch in self._batches(trainer, position):
                epochs, seconds = before.epochs(share), progress.seconds
                planned = self._planned(visited, seconds - begun)
                budget = planned if ending is None else planned.ending_soon(ending)
                used = budget.used(epochs, seconds)
                if used >= 1.0 and before.step:  # one step at least, or there is nothing learned at all
                    break
                step = before.step + 1
                gain = max(1.0 / step, self.smallest_gain * budget.gain(used))
                done = before.step - resumed
                steps = _expected_steps(resumed, done, seconds - begun, planned.max_seconds - begun)
                rate = budget.rate(used) * self._rate_boost(min(steps, planned.max_epochs / share))
                state, info = trainer.step(state, batch, gain=gain, rate=rate)
                position = before.after_batch()
                if info is None:
                    visited += share
                    continue
                visited += share * info.visited
                if (mean := window.add(info, step)) is not None:
                    now = position.epochs(share)
                    progress.record(mean, now, share=budget.used(now, progress.seconds))
                if monitor.plateau_after(state, info) and ending is None:
                    ending = position.epochs(share)
                position = replace(position, ending=ending)
                checkpointer.after_step(state, position, trainer, progress, monitor)
        except KeyboardInterrupt:
            interrupted = True
        if not progress.history and (mean := window.rest()) is not None:
            progress.record(mean, position.epochs(share))  # what comes after goes by a step's seconds
        return Trained(
            monitor.best_or(state),
            position.step,
            converged=not interrupted,
            interrupted=interrupted,
            seconds_per_epoch=(progress.seconds - begun) / visited if visited else None,
        )

    def _planned(self, visited: float, seconds: float) -> Budget:
        """The whole budget, given how often this run has looked at all rows, in which seconds."""
        if visited == 0.0 or not np.isfinite(self.budget.max_seconds):
            return self.budget
        return self.budget.without_polishing(seconds / visited)

    def _rate_boost(self, steps: float) -> float:
        """Factor on the optimiser's steps in a run of so many: few of them must go further."""
        return min(max(1.0, math.sqrt(self.steps_at_rate / steps)), _MOST_BOOST)

    def _batches(self, trainer: Trainer, position: Position) -> Iterator[tuple[Position, Block]]:
        """Every minibatch from a position on, without end, with the position before it."""
        while True:
            rng = np.random.default_rng([self.seed, position.epoch])
            batches = trainer.engine.batches(self.batch_size, rng, skip=position.batch)
            for batch in batches:
                yield position, batch
                position = position.after_batch()
            if position.batch == 0:  # it would go on like this for ever
                raise SourceError(
                    f"batches({self.batch_size}) of the source has no minibatch in epoch "
                    f"{position.epoch}; it must yield all rows once: try cavity.data.check_source"
                )
            position = replace(position, epoch=position.epoch + 1, batch=0)


def _expected_steps(resumed: int, done: int, seconds: float, most: float) -> float:
    """Steps of a run, of which some were taken before and others now, if `most` seconds are left to it.

    The pace is that of the steps taken now; before a run's very first step, that may be its last.

    >>> _expected_steps(50, 10, 2.0, 60.0), _expected_steps(0, 0, 0.0, 60.0)
    (350.0, 1)
    >>> _expected_steps(0, 0, 0.0, np.inf)
    inf
    """
    if done and seconds > 0.0:
        return resumed + done * most / seconds
    return 1 if np.isfinite(most) and not resumed else np.inf
