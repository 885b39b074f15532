"""The generalised FITC approximation as a scikit-learn classifier."""

from __future__ import annotations

from functools import partial
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from cavity.estimators.base import Offered, SparseGPClassifier
from cavity.estimators.config import propagation_rule
from cavity.inference.converge import converge, record_sweep
from cavity.inference.history import Progress
from cavity.inference.lbfgs import fit_outer
from cavity.inference.rule import Rule
from cavity.inference.train import Outcome
from cavity.inference.trainer import Problem


def _why_no_stream(estimator: GFITCClassifier) -> str:
    return (
        f"{type(estimator).__name__} has no partial_fit: each of its steps needs EP converged on "
        "all rows, so it cannot learn from a stream; use SEPClassifier, which has the same fixed point, "
        "or fit on all rows"
    )


class GFITCClassifier(SparseGPClassifier):
    """Gaussian process classifier by the generalised FITC approximation (GFITC).

    Naish-Guzman & Holden (2008): EP runs to convergence on all rows, then its evidence has a gradient,
    and L-BFGS takes a step with it. The fixed point is that of `SEPClassifier`, site for site; the way
    there is longer. Every evaluation is O(n m²) and no n×n matrix is ever formed. Sites of one
    evaluation start the next.

    Parameters
    ----------
    optimizer : {"lbfgs"} or None
        None keeps kernel and inducing points and runs EP to convergence.
    max_iter : int
        Iterations of L-BFGS at most, or sweeps with optimizer=None.
    max_seconds : float or None
        When they are over, no evaluation begins, and EP at the best parameters has one more sweep. The
        calibration, if there is one, comes on top: some ten passes over 10,000 rows at most.
    tol : float
        Relative rise of the evidence at which L-BFGS stops, or site change with optimizer=None.

    Notes
    -----
    All other parameters and all attributes are those of `SEPClassifier`, with defaults of their own for
    max_iter and tol. An iteration of L-BFGS goes
    over all rows, as often as EP needs, so that there are no batch_size, learning_rate, max_epochs,
    early_stopping, validation_fraction, checkpoint and checkpoint_interval; no window_size, because
    there is no `partial_fit`; and no damping, gradient, residual_scale, trace_penalty and
    site_storage, because EP converges between two iterations, its gradient is then exact, and its
    evidence is climbed as it is.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from cavity import GFITCClassifier
    >>> X, y = make_moons(200, noise=0.2, random_state=0)
    >>> model = GFITCClassifier(n_inducing=20, random_state=0).fit(X, y)
    >>> print(f"{model.score(X, y):.1f}")
    1.0
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **SparseGPClassifier._parameter_constraints,
        "optimizer": [StrOptions({"lbfgs"}), None],
        "max_seconds": [Interval(Real, 0, None, closed="neither"), None],
    }

    partial_fit = Offered(None, _why_no_stream)

    def __init__(
        self,
        kernel: Any = None,
        *,
        likelihood: str = "probit",
        n_inducing: int | str = 100,
        inducing_points: Any = None,
        init_inducing: str = "kmeans",
        learn_inducing: bool = True,
        optimizer: str | None = "lbfgs",
        max_iter: int = 250,
        max_seconds: float | None = None,
        tol: float = 1e-6,
        calibration: str | None = "auto",
        class_weight: Any = None,
        hyperprior: float | None = 1.0,
        standardize: bool | str = True,
        warm_start: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.likelihood = likelihood
        self.n_inducing = n_inducing
        self.inducing_points = inducing_points
        self.init_inducing = init_inducing
        self.learn_inducing = learn_inducing
        self.optimizer = optimizer
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.tol = tol
        self.calibration = calibration
        self.class_weight = class_weight
        self.hyperprior = hyperprior
        self.standardize = standardize
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def _rule(self) -> Rule:
        return propagation_rule(self.likelihood, len(self.classes_))

    def _train(self, problem: Problem, progress: Progress, seed: int) -> Outcome:
        return self._calibrated(problem, self._converged(problem, progress), seed, progress)

    def _converged(self, problem: Problem, progress: Progress) -> Outcome:
        max_seconds = np.inf if self.max_seconds is None else self.max_seconds
        if self._learns:
            return fit_outer(
                problem, progress, max_iter=self.max_iter, tol=self.tol, max_seconds=max_seconds
            )
        point = converge(
            problem.engine,
            problem.prior(problem.space.start),
            problem.rule,
            tol=self.tol,
            max_sweeps=self.max_iter,
            callback=partial(record_sweep, progress),
            has_time=lambda taken: progress.seconds + taken <= max_seconds,
        )
        return Outcome(point, point.n_sweeps, point.converged, point.interrupted)
