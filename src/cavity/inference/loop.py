"""The training loop: batches of rows until a budget is used up or the objective stops rising.

Training on all rows and on minibatches is the same loop: a batch is then all rows or some of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from cavity.data.source import Block
from cavity.errors import SourceError
from cavity.inference.checkpoint import Checkpointer, Position, Run
from cavity.inference.config import TrainingConfig
from cavity.inference.history import Iteration, Progress, RunningInfo
from cavity.inference.schedule import Budget
from cavity.inference.trainer import Batch, Trainer, TrainingState

_WINDOW = 10
"""Iterations whose median objective is compared with that of the window before."""
_WARM_UP = 10
"""First steps on all rows, which the test of convergence ignores."""
_RECORDS_PER_EPOCH = 50
"""Iterations of an epoch that `history_` and the progress line show, about."""
_MOST_BOOST = 2.5
"""Largest factor by which a run of few steps lengthens them."""


@dataclass(frozen=True)
class LoopResult:
    """Where a training run ended."""

    state: TrainingState
    n_steps: int
    converged: bool
    seconds_per_epoch: float | None = None
    """Seconds of one pass over all rows, if a step has been timed."""


def batches(trainer: Trainer, config: TrainingConfig) -> Iterator[Batch]:
    """The batches of a training run, with gains and rates that shrink towards the end of its budget.

    The order of the rows depends on the seed and the number of the epoch only.
    """
    n_rows, progress = trainer.engine.n_rows, Progress()
    plan = StepPlan(config, Budget.of(config), n_rows, 0, progress.seconds)
    for position, rows in draws(trainer, config, Position()):
        batch = plan.batch(position, rows, progress.seconds)
        if batch is None:
            return
        yield batch
        plan.visited += plan.share


def run(begun: Run, config: TrainingConfig, budget: Budget, checkpointer: Checkpointer) -> LoopResult:
    """Go on with a run until the budget is used up or training has converged."""
    trainer, state, position, progress, monitor = begun
    whole = config.batch_size is None
    plan = StepPlan(config, budget, trainer.engine.n_rows, position.step, progress.seconds)
    plan.ending = position.ending
    every = max(1, math.ceil(1.0 / (plan.share * _RECORDS_PER_EPOCH)))
    window = RunningInfo(every, progress.pending)
    n_recorded = trainer.engine.n_commits
    with progress.until_interrupted():
        for before, rows in draws(trainer, config, position):
            batch = plan.batch(before, rows, progress.seconds)
            if batch is None or progress.interrupted:
                break
            state, info = trainer.step(state, batch)
            position = before.after_step(whole)
            plan.visited += plan.share * (1.0 if info is None else info.visited)
            if info is None:
                n_recorded = trainer.engine.n_commits
                continue
            now = position.epochs(plan.share)
            if (mean := window.add(info, position.step)) is not None:
                progress.record(mean, now, share=plan.budget.used(now, progress.seconds))
            plateau = monitor.plateau_after(state, info)
            if whole:
                plateau = plateau or _stands_still(progress.history, config.tol)
            if plateau and plan.ending is None:
                plan.ending = now
            position = replace(position, ending=plan.ending)
            n_recorded = trainer.engine.n_commits
            checkpointer.after_step(begun._replace(state=state, position=position))
    if progress.interrupted:
        exact = n_recorded == trainer.engine.n_commits
        checkpointer.at_interruption(begun._replace(state=state, position=position), exact)
    if not progress.history and (mean := window.rest()) is not None:
        progress.record(mean, position.epochs(plan.share))
    return LoopResult(
        monitor.best_or(state),
        position.step,
        converged=not progress.interrupted and (not whole or plan.ending is not None),
        seconds_per_epoch=plan.seconds_per_epoch(progress.seconds),
    )


class StepPlan:
    """How gains and rates change over a run, given the budget that is left."""

    def __init__(
        self, config: TrainingConfig, budget: Budget, n_rows: int, resumed: int, seconds: float
    ) -> None:
        self.config = config
        self.whole_budget = budget
        self.budget = budget
        """The budget of the training steps alone; it becomes shorter once training has converged."""
        self.share = 1.0 if config.batch_size is None else config.batch_size / n_rows
        """Share of the rows that a batch has."""
        self.resumed = resumed
        """Steps before this run, from a checkpoint."""
        self.began = seconds
        self.visited = 0.0
        """Passes over all rows of this run, counting only the rows that were looked at."""
        self.ending: float | None = None
        """Epochs at which training was found to have converged."""

    def batch(self, position: Position, rows: Block | None, seconds: float) -> Batch | None:
        """The batch of some rows at a position; None if the budget is used up."""
        planned = self._planned(seconds)
        self.budget = planned if self.ending is None else planned.ending_soon(self.ending)
        used = self.budget.used(position.epochs(self.share), seconds)
        if used >= 1.0 and position.step:  # one step at least, or nothing is learned at all
            return None
        rate = self.budget.rate(used) * self._rate_boost(planned, position, seconds)
        if rows is None:
            return Batch(None, 1.0, rate)
        gain = max(1.0 / (position.step + 1), self.config.smallest_gain * self.budget.gain(used))
        return Batch(rows, gain, rate)

    def seconds_per_epoch(self, seconds: float) -> float | None:
        """Seconds of a pass over all rows, if there was any."""
        return (seconds - self.began) / self.visited if self.visited else None

    def _planned(self, seconds: float) -> Budget:
        pace = self.seconds_per_epoch(seconds)
        if pace is None or not np.isfinite(self.whole_budget.max_seconds):
            return self.whole_budget
        return self.whole_budget.of_the_steps(pace)

    def _rate_boost(self, planned: Budget, position: Position, seconds: float) -> float:
        """Factor on the optimiser's steps: a run of few minibatches must take longer ones."""
        if not self.config.full_rate_steps:
            return 1.0
        done, most = position.step - self.resumed, planned.max_seconds - self.began
        steps = min(
            expected_steps(self.resumed, done, seconds - self.began, most),
            planned.max_epochs / self.share,
        )
        return min(max(1.0, math.sqrt(self.config.full_rate_steps / steps)), _MOST_BOOST)


