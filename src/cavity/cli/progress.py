"""Progress of the commands, as a bar or as lines."""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Column

from cavity.inference.history import Iteration
from cavity.text import printable


class Watcher(ABC):
    """Shows how work is going; during a fit it is a `cavity.inference.history.Reporter`."""

    n_rows = 0
    """Number of training rows, for the rate."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._began = clock()
        self._first_iteration = True

    def stage(self, words: str) -> None:
        """Announce work of unknown length."""
        self._began, self._first_iteration = self._clock(), True
        self._show(f"{printable(words)} …", at_once=True)

    def begin(self, n_rows: int) -> None:
        """Show that a fit to so many rows begins."""
        self.n_rows = n_rows
        self.stage(f"choosing initial parameters for {n_rows:,} rows")

    def update(self, iteration: Iteration, share: float | None) -> None:
        """Show an iteration of a fit, which has used that share of its budget."""
        self._show(status(iteration, share, self.n_rows), share, at_once=self._first_iteration)
        self._first_iteration = False

    def sweep(self, number: int, change: float) -> None:
        """Show an exact sweep at the end of a fit."""
        self._show(sweep_status(number, change), 1.0, at_once=number == 1)

    def rows(self, done: int, total: int | None) -> None:
        """Show how many rows have been predicted."""
        words = rows_status(done, total, self._clock() - self._began)
        self._show(words, done / total if total else None)

    @abstractmethod
    def _show(self, words: str, share: float | None = None, at_once: bool = False) -> None:
        """Show the words and the share of the work that is done, None if it is unknown."""


class Bar(Watcher):
    """A progress bar with words on its right."""

    def __init__(self, bar: Progress) -> None:
        super().__init__()
        self._bar = bar
        self._task = bar.add_task("starting …", total=None)

    def _show(self, words: str, share: float | None = None, at_once: bool = False) -> None:
        total = None if share is None else 1.0
        self._bar.update(self._task, total=total, completed=share or 0.0, description=words)


class Lines(Watcher):
    """Plain lines on standard error, one every few seconds."""

    def __init__(self, every: float = 5.0, clock: Callable[[], float] = time.perf_counter) -> None:
        super().__init__(clock)
        self._every = every
        self._next = 0.0

    def _show(self, words: str, share: float | None = None, at_once: bool = False) -> None:
        if at_once or self._clock() >= self._next:
            self._next = self._clock() + self._every
            print(words, file=sys.stderr, flush=True)


@contextmanager
def progress_shown(quiet: bool) -> Iterator[Watcher]:
    """Show progress as a bar on a terminal and as plain lines elsewhere; not at all if quiet."""
    console = Console(stderr=True, quiet=quiet)  # older ones end a bar that is not shown with a line
    if quiet or console.is_terminal:
        with one_line_bar(console, quiet) as bar:
            yield Bar(bar)
    else:
        yield Lines()


def one_line_bar(console: Console, quiet: bool = False) -> Progress:
    """A bar that takes one line; words for which there is no room are cut off."""
    return Progress(
        SpinnerColumn(),
        BarColumn(bar_width=10),
        TextColumn("{task.percentage:3.0f}%"),
        TextColumn(
            "{task.description}",
            table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),
            markup=False,  # names of files may have brackets
        ),
        console=console,
        expand=True,
        disable=quiet,
    )


def status(iteration: Iteration, share: float | None, n_rows: int) -> str:
    """Describe an iteration in one line, the most important first.

    >>> status(Iteration(40, -150_000.0, -0.61, 9.0, seconds=10.0, epochs=2.0), 0.25, n_rows=1_000)
    'epoch 2.0, leave-one-out NLL 0.6100, 30 s left, 200 rows/s, objective -150,000'
    """
    words = f"epoch {iteration.epochs:.1f}, leave-one-out NLL {-iteration.leave_one_out:.4f}"
    if share:
        left = iteration.seconds * (1.0 / share - 1.0)
        words += f", {left:.0f} s left" if left >= 1.0 else ", final exact sweeps"
    rate = iteration.epochs * n_rows / max(iteration.seconds, 1e-9)
    return f"{words}, {rate:,.0f} rows/s, objective {iteration.objective:,.0f}"


def sweep_status(number: int, change: float) -> str:
    """Describe an exact sweep in one line.

    >>> sweep_status(3, 0.00123)
    'exact sweep 3, sites changed by 0.0012'
    """
    return f"exact sweep {number}, sites changed by {change:.2g}"


def rows_status(done: int, total: int | None, seconds: float) -> str:
    """Describe the rows predicted so far in one line.

    >>> rows_status(50_000, 200_000, 0.5)
    '50,000 of 200,000 rows, 100,000 rows/s'
    """
    of = "" if total is None else f" of {total:,}"
    return f"{done:,}{of} rows, {done / max(seconds, 1e-9):,.0f} rows/s"
