"""L-BFGS-B over an objective that is evaluated on all rows: the paper's optimiser for its rivals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from cavity.errors import NumericalError
from cavity.schedules.progress import Progress, StepInfo
from cavity.typing import Array

_GRADIENT_TOL = 1e-5
_WORSE = 1e3
"""How much worse a point that cannot be evaluated counts than the best so far."""


class Evaluated(NamedTuple):
    """An objective at a point."""

    gradient: Array
    info: StepInfo


class Maximum(NamedTuple):
    """Where the ascent ended."""

    x: Array
    converged: bool
    interrupted: bool


@dataclass
class _Best:
    x: Array
    evaluated: Evaluated | None = None


def maximize(
    evaluate: Callable[[Array], Evaluated],
    start: Array,
    bounds: Array,
    progress: Progress,
    *,
    max_iter: int,
    tol: float,
) -> Maximum:
    """Climb `info.objective` from `start` [p] inside `bounds` [p, 2]; the best point seen is kept.

    A point where the evaluation fails numerically counts as bad, so that the line search steps back.
    """
    best = _Best(start)

    def negative(x: Array) -> tuple[float, Array]:
        try:
            now = evaluate(x)
            usable = np.isfinite(now.info.objective) and np.isfinite(now.gradient).all()
        except (NumericalError, np.linalg.LinAlgError):
            usable = False
        if not usable:
            if best.evaluated is None:
                raise NumericalError(
                    "the objective cannot be evaluated at the starting values; try other kernel "
                    "parameters or inducing_points, or standardize=True"
                )
            return _WORSE - best.evaluated.info.objective, np.zeros_like(x)
        if best.evaluated is None or now.info.objective > best.evaluated.info.objective:
            best.x, best.evaluated = x.copy(), now
        return -now.info.objective, -now.gradient

    def after_iteration(_: Array) -> None:
        assert best.evaluated is not None
        progress.record(best.evaluated.info, epochs=float(len(progress.history) + 1))

    try:
        result = minimize(
            negative,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            callback=after_iteration,
            options={"maxiter": max_iter, "maxfun": 3 * max_iter, "ftol": tol, "gtol": _GRADIENT_TOL},
        )
    except KeyboardInterrupt:
        return Maximum(best.x, converged=False, interrupted=True)
    if not progress.history and best.evaluated is not None:
        progress.record(best.evaluated.info, epochs=1.0)
    return Maximum(best.x, converged=result.status != 1, interrupted=False)
