"""A race between configurations on held-out rows: it decides what each "auto" means for these rows.

Some rows are held out once, the same ones for every configuration. Candidates are trained for a short
time and scored on these rows. One question is asked after the other, each about the best candidate so
far; `cavity.inference.candidates` has the questions. The last ones get longer trials. They begin at the
kernel parameters that earlier ones have learned with fewer points, where steps are cheap, and so does
the training of the winner.

Trials of one length may take the same seconds or, without a clock, the same work: a pass over n rows
with m points is O(nm²). Candidates that the winner may grow to get twice as much, since they learn more
slowly at first: after equal seconds more points often seem worse that are better in the whole fit.

Where the sharp model is not better by more than a standard error, the safe one is chosen (the
one-standard-error rule of Breiman et al., 1984): the scores then do not tell them apart, and its
uncertainty can be trusted. In the same way the safe model keeps the default kernel unless another one is
better.

A candidate's score depends on its configuration, the seed and the length of its trial alone. So with a
budget in epochs the result does not depend on the clock, on the number of threads or on the order of the
candidates.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from threading import Condition
from typing import NamedTuple, TypeAlias

import numpy as np

from cavity.data.sampling import HeldOut
from cavity.data.scaling import Scaling
from cavity.data.source import RowSource, with_feature_set
from cavity.engines.backend import Backend
from cavity.errors import NumericalError
from cavity.gp.leaves import LocalPrior
from cavity.inference.candidates import GROWN_LENGTH, Candidate, Entrants, distinct
from cavity.inference.checkpoint import Checkpointer
from cavity.inference.checkpoint_file import Fingerprint
from cavity.inference.config import TrainingConfig
from cavity.inference.converge import NOT_SCORED, HeldOutScore
from cavity.inference.history import Progress
from cavity.inference.race_records import (
    Race,
    RaceEntry,
    RaceLog,
    Trial,
    entry_of,
    preferred,
    rank,
    trial_key,
)
from cavity.inference.start import MakeStart, Start, learn_scaling, prepare
from cavity.inference.train import held_out_moments, train_steps
from cavity.inference.trainer import Trainer, TrainingState
from cavity.typing import Array

RACE_SHARE = 0.35
"""Share of max_seconds that the race takes."""
EPOCHS_SHARE = 1.0 / 15.0
"""Length of a trial in units of max_epochs, without max_seconds."""
DOUBLE_COST = 8
"""Cost of a step with twice as many inducing points."""
STEPS_SHARE = 0.85
"""Share of a trial's seconds that its steps may take; the rest is for its start and its score."""
SHORTEST_TRIAL = 1e-3
"""Seconds of a trial if no time is left: it takes a single step."""
START_DIGITS = 3
"""Decimals of the kernel parameters, on log scale, at which later training begins."""
LOSS_DIGITS = 6
"""Decimals of the losses of held-out rows."""


class RaceDecision(NamedTuple):
    """What a fit is to do, and the race that has decided it, if there was one."""

    config: TrainingConfig
    """The configuration of the whole fit."""
    race: Race | None = None
    stopped: Trial | None = None
    """The trial of the winner, if the user has stopped the race."""
    scaling: Scaling | None = None
    """The scaling of its inputs, if a trial has needed it."""


Configure: TypeAlias = Callable[[Candidate], TrainingConfig]
"""Makes the configuration of a whole fit with the fields of a candidate."""


class Prepared(NamedTuple):
    """Where the trial of a candidate begins."""

    candidate: Candidate
    length: int
    config: TrainingConfig
    scaling: Scaling
    start: Start
    epochs: float
    """Epochs of the whole fit, by which the trial's are counted."""


