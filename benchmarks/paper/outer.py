"""The paper's "outer" updates: EP to convergence, then one step of kernel and inducing points.

`GFITCClassifier` gives these gradients to L-BFGS-B. Figure 1 compares where in the loop the
hyper-parameters move, so here they move by the same sign-based rates as SEP's.
"""

from __future__ import annotations

import numpy as np

from cavity import GFITCClassifier
from cavity.inference.converge import converge
from cavity.inference.history import Progress, StepInfo
from cavity.inference.optimizers import SignRates
from cavity.inference.sweep import Sweep, SweepOptions
from cavity.inference.train import Outcome
from cavity.inference.trainer import Problem
from cavity.inference.updates import gradient

_EP_TOL = 1e-6


class OuterClassifier(GFITCClassifier):
    """GFITC with the sign-based rates in the place of L-BFGS-B; `exact` adds the vanishing terms."""

    exact = False

    def _train(self, problem: Problem, progress: Progress, seed: int) -> Outcome:
        engine, rule, space, optimizer = problem.engine, problem.rule, problem.space, SignRates()
        options = SweepOptions(damping=0.0, exact=self.exact)
        x, state = space.start, optimizer.initial(len(space.start))
        passes = 0
        for _ in range(self.max_iter):
            prior = problem.prior(x)
            point = converge(engine, prior, rule, tol=_EP_TOL)
            sums = engine.run(Sweep(prior, point.posterior, rule, options))
            slope = space.pack_gradient(gradient(sums, prior, point.posterior))
            norm = float(np.linalg.norm(slope))
            info = StepInfo(point.objective, point.mean_log_predictive, norm, point.change)
            passes += point.n_sweeps + 1
            progress.record(info, epochs=float(passes))
            move, state = optimizer.step(state, slope)
            x = space.project(x + move)
        return Outcome(converge(engine, problem.prior(x), rule), self.max_iter, True, False)


class ExactOuterClassifier(OuterClassifier):
    """Outer updates with the exact gradient."""

    exact = True