def draws(
    trainer: Trainer, config: TrainingConfig, position: Position
) -> Iterator[tuple[Position, Block | None]]:
    """The rows of every step from a position on, without end, with the position before it."""
    if config.batch_size is None:
        while True:
            yield position, None
            position = position.after_step(whole=True)
    while True:
        rng = np.random.default_rng([config.seed, position.epoch])
        for rows in trainer.engine.batches(config.batch_size, rng, skip=position.batch):
            yield position, rows
            position = position.after_step(whole=False)
        if position.batch == 0:
            raise SourceError(
                f"batches({config.batch_size}) of the source has no minibatch in epoch "
                f"{position.epoch}; it must yield all rows once: try cavity.data.check_source"
            )
        position = replace(position, epoch=position.epoch + 1, batch=0)


def expected_steps(resumed: int, done: int, seconds: float, most: float) -> float:
    """Steps of a run, some taken before and some now, if it may take `most` seconds from now on.

    The pace is that of the steps taken now; a run's very first step may be its last.

    >>> expected_steps(50, 10, 2.0, 60.0), expected_steps(0, 0, 0.0, 60.0)
    (350.0, 1)
    >>> expected_steps(0, 0, 0.0, np.inf)
    inf
    """
    if done and seconds > 0.0:
        return resumed + done * most / seconds
    return 1 if np.isfinite(most) and not resumed else np.inf


def _stands_still(history: list[Iteration], tol: float) -> bool:
    """Whether the median objective of the last 10 iterations changed by less than tol·|objective|."""
    if len(history) < _WARM_UP + 2 * _WINDOW:
        return False
    values = [entry.objective for entry in history[-2 * _WINDOW :]]
    before, now = median(values[:_WINDOW]), median(values[_WINDOW:])
    return abs(now - before) < tol * max(1.0, abs(before))
