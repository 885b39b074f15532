"""The evidence at converged EP and its gradient: what GFITC and the paper's "outer" updates climb."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cavity.gp.model import Model
from cavity.inference.converge import FixedPoint, converge
from cavity.inference.history import StepInfo
from cavity.inference.sweep import Sweep, SweepOptions
from cavity.inference.trainer import Problem
from cavity.inference.updates import gradient
from cavity.typing import Array

EP_TOL = 1e-6
"""Site change at which EP counts as converged before a gradient."""


class Evidence(NamedTuple):
    """EP's fixed point at some parameters, and the slope of its evidence there."""

    point: FixedPoint
    slope: Array
    info: StepInfo
    passes: int
    """Passes over all rows that it took."""


def evidence(problem: Problem, x: Array, *, exact: bool = False) -> Evidence:
    """Run EP to convergence at a parameter vector, then one pass for the gradient.

    exact: whether the gradient includes the terms that vanish at the fixed point.
    """
    prior, rule = problem.prior(x), problem.rule
    point = converge(problem.engine, prior, rule, tol=EP_TOL)
    options = SweepOptions(damping=0.0, exact=exact)
    sums = problem.engine.run(Sweep(prior, point.posterior, rule, options))
    slope = problem.space.pack_gradient(gradient(sums, prior, point.posterior))
    norm = float(np.linalg.norm(slope))
    info = StepInfo(point.objective, point.mean_log_predictive, norm, point.change)
    return Evidence(point, slope, info, point.n_sweeps + 1)


def model_at(problem: Problem, point: FixedPoint) -> Model:
    """The model of a fixed point."""
    return Model.from_prior(
        point.prior, point.posterior, problem.engine.scaling, problem.rule.likelihood
    )
