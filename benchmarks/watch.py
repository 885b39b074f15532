"""The clock and the curve of a training run; the clock stands still while test rows are scored."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cavity.gp.model import Model

FIRST_SCORE = 0.02
"""Seconds after which the curve begins."""
SCORE_RATIO = 1.25
"""Each point of a curve comes this many times later than the one before: even on a log axis."""

Scorer = Callable[[NDArray[np.floating]], dict[str, float]]


@dataclass
class Watch:
    """Times a training run and scores its models; the training loop calls it between two steps."""

    X_test: NDArray[np.floating]
    score: Scorer
    """From log probabilities [t, C] of the test rows to named scores."""
    curve_wanted: bool = True
    budget: float | None = None
    """Training seconds after which `is_over` is true."""

    curve: list[dict[str, float]] = field(default_factory=list)
    """Seconds, step and scores at growing intervals, and at the end."""
    objective: list[dict[str, float]] = field(default_factory=list)
    """Step, seconds and objective, as the training loop has recorded them."""
    steps: int = 0
    """Passes over rows with a gradient so far."""
    log_p: NDArray[np.floating] | None = None
    """Log probabilities [t, C] of the test rows at the end."""
    inducing_points: NDArray[np.floating] | None = None
    """Where they ended [m, d], in the units of X."""
    _begun: float = 0.0
    _stopped: float | None = None
    _due: float = FIRST_SCORE

    def begin(self) -> None:
        """Start the clock."""
        self._begun = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Training seconds so far, without those of scoring."""
        return (time.perf_counter() if self._stopped is None else self._stopped) - self._begun

    @property
    def is_over(self) -> bool:
        """Whether the budget is used up."""
        return self.budget is not None and self.seconds >= self.budget

    def record(self, objective: float) -> None:
        """Note the objective of an iteration."""
        step = len(self.objective) + 1
        self.objective.append({"step": step, "seconds": self.seconds, "objective": objective})

    def look(self, model: Callable[[], Model]) -> None:
        """Score the model of the moment if a point of the curve is due."""
        if not self.curve_wanted or self.seconds < self._due:
            return
        self._pause()
        now = self.seconds
        self._add_point(_log_proba(model(), self.X_test))
        self._due = max(now, self._due) * SCORE_RATIO
        self._resume()

    def end(self, model: Callable[[], Model]) -> None:
        """Stop the clock and score the model of the end."""
        self._pause()
        last = model()
        self.log_p = _log_proba(last, self.X_test)
        self.inducing_points = last.scaling.invert(last.Z)
        self._add_point(self.log_p)

    def _add_point(self, log_p: NDArray[np.floating]) -> None:
        self.curve.append({"seconds": self.seconds, "step": self.steps, **self.score(log_p)})

    def _pause(self) -> None:
        self._stopped = time.perf_counter()

    def _resume(self) -> None:
        assert self._stopped is not None
        self._begun += time.perf_counter() - self._stopped
        self._stopped = None


def _log_proba(model: Model, X: NDArray[np.floating]) -> NDArray[np.floating]:
    return np.asarray(model.likelihood.predict_log_proba(*model.latent_moments(X)))
