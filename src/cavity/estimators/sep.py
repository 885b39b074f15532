"""Scalable expectation propagation as a scikit-learn classifier."""

from __future__ import annotations

from numbers import Integral, Real
from os import PathLike
from typing import Any, ClassVar

from sklearn.utils._param_validation import Interval, StrOptions

from cavity.estimators.base import SparseGPClassifier
from cavity.estimators.plans import resolved_batch_size, training_plan
from cavity.estimators.streaming import StreamingMixin
from cavity.problem import Problem
from cavity.rules.expectation_propagation import ProbitEP
from cavity.schedules.plan import Outcome
from cavity.schedules.progress import Progress
from cavity.sweep import SweepOptions


class SEPClassifier(StreamingMixin):
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
        "optimizer": [StrOptions({"auto", "adam", "rprop", "adadelta"}), None],
        "learning_rate": [Interval(Real, 0, None, closed="neither"), None],
        "batch_size": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"}), None],
        "max_epochs": [Interval(Real, 0, None, closed="neither"), None],
        "max_seconds": [Interval(Real, 0, None, closed="neither"), None],
        "early_stopping": [StrOptions({"loo", "validation"}), None],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "stream_memory": [Interval(Real, 0, None, closed="neither"), None],
        "checkpoint": [str, PathLike, None],
        "checkpoint_every": [Interval(Real, 0, None, closed="left")],
        "damping": [Interval(Real, 0, 1, closed="right"), StrOptions({"auto"})],
        "residual_penalty": [Interval(Real, 0, None, closed="left")],
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
        batch_size: int | str | None = "auto",
        max_iter: int = 200,
        max_epochs: float | None = None,
        max_seconds: float | None = None,
        early_stopping: str | None = None,
        validation_fraction: float = 0.1,
        damping: float | str = "auto",
        tol: float = 1e-4,
        gradient: str = "approximate",
        residual_penalty: float = 1.0,
        hyperprior: float | None = 1.0,
        standardize: bool = True,
        warm_start: bool = False,
        stream_memory: float | None = None,
        checkpoint: str | PathLike[str] | None = None,
        checkpoint_every: float = 60.0,
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
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.max_epochs = max_epochs
        self.max_seconds = max_seconds
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.damping = damping
        self.tol = tol
        self.gradient = gradient
        self.residual_penalty = residual_penalty
        self.hyperprior = hyperprior
        self.standardize = standardize
        self.warm_start = warm_start
        self.stream_memory = stream_memory
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    @property
    def _learns(self) -> bool:
        return self.optimizer is not None

    def _rule(self) -> ProbitEP:
        return ProbitEP()

    def _train(self, problem: Problem, progress: Progress, seed: int) -> Outcome:
        batch_size = resolved_batch_size(self.batch_size, problem.engine.n_rows, len(problem.space.Z))
        damping = (0.5 if batch_size is None else 1.0) if self.damping == "auto" else self.damping
        options = SweepOptions(
            damping=float(damping),
            exact=self.gradient == "exact",
            residual_penalty=self.residual_penalty,
        )
        return training_plan(self, problem, options, seed).run(problem, progress)
