"""Parallel sweeps at fixed kernel and inducing points, until the sites stop moving."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cavity.engines.local import LocalEngine
from cavity.errors import NumericalError
from cavity.posterior import Naturals, Posterior
from cavity.prior import Prior
from cavity.schedules.evaluation import objective
from cavity.schedules.progress import Progress, StepInfo
from cavity.sweep import SweepOptions


class FixedPoint(NamedTuple):
    """Where the sweeps ended."""

    prior: Prior
    posterior: Posterior
    objective: float
    mean_log_predictive: float
    """Leave-one-out log score a row."""
    n_sweeps: int
    change: float
    """Root mean square change a full sweep would still make, in units of the marginals."""
    converged: bool
    interrupted: bool = False


POLISHING_TOL = 1e-4
"""Site change at which predictions after training no longer move in any digit that matters."""


def converge(
    engine: LocalEngine,
    prior: Prior,
    *,
    damping: float = 1.0,
    tol: float = 1e-6,
    max_sweeps: int = 100,
    start: Naturals | None = None,
    progress: Progress | None = None,
) -> FixedPoint:
    """Iterate the engine's sites to the fixed point of its rule.

    Every sweep starts from q rebuilt from the sites under this very prior, so leverage and objective
    are exact; only the first may be given another q to `start` from. The damping adapts: it tightens
    when a sweep overshoots and relaxes when it does not.
    """
    naturals = summed_sites(engine, prior) if start is None else start
    last_change = np.inf
    for n_sweeps in range(1, max_sweeps + 1):
        posterior = Posterior.from_naturals(naturals)
        sums = engine.sweep(prior, posterior, SweepOptions(damping=damping, gradient=False))
        change = float(np.sqrt(sums.site_change / sums.weight)) / damping
        value = objective(sums, posterior, engine.rule)
        if not np.isfinite(value + change):
            raise NumericalError(
                "the sweeps at fixed kernel produced a non-finite objective; try a smaller damping, "
                "tighter kernel bounds or standardize=True"
            )
        score = sums.log_predictive / sums.weight
        point = FixedPoint(prior, posterior, value, score, n_sweeps, change, change <= tol)
        if progress is not None:
            progress.record(StepInfo(value, score, 0.0, change), epochs=float(n_sweeps))
        engine.commit()
        if point.converged:
            return point
        naturals = sums.naturals
        damping = max(0.05, 0.5 * damping) if change > last_change else min(1.0, 1.1 * damping)
        last_change = change
    return point


def summed_sites(engine: LocalEngine, prior: Prior) -> Naturals:
    """The naturals of the sites as they are, under this prior."""
    nothing = Posterior.from_naturals(Naturals.zeros(engine.rule.n_latents, len(prior.Z)))
    # With damping 0 a sweep leaves the sites alone and only sums them up.
    return engine.sweep(prior, nothing, SweepOptions(damping=0.0, gradient=False)).naturals


def settled(engine: LocalEngine, prior: Prior, posterior: Posterior) -> FixedPoint:
    """A point that is left as it is: the rows' sites are those that its q would give them."""
    for _ in range(2):  # the second pass leaves out the sites that the first has found
        sums = engine.sweep(prior, posterior, SweepOptions(damping=1.0, gradient=False))
        engine.commit()
    value = objective(sums, posterior, engine.rule)
    change = float(np.sqrt(sums.site_change / sums.weight))
    score = sums.log_predictive / sums.weight
    return FixedPoint(prior, posterior, value, score, 2, change, converged=True)