@dataclass
class _Runner:
    """Runs trials, each candidate and length once."""

    source: RowSource
    held_out: HeldOut
    backend: Backend
    configure: Configure
    make_start: MakeStart
    entrants: Entrants
    log: RaceLog
    progress: Progress

    def __post_init__(self) -> None:
        self.entries: dict[tuple[Candidate, int], RaceEntry] = {}
        self.losses: dict[tuple[Candidate, int], Array] = {}
        """Losses of the held-out rows [n] after each trial; empty if it failed."""
        self.learned: dict[tuple[Candidate, int], tuple[float, ...]] = {}
        """Kernel parameters at the end of each trial."""
        self.ran: list[tuple[Candidate, int, Trial]] = []
        """Trials that were run, with their lengths; those that the user has stopped are shorter."""
        self._n_running, self._one_ended = 0, Condition()
        self.scalings: dict[tuple[str | None, str | None], Scaling] = {}
        self.preparation = 0.0
        """Seconds that the starts of the last trials took."""
        self.best: tuple[RaceEntry, Trial] | None = None
        self.n_side_by_side = self.backend.n_side_by_side(self.source)
        self.progress.deadline = RACE_SHARE * self.configure(self.entrants.start).max_seconds

    def best_of(self, candidates: Sequence[Candidate], is_last: bool, rounds_left: float) -> RaceEntry:
        """The best of some candidates after their trials.

        is_last: whether the question is about sizes; its trials are longer.
        rounds_left: how long the race will still take with these trials, in trials of length 1 one after
        the other.
        """
        keys = [(c, self.entrants.length(c, is_last)) for c in candidates]
        todo = [key for key in keys if key not in self.entries]
        if len(keys) > 1:
            try:
                began = self.progress.seconds
                prepared = [self._prepared(*key) for key in todo]
                self.preparation = self.progress.seconds - began
                left = STEPS_SHARE * max(0.0, self.progress.seconds_left)
                unit = left / max(1.0, rounds_left)
                if is_last:  # no trial is shorter than those that it is compared with
                    known = (self.entries[key] for key in keys if key in self.entries)
                    unit = max([unit, *(entry.seconds / entry.length for entry in known)])
                for key, trial in zip(todo, self._trials(prepared, unit), strict=True):
                    self._enter(*key, trial)
            except BaseException:
                self.progress.stop()  # the other trials end, too
                raise
        elif todo:
            return entry_of(*todo[0], Trial(NOT_SCORED, 0, 0.0))
        return preferred([(self.entries[key], self.losses[key]) for key in keys], self.held_out.counts)

    def _trials(self, prepared: Sequence[Prepared | Trial], unit: float) -> Iterable[Trial]:
        """Run trials; unit: seconds of a trial of length 1."""
        if len(prepared) == 1:
            return [self._trial(self.backend, prepared[0], unit)]
        return self.backend.side_by_side(
            self.source, lambda backend, one: self._trial(backend, one, unit), prepared
        )

    def can_grow(self, entry: RaceEntry) -> bool:
        """Whether larger trials have time to start and for a step.

        With twice as many points minibatches are twice as large, and a row costs four times as much.
        """
        seconds = entry.seconds / entry.length * GROWN_LENGTH
        return entry.n_steps >= DOUBLE_COST and self.progress.has_time(self.preparation + seconds)

    def recall(self) -> None:
        """Enter all trials of the log."""
        for key in self.log.trials:
            *candidate, length = json.loads(key)
            trial = self.log.get(key)
            assert trial is not None
            self._note(Candidate(*candidate), length, trial)

    def _note(self, candidate: Candidate, length: int, trial: Trial) -> RaceEntry:
        entry = entry_of(candidate, length, trial)
        self.entries[candidate, length] = entry
        self.losses[candidate, length] = trial.losses
        if self.best is None or _last_first(entry) < _last_first(self.best[0]):
            self.best = entry, trial
        if trial.theta:
            self.learned[candidate, length] = trial.theta
        return entry

    def _enter(self, candidate: Candidate, length: int, trial: Trial) -> None:
        entry = self._note(candidate, length, trial)
        self.log.put(trial_key(candidate, length), trial)
        self.progress.stage(
            f"race: held-out NLL {entry.log_loss:.4f} ± {entry.standard_error:.4f} in "
            f"{entry.seconds:.1f} s: {candidate}"
        )

    def _prepared(self, candidate: Candidate, length: int) -> Prepared | Trial:
        """Where a trial begins; or the trial itself, if the log has it.

        Trials side by side must not choose their inducing points at the same time: k-means changes
        settings of the whole process while it runs.
        """
        known = self.log.get(trial_key(candidate, length))
        if known is not None:
            return known
        config = self.whole(candidate) if length > 1 else self.configure(candidate)
        key = config.scaling, config.feature_set
        if key not in self.scalings:
            source = with_feature_set(self.source, config.feature_set)
            self.scalings[key] = learn_scaling(source, config, self.backend)
        scaling = self.scalings[key]
        start = self.make_start(scaling, config)
        return Prepared(candidate, length, config, scaling, start, self.epochs(candidate))

    def whole(self, candidate: Candidate) -> TrainingConfig:
        """The configuration of the whole fit of a candidate."""
        config = replace(self.configure(candidate), kernel_start=self.kernel_start(candidate))
        if "max_epochs" in self.entrants.free:
            config = replace(config, max_epochs=self.epochs(candidate))
        return config

    def epochs(self, candidate: Candidate) -> float:
        """Epochs of a whole fit: no more work than the same model of ordinary size may take."""
        ordinary = self.entrants.of_ordinary_size(candidate)
        return self.configure(ordinary).max_epochs * (ordinary.width / candidate.width) ** 2

    def kernel_start(self, candidate: Candidate) -> tuple[float, ...] | None:
        """Where the training of a candidate begins: at kernel parameters that trials have learned.

        They are those of the same kernel on the same inputs; of the same model if there are any, and
        then of the best trial, of a long one if there was any.
        """
        given = self.configure(candidate).kernel_start
        if given is not None:
            return given
        alike = [
            (
                (one.n_leaves is None) != (candidate.n_leaves is None),
                one[:2] != candidate[:2],
                length == 1,
                rank(self.entries[one, length]),
                theta,
            )
            for (one, length), theta in self.learned.items()
            if one[2:4] == candidate[2:4]
            and one.feature_set == candidate.feature_set
            and (one.n_leaves is None or candidate.n_leaves is not None)
        ]
        return min(alike)[-1] if alike else None

    def _trial(self, backend: Backend, prepared: Prepared | Trial, unit: float) -> Trial:
        if isinstance(prepared, Trial):
            return prepared
        with self._one_ended:
            self._n_running += 1
        try:
            if self.progress.interrupted:
                raise KeyboardInterrupt
            trial, is_whole = self._trained(backend, prepared, unit)
            self.ran.append((prepared.candidate, prepared.length, trial))
            if not is_whole:
                self.progress.stop()  # the trials beside it end, too
                raise KeyboardInterrupt
            return trial
        finally:
            with self._one_ended:
                self._n_running -= 1
                self._one_ended.notify_all()

    def stop(self) -> None:
        """Enter the trials that were run, as far as they have come, if none was entered before."""
        if self.best is None:
            with self._one_ended:
                self._one_ended.wait_for(lambda: not self._n_running)
            for candidate, length, trial in self.ran:
                if trial.n_steps:
                    self._note(candidate, length, trial)

    def _trained(self, backend: Backend, prepared: Prepared, unit: float) -> tuple[Trial, bool]:
        """A trial, and whether it has come to its end."""
        _, length, config, scaling, start, epochs = prepared
        config = replace(
            config,
            max_epochs=EPOCHS_SHARE * length * epochs,
            max_seconds=max(unit * length, SHORTEST_TRIAL),
            early_stopping=None,
        )
        progress = Progress(within=self.progress)
        source = with_feature_set(self.source, config.feature_set)
        held_out = self.held_out.leading(source.n_features)
        nowhere = Checkpointer(None, math.inf, Fingerprint)
        try:
            problem = prepare(source, config, backend, scaling=scaling, start=start, held_out=held_out)
            trainer, trained = train_steps(problem, config, progress, nowhere)
            moments = held_out_moments(trainer, trained.state)
            losses = moments.losses(config.residual_scale)
        except (NumericalError, np.linalg.LinAlgError, MemoryError):
            return Trial(HeldOutScore(math.inf, 0.0, 0), 0, progress.seconds), True
        losses = losses.round(LOSS_DIGITS)  # as the log keeps them
        theta = trained.state.x[: trainer.problem.space.n_theta]
        # A start need not be exact, and a configuration is for reading, too.
        learned = tuple(round(float(value), START_DIGITS) for value in theta)
        end = _end(trainer, trained.state)
        score = moments.score_of(losses)
        trial = Trial(score, trained.n_steps, progress.seconds, learned, losses, end)
        return trial, not progress.interrupted


