"""The progress of a fit: its clock, its history, and its messages to the user.

All methods record the same numbers, so that their curves can be compared. A progress bar or a log can
follow a fit: ``with reporting(reporter): model.fit(…)``. Ctrl-C is caught by the clock and nowhere else:
a loop that can end early runs inside `until_interrupted`, and what it has found by then is its result.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from html import escape
from importlib import import_module
from typing import Any, Protocol, runtime_checkable

import numpy as np

GRACE_SECONDS = 2.0
"""Seconds that a fit may still take after the user has stopped it, to make its posterior exact."""


@dataclass
class Interruptible:
    """A block of `Clock.until_interrupted`."""

    interruption: KeyboardInterrupt | None = None
    """What has ended it early, if anything has; to be raised again if nothing has been found."""

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C has ended it."""
        return self.interruption is not None


class Clock:
    """Counts the seconds of a fit and knows when they end.

    >>> clock = Clock()
    >>> with clock.until_interrupted():
    ...     found = 3
    ...     raise KeyboardInterrupt
    >>> found, clock.interrupted, clock.has_time(), clock.has_time(60.0)
    (3, True, True, False)
    """

    def __init__(self, within: Clock | None = None) -> None:
        """Start the clock; within: a clock that stops this one, too, when it is stopped."""
        self._started = time.perf_counter()
        self._within = within
        self._stopped = False
        self.deadline = np.inf
        """Second at which the budget ends."""

    def resume_at(self, seconds: float) -> None:
        """Set the clock to the seconds that the fit had taken when it was interrupted."""
        self._started = time.perf_counter() - seconds

    @property
    def seconds(self) -> float:
        """Seconds since the fit began."""
        return time.perf_counter() - self._started

    @property
    def seconds_left(self) -> float:
        """Seconds until the deadline; negative after it."""
        return self.deadline - self.seconds

    def has_time(self, seconds: float = 0.0) -> bool:
        """Whether something that takes so many seconds ends before the deadline."""
        return self.seconds + seconds <= self.deadline

    @property
    def interrupted(self) -> bool:
        """Whether the user has stopped the fit."""
        return self._stopped or (self._within is not None and self._within.interrupted)

    def stop(self) -> None:
        """Stop the fit: loops end, and what must follow them has two seconds."""
        self._stopped = True
        self.deadline = min(self.deadline, self.seconds + GRACE_SECONDS)

    @contextmanager
    def until_interrupted(self) -> Iterator[Interruptible]:
        """A block that Ctrl-C ends early, without an error; it also stops the clock."""
        block = Interruptible()
        try:
            yield block
        except KeyboardInterrupt as error:
            block.interruption = error.with_traceback(None)  # which would keep arrays in memory
            self.stop()


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


@runtime_checkable
class RowsReporter(Reporter, Protocol):
    """A reporter that is also told how many rows a fit has."""

    def begin(self, n_rows: int) -> None:
        """Called when the rows have been read, before the fit looks for its initial parameters."""
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
        if n_rows and isinstance(self._reporter, RowsReporter):
            self._reporter.begin(n_rows)
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

    def finish(self, score: str | None = None) -> None:
        """Report the end of the fit; score: how good it is on held-out rows, in words."""
        if self._bar is not None:
            words = "done" if not self.history else _status(self.history[-1])
            self._bar.finish(score or words, self.seconds)
        elif score is not None:
            self.say(score)

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


_PAUSE = 0.1
"""Seconds between two updates at least: each is a message to the browser."""


class NotebookBar:
    """A bar with words under it, in the output of a notebook's cell."""

    def __init__(self, display: Callable[..., Any], clock: Callable[[], float] = time.monotonic) -> None:
        """display: IPython's function of that name."""
        self.words = "starting …"
        self.share: float | None = None
        self._clock, self._shown = clock, clock()
        self._handle = display(self, display_id=True)

    def stage(self, words: str) -> None:
        """Show what the fit is doing before its iterations."""
        self._show(words, None, at_once=True)

    def update(self, iteration: Iteration, share: float | None) -> None:
        """Show an iteration, which has used that share of the budget."""
        words = _status(iteration)
        if share and (left := iteration.seconds * (1.0 / share - 1.0)) >= 1.0:
            words += f", {left:.0f} s left"
        self._show(words, share)

    def sweep(self, number: int, change: float) -> None:
        """Show an exact sweep after training."""
        self._show(f"exact sweep {number}, sites changed by {change:.2g}", 1.0)

    def finish(self, words: str, seconds: float) -> None:
        """Show that the fit has ended."""
        self._show(f"{words}, {seconds:.1f} s", 1.0, at_once=True)

    def _show(self, words: str, share: float | None, at_once: bool = False) -> None:
        self.words, self.share = words, share
        now = self._clock()
        if at_once or now - self._shown >= _PAUSE:
            self._shown = now
            self._handle.update(self)

    def __repr__(self) -> str:
        return self.words if self.share is None else f"{self.share:.0%}, {self.words}"

    def _repr_html_(self) -> str:
        value = "" if self.share is None else f' value="{self.share:.4f}"'
        return (
            f'<div><progress max="1"{value} aria-label="progress of the fit" style="width:20em">'
            f'</progress> <span style="font-variant-numeric:tabular-nums">{escape(self.words)}</span>'
            "</div>"
        )


def _status(iteration: Iteration) -> str:
    return f"iteration {iteration.iteration:,}, leave-one-out NLL {-iteration.leave_one_out:.4f}"


_bar_of_cell: tuple[object, NotebookBar] | None = None
"""The last bar, and the number of the cell that shows it."""


def notebook_bar(continues: bool = False) -> NotebookBar | None:
    """A bar, if this code runs in a notebook; None elsewhere.

    continues: whether this is the next chunk of a stream, which uses the bar of its cell again.
    """
    global _bar_of_cell
    shell = _shell()
    if shell is None:
        return None
    cell = shell.execution_count
    if not (continues and _bar_of_cell is not None and _bar_of_cell[0] == cell):
        _bar_of_cell = cell, NotebookBar(import_module("IPython.display").display)
    return _bar_of_cell[1]


def tell(words: str) -> None:
    """Print a line for the user: in the output of a notebook's cell, else on standard error."""
    print(words, file=sys.stderr if _shell() is None else sys.stdout, flush=True)


def _shell() -> Any:
    """The shell of the notebook in which this code runs, or None."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell if hasattr(shell, "kernel") else None  # in a terminal, IPython has no kernel
