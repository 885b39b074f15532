"""Growing the number of inducing points until the leave-one-out score stops improving.

The ladder is geometric. On each rung the points of the last one stay, more rows join them, those of the
greatest conditional variance times site precision, and kernel and points follow in a few steps. The rows
keep their sites from rung to rung, so EP is soon back at its fixed point. Before the next rung is tried,
this one is trained until that gains nothing any more: else the gain of more steps would pass for one of
more points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cavity.engines.local import LocalEngine
from cavity.history import Rung
from cavity.initialization import extended_greedily
from cavity.optimizers import Adam
from cavity.parameters import ParameterSpace
from cavity.problem import Problem, make_problem
from cavity.schedules.budget import Budget
from cavity.schedules.converged import FixedPoint, converge
from cavity.schedules.progress import Progress
from cavity.schedules.step import Trainer
from cavity.sweep import SweepOptions
from cavity.typing import Array

LADDER = (25, 50, 100, 200, 400)
"""Numbers of inducing points that are tried."""
_STEPS = 15
"""Steps of kernel and points in a round."""
_FIRST_ROUNDS = 8
_ROUNDS = 3
"""Rounds on the first rung and on the others, at most."""
_RATE = 0.1
_EP_TOL = 1e-2
_MOST_SWEEPS = 5
_COST = 5.0
"""What a rung costs at most, in units of the one before: four times the products, and m×m algebra."""
_SHRINKAGE = 0.5
"""What the next doubling may be expected to gain, in units of the last."""
# The charge for what points leave unexplained keeps those that move from overfitting, which a score
# from the cavities would not see.
_OPTIONS = SweepOptions(damping=0.5, residual_penalty=1.0)


@dataclass(frozen=True)
class Growth:
    """How far to climb."""

    tol: float
    """Relative gain in leave-one-out NLL below which a rung is not worth its points."""
    learn_kernel: bool = True
    learn_inducing: bool = True
    deviation: float | None = 1.0
    """Of the hyper-prior."""
    max_seconds: float = np.inf
    options: SweepOptions = field(default_factory=lambda: _OPTIONS)

    def run(
        self, engine: LocalEngine, kernel: Any, X: Array, ladder: Sequence[int], clock: Progress
    ) -> tuple[int, list[Rung]]:
        """The number of points that is enough, and the rungs that were tried.

        X [n, d] are the engine's rows, standardised. The first rung is always tried; another one only
        if half the last gain would be worth it, and if there is time.
        """
        begun, centre = clock.seconds, kernel.theta
        path: list[Rung] = []
        Z: Array = np.zeros((0, X.shape[1]))
        enough = 0
        for m in ladder:
            started = clock.seconds
            precision = engine.sites.precision.sum(axis=0) if path else np.ones(len(X))
            Z = extended_greedily(Z, X, precision, m, kernel)
            point = self._round(engine, kernel, Z, centre)
            gain = np.inf
            if path:
                gain = _gain(path[-1].loo_score, point)
            if gain >= self.tol:
                enough = len(Z)
            climbs = _SHRINKAGE * gain >= self.tol and len(Z) == m and m != ladder[-1]
            if climbs:
                rounds = _ROUNDS if path else _FIRST_ROUNDS
                point = self._trained(engine, point, centre, rounds, clock, begun)
            kernel, Z = point.prior.kernel, point.prior.Z
            path.append(Rung(len(Z), point.mean_log_predictive, clock.seconds - started))
            clock.say(
                f"m = {len(Z)}: leave-one-out NLL {-path[-1].loo_score:.4f}, {path[-1].seconds:.2f} s"
            )
            affordable = clock.seconds - begun + _COST * path[-1].seconds <= self.max_seconds
            if not (climbs and affordable):
                break
        return enough, path

    def _trained(
        self,
        engine: LocalEngine,
        point: FixedPoint,
        centre: Array,
        n_rounds: int,
        clock: Progress,
        begun: float,
    ) -> FixedPoint:
        """A rung after more rounds, as long as they gain anything."""
        for _ in range(1, n_rounds if self.learn_kernel else 1):
            if clock.seconds - begun > self.max_seconds:
                break
            after = self._round(engine, point.prior.kernel, point.prior.Z, centre)
            gain, point = _gain(point.mean_log_predictive, after), after
            if gain < self.tol:
                break
        return point

    def _round(self, engine: LocalEngine, kernel: Any, Z: Array, centre: Array) -> FixedPoint:
        space = ParameterSpace(kernel, Z, self.learn_kernel, self.learn_inducing)
        problem = make_problem(engine, space, self.deviation, centre=space.pack(centre, Z))
        x = self._steps(problem) if self.learn_kernel else space.start
        return converge(engine, problem.prior(x), tol=_EP_TOL, max_sweeps=_MOST_SWEEPS)

    def _steps(self, problem: Problem) -> Array:
        trainer = Trainer(problem, Adam(_RATE), self.options, rebuild=True)
        budget, state = Budget(max_epochs=_STEPS), trainer.start()
        for step in range(_STEPS):
            state, _ = trainer.step(state, rate=budget.rate(step / _STEPS))
        return state.x


def _gain(before: float, point: FixedPoint) -> float:
    """Relative gain in leave-one-out NLL."""
    return (point.mean_log_predictive - before) / max(abs(before), 1e-12)
