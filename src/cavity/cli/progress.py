"""Ctrl-C while a classifier is fitted: the command ends, though a fit would return what it has.

The one progress bar: of fits, of predictions and of the demo; plain lines where nobody looks.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from cavity.cli import settings
from cavity.inference.history import Iteration, reporting


@contextmanager
def shown_until_interrupted(watcher: Watcher) -> Iterator[None]:
    """Fits in this block report to the watcher; Ctrl-C raises `KeyboardInterrupt` at their ends.

    Not at once: a fit that is interrupted ends in good order, and closes its files and its workers.
    """
    with _interrupts_noted() as interrupted:
        reporter = _UntilInterrupted(watcher, interrupted)
        with reporting(reporter):
            yield
        reporter.check()


class _UntilInterrupted:
    """A reporter that spares an interrupted fit its last sweeps: its result will be thrown away."""

    def __init__(self, watcher: Watcher, interrupted: list[bool]) -> None:
        self._watcher, self._interrupted = watcher, interrupted

    def update(self, iteration: Iteration, share: float | None) -> None:
        self._watcher.update(iteration, share)

    def sweep(self, number: int, change: float) -> None:
        self.check()
        self._watcher.sweep(number, change)

    def check(self) -> None:
        if self._interrupted:
            raise KeyboardInterrupt


@contextmanager
def _interrupts_noted() -> Iterator[list[bool]]:
    """A list that is filled at Ctrl-C."""
    noted: list[bool] = []

    def interrupt(*_: Any) -> None:
        noted.append(True)
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGINT, interrupt)
    except ValueError:  # not in the main thread
        yield noted
        return
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)


class Watcher(Protocol):
    """Whoever shows how work is going; a `cavity.inference.history.Reporter` too."""

    n_rows: int
    """Rows of training, for the rate."""

    def stage(self, words: str) -> None:
        """Work of unknown length begins."""
        ...

    def update(self, iteration: Iteration, share: float | None) -> None:
        """An iteration of a fit."""
        ...

    def sweep(self, number: int, change: float) -> None:
        """An exact sweep at the end of a fit."""
        ...

    def rows(self, done: int, total: int | None) -> None:
        """So many rows have been predicted."""
        ...


@contextmanager
def progress_shown() -> Iterator[Watcher]:
    """A live bar if rich is installed and someone is looking, plain lines otherwise."""
    if settings.quiet:
        yield NullProgress()
        return
    try:
        from rich.console import Console
    except ImportError:
        yield Lines()
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Lines()
        return
    with rich_bar(console) as bar:
        yield Bar(bar)


def rich_bar(console: Any) -> Any:
    """A bar on a rich console, with room for a few words that may take two lines."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
    from rich.table import Column

    return Progress(
        SpinnerColumn(),
        BarColumn(bar_width=16),
        TextColumn("{task.percentage:3.0f}%"),
        TextColumn("{task.description}", table_column=Column(ratio=1)),
        console=console,
        expand=True,
    )


class Bar:
    """A rich progress bar."""

    def __init__(self, bar: Any, n_rows: int = 0) -> None:
        self._bar = bar
        self.n_rows = n_rows
        self._began = time.perf_counter()
        self._task = bar.add_task("starting …", total=None)

    def stage(self, words: str) -> None:
        """Show words and a bar that only moves."""
        self._began = time.perf_counter()
        self._bar.update(self._task, total=None, completed=0, description=f"{words} …")

    def update(self, iteration: Iteration, share: float | None) -> None:
        """Show an iteration."""
        words = status(iteration, share, self.n_rows)
        total = None if share is None else 1.0
        self._bar.update(self._task, total=total, completed=share, description=words)

    def sweep(self, number: int, change: float) -> None:
        """Show a sweep."""
        self._bar.update(self._task, total=1.0, completed=1.0, description=sweep_status(number, change))

    def rows(self, done: int, total: int | None) -> None:
        """Show rows."""
        words = rows_status(done, total, time.perf_counter() - self._began)
        self._bar.update(self._task, total=total, completed=done, description=words)


class Lines:
    """A line every few seconds."""

    def __init__(self, n_rows: int = 0, every: float = 5.0) -> None:
        self.n_rows = n_rows
        self._every = every
        self._next = 0.0
        self._began = time.perf_counter()

    def stage(self, words: str) -> None:
        """Print that it begins."""
        self._began, self._next = time.perf_counter(), 0.0
        _print(f"{words} …")

    def update(self, iteration: Iteration, share: float | None) -> None:
        """Print an iteration, if it is time."""
        if iteration.seconds >= self._next:
            self._next = iteration.seconds + self._every
            _print(status(iteration, share, self.n_rows))

    def sweep(self, number: int, change: float) -> None:
        """Print the first sweep."""
        if number == 1:
            _print(sweep_status(number, change))

    def rows(self, done: int, total: int | None) -> None:
        """Print the rows so far, if it is time."""
        seconds = time.perf_counter() - self._began
        if seconds >= self._next + self._every:
            self._next = seconds
            _print(rows_status(done, total, seconds))


class NullProgress:
    """Nothing at all."""

    n_rows = 0

    def stage(self, words: str) -> None:
        """Nothing."""

    def update(self, iteration: Iteration, share: float | None) -> None:
        """Nothing."""

    def sweep(self, number: int, change: float) -> None:
        """Nothing."""

    def rows(self, done: int, total: int | None) -> None:
        """Nothing."""


def status(iteration: Iteration, share: float | None, n_rows: int) -> str:
    """An iteration in a line.

    >>> status(Iteration(40, -150_000.0, -0.61, 9.0, seconds=10.0, epochs=2.0), 0.25, n_rows=1_000)
    'iteration 40, objective -150,000, leave-one-out NLL 0.6100, 200 rows/s, 30 s left'
    """
    rate = iteration.epochs * n_rows / max(iteration.seconds, 1e-9)
    words = (
        f"iteration {iteration.iteration}, objective {iteration.objective:,.0f}, "
        f"leave-one-out NLL {-iteration.leave_one_out:.4f}, {rate:,.0f} rows/s"
    )
    if not share:
        return words
    left = iteration.seconds * (1.0 / share - 1.0)
    return f"{words}, {left:.0f} s left" if left >= 1.0 else f"{words}, last exact sweeps"


def sweep_status(number: int, change: float) -> str:
    """An exact sweep in a line.

    >>> sweep_status(3, 0.00123)
    'exact sweep 3, the sites still move by 0.0012'
    """
    return f"exact sweep {number}, the sites still move by {change:.2g}"


def rows_status(done: int, total: int | None, seconds: float) -> str:
    """Rows that were predicted, in a line.

    >>> rows_status(50_000, 200_000, 0.5)
    '50,000 of 200,000 rows, 100,000 rows/s'
    """
    of = "" if total is None else f" of {total:,}"
    return f"{done:,}{of} rows, {done / max(seconds, 1e-9):,.0f} rows/s"


def _print(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
