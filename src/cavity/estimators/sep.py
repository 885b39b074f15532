"""Scalable expectation propagation as a scikit-learn classifier."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

from sklearn.utils._param_validation import Interval, StrOptions

from cavity.estimators.base import Outcome, SparseGPClassifier
from cavity.optimizers import Adam, Optimizer, SignRates
from cavity.problem import Problem
from cavity.rules.expectation_propagation import ProbitEP
from cavity.schedules.batch import train_batch
from cavity.schedules.converged import POLISHING_TOL, converge
from cavity.schedules.progress import Progress
from cavity.schedules.step import Trainer
from cavity.sweep import SweepOptions


class SEPClassifier(SparseGPClassifier):
    """Gaussian process classifier by scalable expectation propagation (SEP).

    Here SEP means *scalable* EP (Hernández-Lobato & Hernández-Lobato, 2015), not stochastic EP.
    A sparse Gaussian process with learned inducing points and a probit likelihood; every step refines
    the Gaussian factors of the rows and moves kernel and inducing points, from one pass over the rows.

    Parameters
    ----------
    kernel : scikit-learn kernel or None
        Any composition of ConstantKernel, WhiteKernel, RBF, Matern, RationalQuadratic, DotProduct, +, *
        and **, or a kernel registered with `cavity.kernels.register`. It acts on the standardised
        inputs. None is an amplitude (bounded at 30) times an ARD RBF whose lengthscales start at the
        median distance between rows.
    n_inducing : int
        Number m of inducing points; capped at the number of rows.
    inducing_points : array-like [m, d] or None
        Inducing points to start from, in the units of X; overrides n_inducing and init_inducing.
    init_inducing : {"kmeans", "random", "greedy"}
        How to choose the inducing points to start from: cluster centres, random rows, or the rows of
        greatest conditional variance.
    learn_inducing : bool
        Whether inducing points move with the kernel.
    optimizer : {"auto", "adam", "rprop"} or None
        How kernel and inducing points move; "rprop" is the paper's sign-based rate per parameter,
        "auto" is Adam. None keeps them and runs EP to convergence.
    learning_rate : float or None
        The optimiser's step; None is its own default.
    max_iter : int
        Iterations at most (sweeps, each with a step).
    damping : float in (0, 1]
        Share of a site's refinement that is taken.
    tol : float
        Relative rise of the objective over 20 iterations at which training stops; with
        optimizer=None the root mean square change of the sites.
    gradient : {"approximate", "exact"}
        The paper's gradient, which assumes matched moments, or the one with the terms that vanish at
        EP's fixed point.
    hyperprior : float or None
        Standard deviation, in log scale, of a log-normal prior on every kernel parameter, centred on
        its start. It is part of the objective; None is the paper's flat prior.
    standardize : bool
        Whether inputs are centred and scaled, feature by feature.
    warm_start : bool
        Whether fit starts from the last fit's kernel, inducing points and (for as many rows) sites.
    random_state, n_jobs, verbose
        As in scikit-learn; n_jobs=None uses all cores.

    Attributes
    ----------
    classes_ : array [2]
    kernel_ : the fitted kernel, on standardised inputs
    inducing_points_ : array [m, d], in the units of X
    log_marginal_likelihood_value_ : float, log Z_q
    loo_log_proba_ : array [n]
        Log probability of each training label with its row left out, free from the cavities.
    n_iter_ : int
    history_ : list of `cavity.history.Iteration`
    model_ : `cavity.model.Model`
    n_features_in_, feature_names_in_ : as in scikit-learn

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from cavity import SEPClassifier
    >>> X, y = make_moons(200, noise=0.2, random_state=0)
    >>> model = SEPClassifier(n_inducing=20, random_state=0).fit(X, y)
    >>> print(f"{model.score(X, y):.2f}")
    0.97
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **SparseGPClassifier._parameter_constraints,
        "optimizer": [StrOptions({"auto", "adam", "rprop"}), None],
        "learning_rate": [Interval(Real, 0, None, closed="neither"), None],
        "damping": [Interval(Real, 0, 1, closed="right")],
        "gradient": [StrOptions({"approximate", "exact"})],
    }

    def __init__(
        self,
        kernel: Any = None,
        *,
        n_inducing: int = 100,
        inducing_points: Any = None,
        init_inducing: str = "kmeans",
        learn_inducing: bool = True,
        optimizer: str | None = "auto",
        learning_rate: float | None = None,
        max_iter: int = 200,
        damping: float = 0.5,
        tol: float = 1e-4,
        gradient: str = "approximate",
        hyperprior: float | None = 1.0,
        standardize: bool = True,
        warm_start: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.n_inducing = n_inducing
        self.inducing_points = inducing_points
        self.init_inducing = init_inducing
        self.learn_inducing = learn_inducing
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.damping = damping
        self.tol = tol
        self.gradient = gradient
        self.hyperprior = hyperprior
        self.standardize = standardize
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    @property
    def _learns(self) -> bool:
        return self.optimizer is not None

    def _rule(self) -> ProbitEP:
        return ProbitEP()

    def _optimizer(self) -> Optimizer:
        family = SignRates if self.optimizer == "rprop" else Adam
        return family() if self.learning_rate is None else family(self.learning_rate)

    def _train(self, problem: Problem, progress: Progress) -> Outcome:
        if self.optimizer is None:
            point = converge(
                problem.engine, problem.prior(problem.space.start), damping=self.damping,
                tol=self.tol, max_sweeps=self.max_iter, progress=progress,
            )  # fmt: skip
            return Outcome(point, point.n_sweeps, point.converged, point.interrupted)
        options = SweepOptions(damping=self.damping, max_leverage=0.999, exact=self.gradient == "exact")
        trainer = Trainer(problem, self._optimizer(), options)
        trained = train_batch(trainer, trainer.start(), progress, max_iter=self.max_iter, tol=self.tol)
        point = converge(problem.engine, problem.prior(trained.state.x), tol=POLISHING_TOL)
        return Outcome(point, len(progress.history), trained.converged, trained.interrupted)
