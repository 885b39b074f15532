"""L-BFGS-B over an objective that is evaluated on all rows: the paper's optimiser for its rivals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy.optimize import OptimizeResult, minimize

from cavity.errors import NumericalError
from cavity.schedules.progress import Progress, StepInfo
from cavity.typing import Array

_GRADIENT_TOL = 1e-5
_FLAT = 1e-3
"""Largest slope, against the objective's size, at which a failed line search means the top."""
_WORSE = 1e3
"""How much worse a point that cannot be evaluated counts than the best so far."""
_AT_THE_TOP, _OUT_OF_ITERATIONS, _NO_WAY_UP = 0, 1, 2
"""What SciPy's status says."""


class Evaluated(NamedTuple):
    """An objective at a point."""

    gradient: Array
    info: StepInfo
    passes: int = 1
    """Over all rows, that it took to know."""
    complete: bool = True
    """Whether there was time for all of them; without, the objective is but an estimate."""


class Maximum(NamedTuple):
    """Where the ascent ended."""

    x: Array
    converged: bool
    interrupted: bool
    stuck: bool = False
    """Whether it ended on a slope, no way up being found."""


class _EnoughError(Exception):
    """The objective stands still, or the seconds are over."""


@dataclass
class _Ascent:
    """What the line searches have seen so far, and whether it is enough."""

    evaluate: Callable[[Array], Evaluated]
    progress: Progress
    x: Array
    """The best point."""
    tol: float
    window: int
    max_seconds: float
    best: Evaluated | None = None
    passes: int = 0
    values: list[float] = field(default_factory=list)
    """Best objective after every iteration."""
    still: bool = False

    def negative(self, x: Array) -> tuple[float, Array]:
        """What SciPy is to make small."""
        if self.best is not None and self.progress.seconds >= self.max_seconds:
            raise _EnoughError
        try:
            now = self.evaluate(x)
            self.passes += now.passes
            usable = np.isfinite(now.info.objective) and np.isfinite(now.gradient).all()
        except (NumericalError, np.linalg.LinAlgError):
            usable = False
        if not usable:
            if self.best is None:
                raise NumericalError(
                    "the objective cannot be evaluated at the starting values; try other kernel "
                    "parameters or inducing_points, or standardize=True"
                )
            return _WORSE - self.best.info.objective, np.zeros_like(x)
        if self.best is not None and not now.complete:
            raise _EnoughError
        if self.best is None or now.info.objective > self.best.info.objective:
            self.x, self.best = x.copy(), now
        return -now.info.objective, -now.gradient

    def after_iteration(self, _: Array) -> None:
        """Take note of an iteration, and end the ascent if it was the last."""
        self.record()
        if len(self.values) > self.window:
            before = self.values[-1 - self.window]
            self.still = self.values[-1] - before < self.tol * max(1.0, abs(before))
        if self.still or self.progress.seconds >= self.max_seconds:
            raise _EnoughError

    def record(self) -> None:
        """The best point as an iteration of the history."""
        assert self.best is not None
        self.values.append(self.best.info.objective)
        self.progress.record(self.best.info, epochs=float(self.passes))

    def is_flat(self, bounds: Array) -> bool:
        """Whether the best point is a top as far as its slope tells, inside the bounds."""
        assert self.best is not None
        x, slope = self.x, self.best.gradient
        held = ((x <= bounds[:, 0]) & (slope < 0)) | ((x >= bounds[:, 1]) & (slope > 0))
        steepest = float(np.abs(np.where(held, 0.0, slope)).max(initial=0.0))
        return steepest <= _FLAT * max(1.0, abs(self.best.info.objective))


def maximize(
    evaluate: Callable[[Array], Evaluated],
    start: Array,
    bounds: Array,
    progress: Progress,
    *,
    max_iter: int,
    tol: float,
    window: int = 1,
    max_seconds: float = np.inf,
) -> Maximum:
    """Climb `info.objective` from `start` [p] inside `bounds` [p, 2]; the best point seen is kept.

    The end is where `window` iterations together have raised it by less than tol·max(1, |objective|).
    A point where the evaluation fails numerically counts as bad, so that the line search steps back. If
    a line search finds no way up, the ascent goes on from the best point without memory of the way
    there, as long as that helps.
    """
    ascent = _Ascent(evaluate, progress, start, tol, window, max_seconds)
    result, height = OptimizeResult(status=_NO_WAY_UP), -np.inf
    try:
        if not len(start):  # there is nothing to climb over, and SciPy takes no empty vector
            ascent.negative(start)
            result.status = _AT_THE_TOP
        while result.status == _NO_WAY_UP and len(ascent.values) < max_iter:
            left = max_iter - len(ascent.values)
            result = minimize(
                ascent.negative,
                ascent.x,
                jac=True,
                method="L-BFGS-B",
                bounds=bounds,
                callback=ascent.after_iteration,
                options={"maxiter": left, "maxfun": 3 * left, "ftol": 0.0, "gtol": _GRADIENT_TOL},
            )
            assert ascent.best is not None
            if ascent.best.info.objective <= height:
                break
            height = ascent.best.info.objective
    except _EnoughError:
        if not progress.history:
            ascent.record()
        return Maximum(ascent.x, converged=ascent.still, interrupted=False)
    except KeyboardInterrupt:
        return Maximum(ascent.x, converged=False, interrupted=True)
    if not progress.history:
        ascent.record()
    if result.status != _NO_WAY_UP:
        return Maximum(ascent.x, result.status != _OUT_OF_ITERATIONS, interrupted=False)
    flat = ascent.is_flat(bounds)
    return Maximum(ascent.x, converged=flat, interrupted=False, stuck=not flat)
