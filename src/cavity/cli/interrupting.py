"""Ctrl-C while a classifier is fitted: the command ends, though a fit would return what it has."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cavity.cli.bar import Watcher
from cavity.history import Iteration
from cavity.progress import reporting


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
