"""Telling the user how a fit is going, and keeping its history."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Any

from cavity.history import Iteration


@dataclass(frozen=True)
class StepInfo:
    """What a step saw, before it moved."""

    objective: float
    """log Z_q or ELBO, plus the log density of the hyper-parameters."""
    mean_log_predictive: float
    gradient_norm: float
    site_change: float


class Progress:
    """Clock, history and, if `verbose`, a line now and then on standard error."""

    def __init__(self, verbose: int = 0, history: list[Iteration] | None = None) -> None:
        self.verbose = verbose
        self.history = [] if history is None else history
        self._started = time.perf_counter() - (self.history[-1].seconds if self.history else 0.0)
        self._last_line = -1.0

    @property
    def seconds(self) -> float:
        """Since the fit began."""
        return time.perf_counter() - self._started

    def record(self, info: StepInfo, epochs: float) -> Iteration:
        """Add an iteration to the history."""
        entry = Iteration(
            iteration=len(self.history) + 1,
            objective=info.objective,
            leave_one_out=info.mean_log_predictive,
            gradient_norm=info.gradient_norm,
            seconds=self.seconds,
            epochs=epochs,
        )
        self.history.append(entry)
        self._show(entry)
        return entry

    def _show(self, entry: Iteration) -> None:
        pause = 1.0 if self.verbose == 1 else 0.0
        if self.verbose and entry.seconds - self._last_line >= pause:
            self._last_line = entry.seconds
            self.say(
                f"iteration {entry.iteration:5d}  epochs {entry.epochs:7.2f}  "
                f"objective {entry.objective:14.4f}  "
                f"leave-one-out NLL {-entry.leave_one_out:.4f}  {entry.seconds:7.1f} s"
            )

    def say(self, *words: Any) -> None:
        """A line for the user, if they asked for any."""
        if self.verbose:
            print(*words, file=sys.stderr, flush=True)
