"""The clock of a fit: seconds passed, seconds left, and whether the user has stopped it.

Ctrl-C is caught here and nowhere else. A loop that can end early runs inside `until_interrupted`, and
what it has found by then is its result.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

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