def _end(trainer: Trainer, state: TrainingState) -> Start:
    """Where a trial has ended."""
    problem = trainer.problem
    kernel, Z = problem.space.unpack(state.x)
    prior = trainer.update.located(problem.prior(state.x), state.q)
    return Start(
        replace(problem.space, kernel=kernel, Z=Z),
        problem.hyperprior.centre,
        trainer.update.posterior(state.q, prior),
        leaves=prior.leaves if isinstance(prior, LocalPrior) else None,
    )


def _last_first(entry: RaceEntry) -> tuple[bool, float]:
    """Trials of the questions about sizes first, and better entries first among them."""
    return (entry.length == 1, entry.log_loss)


def race(
    source: RowSource,
    held_out: HeldOut,
    backend: Backend,
    entrants: Entrants,
    configure: Configure,
    make_start: MakeStart,
    progress: Progress,
    log: RaceLog,
) -> RaceDecision:
    """Find the best candidate for these rows.

    configure: the configuration of a whole fit with a candidate's fields, whose budget the race shares.
    """
    runner = _Runner(source, held_out, backend, configure, make_start, entrants, log, progress)
    if log.winner is not None:
        runner.recall()
        return _decision(runner, log.winner)
    best, stopped, tried = entrants.start, None, list[Candidate]()
    rounds = _rounds(entrants, runner.n_side_by_side)
    questions = (
        lambda _: entrants.models(),
        entrants.scalings,
        entrants.further_features,  # scaled well, columns may not need them
        entrants.kernels,
    )
    with progress.until_interrupted() as block:
        for i, question in enumerate(questions):
            if i == 0 or progress.has_time():
                best = runner.best_of(question(best), False, sum(rounds[i:])).candidate
        left, more = rounds[len(questions) :], entrants.sizes(best)
        while more and progress.has_time():
            tried = distinct([*tried, *more])
            winner = runner.best_of(tried, True, sum(left) or GROWN_LENGTH)
            best, left = winner.candidate, left[1:]
            more = entrants.larger(best) if best in more and runner.can_grow(winner) else []
    if block.interruption is not None:
        runner.stop()
        if runner.best is None:
            raise block.interruption
        best, stopped = runner.best[0].candidate, runner.best[1]
    return _decision(runner, best, stopped)


