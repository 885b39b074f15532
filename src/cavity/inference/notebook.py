"""Progress in notebooks: one bar that moves, instead of lines on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cavity.inference.history import Iteration

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

    def finish(self, last: Iteration | None, seconds: float) -> None:
        """Show that the fit has ended."""
        words = "done" if last is None else _status(last)
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
    cell = getattr(shell, "execution_count", None)
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
