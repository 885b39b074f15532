"""The history of a fit and its messages to the user.

All methods record the same numbers, so that their curves can be compared. A progress bar or a log can
follow a fit: ``with reporting(reporter): model.fit(…)``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from cavity.inference.clock import Clock
from cavity.inference.notebook import notebook_bar


@dataclass(frozen=True)
class Iteration:
    """One iteration of a fit, as seen before its step."""

    iteration: int
    """Number of the iteration, from 1."""
    objective: float
    """What training maximises: log Z_q (EP) or the ELBO (VI), plus the log density of the
    hyper-parameters, minus the trace penalty. A minibatch estimates it for all rows; in the first epoch
    of EP that estimate lacks the sites of the rows that are not visited yet."""
    leave_one_out: float
    """Mean log probability of a row's label, with the row left out."""
    gradient_norm: float
    seconds: float
    """Seconds since the fit began."""
    epochs: float
    """Passes over the data so far."""

    def as_dict(self) -> dict[str, float]:
        """The record as a plain dictionary, ready for JSON or a data frame."""
        return asdict(self)


class Reporter(Protocol):
    """An object that is called after every iteration of a fit, such as a progress bar."""

    def update(self, iteration: Iteration, share: float | None) -> None:
        """Called after an iteration; share: part of the budget that is used, None without a budget."""
        ...


@runtime_checkable
class SweepReporter(Reporter, Protocol):
    """A reporter that is also called after every exact sweep after training."""

    def sweep(self, number: int, change: float) -> None:
        """Called after sweep `number`, from 1; change: by how much another would move the sites."""
        ...


@runtime_checkable
class StageReporter(Reporter, Protocol):
    """A reporter that is also told what a fit is doing before its iterations."""

    def stage(self, words: str) -> None:
        """Called when a part of a fit begins or ends."""
        ...


_reporter: ContextVar[Reporter | None] = ContextVar("cavity_reporter", default=None)


@contextmanager
def reporting(reporter: Reporter) -> Iterator[None]:
    """A context in which every fit calls `reporter` after each of its iterations.

    The reporter is called in the thread of the fit, between two steps, so it should be quick.

    >>> from sklearn.datasets import make_moons
    >>> from cavity import SEPClassifier
    >>> class Last:
    ...     def update(self, iteration, share):
    ...         self.seen = iteration.iteration, share
    >>> last = Last()
    >>> X, y = make_moons(50, noise=0.2, random_state=0)
    >>> with reporting(last):
    ...     model = SEPClassifier(n_inducing=5, batch_size=10, max_epochs=4, random_state=0).fit(X, y)
    >>> last.seen
    (20, 1.0)
    """
    token = _reporter.set(reporter)
    try:
        yield
    finally:
        _reporter.reset(token)


def current_reporter() -> Reporter | None:
    """The reporter of the innermost `reporting` around the caller, if any."""
    return _reporter.get()


@dataclass(frozen=True)
class StepInfo:
    """What a step has computed, at the parameters before it."""

    objective: float
    """log Z_q or ELBO, plus the log density of the hyper-parameters."""
    mean_log_predictive: float
    gradient_norm: float
    site_change: float
    visited: float = 1.0
    """Share of the step's rows that were visited: with importance subsampling, some represent others."""


class RunningInfo:
    """Averages the infos of `every` steps: minibatches are noisy, and a long run has many of them.

    `pending` holds the steps since the last average; the list is changed in place.
    """

    def __init__(self, every: int, pending: list[StepInfo]) -> None:
        self.every = every
        self._pending = pending

    def add(self, info: StepInfo, step: int) -> StepInfo | None:
        """The mean of the steps since the last multiple of `every`, if this one is the next."""
        self._pending.append(info)
        return None if step % self.every else self.rest()

    def rest(self) -> StepInfo | None:
        """The mean of the pending steps; None if there are none."""
        if not self._pending:
            return None
        means = np.mean([list(vars(seen).values()) for seen in self._pending], axis=0)
        self._pending.clear()
        return StepInfo(*means.tolist())


class Progress(Clock):
    """Clock and history of a fit; if `verbose`, it prints lines to standard error, or shows a bar in a
    notebook.

    It calls the reporter of the `reporting` context in which it was made after every iteration.
    """

    def __init__(
        self,
        verbose: int = 0,
        iterations_before: int = 0,
        *,
        n_rows: int = 0,
        status: Callable[[float], str] | None = None,
        within: Clock | None = None,
    ) -> None:
        """Start the clock.

        status: text to add to a line, given the rows visited per second; within: the clock of the fit
        that this is a part of, whose own reporter is the one to call.
        """
        super().__init__(within)
        self.verbose = verbose
        self._n_rows = n_rows
        self._status = status
        self._last_record = (0.0, 0.0)
        self._iterations_before = iterations_before
        self.history: list[Iteration] = []
        self.pending: list[StepInfo] = []
        """Minibatch steps since the last record."""
        self._last_line = -1.0
        self._reporter = current_reporter() if within is None else None
        self._bar = notebook_bar(continues=iterations_before > 0) if verbose else None

    def record(self, info: StepInfo, epochs: float, share: float | None = None) -> Iteration:
        """Add an iteration to the history; share: part of the budget that is used, if any."""
        entry = Iteration(
            iteration=self._iterations_before + len(self.history) + 1,
            objective=info.objective,
            leave_one_out=info.mean_log_predictive,
            gradient_norm=info.gradient_norm,
            seconds=self.seconds,
            epochs=epochs,
        )
        self.history.append(entry)
        share = None if share is None else min(1.0, share)
        self._show(entry, share)
        if self._reporter is not None:
            self._reporter.update(entry, share)
        return entry

    def swept(self, number: int, change: float) -> None:
        """Report an exact sweep after training; the history does not record it."""
        if self._bar is not None:
            self._bar.sweep(number, change)
        if isinstance(self._reporter, SweepReporter):
            self._reporter.sweep(number, change)

    def stage(self, words: str) -> None:
        """Report what the fit is doing before its iterations."""
        self.say(words)
        if isinstance(self._reporter, StageReporter):
            self._reporter.stage(words)

    def finish(self) -> None:
        """Report the end of the fit, if a bar shows it."""
        if self._bar is not None:
            self._bar.finish(self.history[-1] if self.history else None, self.seconds)

    def _show(self, entry: Iteration, share: float | None) -> None:
        if self._bar is not None:
            self._bar.update(entry, share)
            return
        pause = 1.0 if self.verbose == 1 else 0.0
        if self.verbose and entry.seconds - self._last_line >= pause:
            self._last_line = entry.seconds
            self.say(
                f"iteration {entry.iteration:5d}  epochs {entry.epochs:7.2f}  "
                f"objective {entry.objective:14.4f}  "
                f"leave-one-out NLL {-entry.leave_one_out:.4f}  {entry.seconds:7.1f} s"
                f"{self._more(entry)}"
            )

    def _more(self, entry: Iteration) -> str:
        if self._status is None:
            return ""
        epochs, seconds = entry.epochs - self._last_record[0], entry.seconds - self._last_record[1]
        self._last_record = (entry.epochs, entry.seconds)
        return self._status(self._n_rows * max(0.0, epochs) / max(seconds, 1e-9))

    def say(self, *words: object) -> None:
        """Print a line for the user, if `verbose`, or show it beside the bar."""
        if self._bar is not None:
            self._bar.stage(" ".join(map(str, words)))
        elif self.verbose:
            print(*words, file=sys.stderr, flush=True)