def _decision(runner: _Runner, best: Candidate, stopped: Trial | None = None) -> RaceDecision:
    """The decision for a candidate; stopped: its trial, if the user has stopped the race."""
    entries = [replace(e, chosen=e.candidate == best) for e in runner.entries.values()]
    entries.sort(key=lambda e: (*_last_first(e), str(e.candidate)))
    seconds = runner.progress.seconds
    seconds = runner.log.decided(best, seconds) if stopped is None else seconds
    config, race = runner.whole(best), Race(tuple(entries), seconds)
    return RaceDecision(config, race, stopped, runner.scalings.get((config.scaling, config.feature_set)))


def _rounds(entrants: Entrants, n_side_by_side: int) -> list[float]:
    """How long each question takes, in trials of length 1 one after the other."""
    start, sizes = entrants.start, entrants.sizes(entrants.start)
    larger = entrants.larger(sizes[0])
    again = entrants.larger(larger[0]) if larger else []
    rounds = [
        (len(entrants.models()), 1),
        (len(entrants.scalings(start)) - 1, 1),
        (len(entrants.further_features(start)) - 1, 1),
        (len(entrants.kernels(start)) - 1, 1),
        (len(sizes), entrants.length(sizes[-1], True)),
        (len({*larger} - {*sizes}), GROWN_LENGTH),
        (len({*again} - {*larger}), GROWN_LENGTH),  # the winner grows more if time is left
    ]
    return [math.ceil(n / n_side_by_side) * length for n, length in rounds]
