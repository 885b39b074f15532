"""A fit of ours watched from outside: its clock, its curve on test rows, and where it began.

Every schedule hands prior and q to the engine before each pass over rows. A watched estimator lets us
look at them there: the model as it stands can be scored while the clock stands still, and training can
be stopped after a number of iterations or seconds without any of the cooling and polishing that our own
budgets add. That is how the paper's scheme, which has neither, is measured.
"""

from __future__ import annotations

import hashlib
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.engines.protocol import Pass
from cavity.gp.model import Model
from cavity.inference.history import Iteration, reporting
from cavity.inference.sweep import Sweep
from cavity.inference.trainer import Problem

FIRST_SCORE = 0.02
"""Seconds after which the curve begins."""
SCORE_RATIO = 1.25
"""Each point of a curve comes so many times later than the one before: even on a log axis."""


class StopTraining(Exception):  # noqa: N818 (nothing has failed)
    """Raised inside a fit when the watch has seen enough."""


Scorer = Callable[[NDArray[np.floating]], dict[str, float]]


@dataclass
class Watch:
    """Rules of the watch, and what it saw.

    `iterations` and `budget` end the fit; None leaves the end to the estimator. With `line_search` a
    point of the curve is an accepted iteration, otherwise any pass that takes a gradient.
    """

    X_test: NDArray[np.floating]
    score: Scorer
    curve_wanted: bool = True
    iterations: int | None = None
    budget: float | None = None
    line_search: bool = False

    curve: list[dict[str, float]] = field(default_factory=list)
    objective: list[dict[str, float]] = field(default_factory=list)
    """One entry an iteration: step, seconds and the objective before that step."""
    start: str = ""
    """Digest of kernel and inducing points as the schedule will first see them."""
    seconds: float = 0.0
    """Training seconds, once the fit is over."""
    steps: int = 0
    log_p: NDArray[np.floating] | None = None
    """Log probabilities [t, 2] of the test rows at the end."""
    inducing_points: NDArray[np.floating] | None = None
    """Where they ended [m, d], in the units of X."""

    def fit(self, kind: type, parameters: dict[str, Any], X: Any, y: Any) -> Any:
        """Fit an estimator of `kind` to X [n, d], y [n] and return it; the watch may end it early."""
        estimator = _watched(kind, self)(**parameters)
        self._paused, self._due = 0.0, FIRST_SCORE
        self._model: tuple[Any, Any] | None = None  # engine, and its latest pass with a gradient
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a fit that ends with its budget says so
            self._begin = time.perf_counter()
            with reporting(self), suppress(StopTraining):
                estimator.fit(X, y)
            self.seconds = self._now()
        if self.log_p is None:
            self.log_p = estimator.predict_log_proba(self.X_test)
            self.inducing_points = estimator.inducing_points_
        self.curve.append({"seconds": self.seconds, "step": self.steps, **self.score(self.log_p)})
        return estimator

    def begins(self, problem: Problem) -> None:
        """The estimator has made its problem: note the start, and look at every pass from now on."""
        start = np.ascontiguousarray(problem.space.start, dtype=np.float64)
        self.start = hashlib.sha256(start.tobytes()).hexdigest()[:16]
        engine: Any = problem.engine
        run = engine.run

        def watched_run(row_pass: Pass, *rest: Any, **named: Any) -> Any:
            if isinstance(row_pass, Sweep) and row_pass.options.gradient:
                self._model = (engine, row_pass)
                if not self.line_search:
                    self._look()
                self.steps += 1
            return run(row_pass, *rest, **named)

        engine.run = watched_run

    def update(self, iteration: Iteration, share: float | None) -> None:
        """Hear of an iteration (see `cavity.inference.history.Reporter`)."""
        self.objective.append(
            {
                "step": iteration.iteration,
                "seconds": self._now(),
                "objective": iteration.objective,
            }
        )
        if self.line_search:
            self._look()

    def _now(self) -> float:
        return time.perf_counter() - self._begin - self._paused

    def _look(self) -> None:
        now = self._now()
        done = self.iterations is not None and self.steps >= self.iterations
        over = (done and not self.line_search) or (self.budget is not None and now >= self.budget)
        if not over and not (self.curve_wanted and now >= self._due):
            return
        assert self._model is not None
        begin = time.perf_counter()
        log_p = self._predict()
        if over:
            self.log_p = log_p
            engine, sweep = self._model
            self.inducing_points = engine.standardizer.invert(sweep.prior.Z)
        else:
            self.curve.append({"seconds": now, "step": self.steps, **self.score(log_p)})
            self._due = max(now, self._due) * SCORE_RATIO
        self._paused += time.perf_counter() - begin
        if over:
            raise StopTraining

    def _predict(self) -> NDArray[np.floating]:
        assert self._model is not None
        engine, sweep = self._model
        likelihood = sweep.rule.likelihood
        model = Model.from_prior(sweep.prior, sweep.posterior, engine.standardizer, likelihood)
        moments = model.latent_moments(self.X_test, engine.threads.map)
        return np.asarray(likelihood.predict_log_proba(*moments))


def _watched(kind: type, watch: Watch) -> type:
    """`kind`, telling `watch` of its problem before training begins."""

    def problem(self: Any, *arguments: Any, **named: Any) -> Problem:
        made: Problem = kind._problem(self, *arguments, **named)  # type: ignore[attr-defined]
        watch.begins(made)
        return made

    return type(kind.__name__, (kind,), {"_problem": problem, "__module__": kind.__module__})
