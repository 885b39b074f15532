"""Watching a fit from outside, for progress bars and logs: `with reporting(reporter): model.fit(…)`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from cavity.history import Iteration


class Reporter(Protocol):
    """Whoever wants to hear of every iteration of a fit.

    A reporter that has a method `sweep(number, change)` hears of the exact sweeps after training, too:
    their number, from 1, and how far the sites would still move.
    """

    def update(self, iteration: Iteration, share: float | None) -> None:
        """An iteration was recorded; share: part of the budget used so far, None if there is none."""
        ...


_reporter: ContextVar[Reporter | None] = ContextVar("cavity_reporter", default=None)


@contextmanager
def reporting(reporter: Reporter) -> Iterator[None]:
    """A context in which every fit that begins tells `reporter` of its iterations.

    The reporter is called in the thread that fits, between two steps: it should be quick.

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
