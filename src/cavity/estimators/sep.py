"""Scalable expectation propagation as a scikit-learn classifier."""

from __future__ import annotations

from numbers import Real
from os import PathLike
from typing import Any, ClassVar

from sklearn.utils._param_validation import Interval, StrOptions

from cavity.estimators.config import calibration_share, propagation_rule, resolved_batch_size
from cavity.estimators.streaming import SteppedGPClassifier
from cavity.inference.history import Progress
from cavity.inference.rule import Rule
from cavity.inference.sweep import SweepOptions
from cavity.inference.train import Outcome
from cavity.inference.trainer import Problem
from cavity.inference.updates import FactorUpdate, NaturalUpdate, PosteriorUpdate
from cavity.memory import require_memory


class SEPClassifier(SteppedGPClassifier):
    """Gaussian process classifier by scalable expectation propagation (SEP).

    Here SEP means *scalable* EP (Hernández-Lobato & Hernández-Lobato, 2015), not stochastic EP.
    A sparse Gaussian process with learned inducing points; every step refines the Gaussian factors of
    rows and moves kernel and inducing points, from one pass over those rows.

    Parameters
    ----------
    kernel : scikit-learn kernel or None
        Any composition of ConstantKernel, WhiteKernel, RBF, Matern, RationalQuadratic, DotProduct, +, *
        and **, or a kernel registered with `cavity.gp.kernels.register`. It acts on the standardised
        inputs. None is an amplitude (bounded at 30) times an ARD RBF whose lengthscales start at the
        median distance between rows.
    likelihood : {"probit", "logit"}
        Probability of a label given the latent function: Φ(yf), in closed form, or 1/(1 + exp(−yf)). For
        three classes or more, "probit" alone: the largest of C latent functions, each with unit noise.
    n_inducing : int or "auto"
        Number m of inducing points; capped at the number of different rows. "auto" lets
        them grow from 25 to 400 at most, while the leave-one-out score gains enough, in two fifths of
        max_seconds at most; training goes on from there, or, beyond 10,000 rows, from half way there.
    inducing_points : array-like [m, d] or None
        Inducing points to start from, in the units of X; overrides n_inducing and init_inducing.
    init_inducing : {"kmeans", "random", "greedy"}
        How to choose the inducing points to start from, if they do not grow on all rows: cluster
        centres, random rows, or the rows of greatest conditional variance.
    learn_inducing : bool
        Whether inducing points move with the kernel.
    optimizer : {"auto", "adam", "rprop", "adadelta"} or None
        How kernel and inducing points move. "auto" is Adam; "rprop" (for all rows) and "adadelta" (for
        minibatches) are the paper's. None keeps them and runs EP to convergence.
    learning_rate : float or None
        The optimiser's step; None is 0.1 on all rows (0.03 from inducing points that have grown on them)
        and 0.02 on minibatches, or up to 0.05 where the budget has fewer than 3,000 of them, and 0.05 in
        `partial_fit`. ADADELTA has none.
    batch_size : int, "auto" or None
        Rows a step sees. None is all of them; "auto" is all up to 10,000 rows, beyond that 5m, or 1,000
        or a thousandth of all rows if that is more, up to 20m. `partial_fit` learns a chunk 5m rows at a
        time, or as many as the number says.
    max_iter : int
        Steps at most when every step sees all rows. After n_inducing="auto" has seen them all, 75 are
        enough, or three eighths of these if that is more.
    max_epochs, max_seconds : float or None
        Budget in passes over the data and in seconds; whichever binds first. Steps and gains shrink in
        its second half. With max_seconds the result depends on the clock. Without either, minibatch
        training takes 3,000 steps, and two epochs at least.
    early_stopping : {"loo", "validation"} or None
        Ends training when the leave-one-out score, or the score of held-out rows, stands still.
    validation_fraction : float
        Share of the rows (10,000 at most) held out by early_stopping="validation".
    damping : float in (0, 1] or "auto"
        Share of a site's refinement that is taken. "auto" is 0.5 on all rows, 1 on minibatches.
    tol : float
        Relative rise of the objective between two runs of 10 iterations at which training on all rows
        comes to its end; with optimizer=None the root mean square change of the sites.
    calibration : {"auto", "loo"} or None
        "loo" multiplies the latent means of predictions by the factor that makes the labels most
        probable with their rows left out; None leaves them as they are. Of more than 25,000 rows,
        minibatches never show one in twenty, and these decide. "auto" is "loo" on minibatches
        and for three classes or more, where it helps, and None for two classes on all rows: few rows
        that have chosen inducing points of their own look too predictable.
    gradient : {"approximate", "exact"}
        The paper's gradient, which assumes matched moments, or the one with the terms that vanish at
        EP's fixed point.
    residual_scale : float in [0, 1] or "auto"
        Share of the variance s that inducing points leave unexplained by which training blurs the
        likelihood of a row. 1 is the paper's model; less of it excuses hard rows less, which learns
        more of them and makes bolder claims. "auto" is 0 when more than 25,000 rows are trained on in
        minibatches, the kernel learns, the result is calibrated and no rows are held out for early
        stopping; it is 1 otherwise. Predictions have s in full.
    trace_penalty : float or "auto"
        Charge c for the variance s that inducing points leave unexplained: training maximises
        log Z_q − ½ c Σ ν̃ s, as the variational bound would charge it, which keeps inducing points from
        overfitting small data. 0 is the paper's plain EP evidence. "auto" is 1 when every step sees all
        rows and 0 on minibatches: many rows need no charge, and large amplitudes do better without.
    site_storage : {"sites", "factors"}
        What minibatch training keeps of each row: two numbers, or the whole factor, m + 2 numbers, as
        the paper does (no averaging then, and damping 0.99).
    class_weight : dict, "balanced" or None
        Factors on the weights of the rows of each class, by class value (1 for those not listed).
        "balanced" gives every class the same total weight. They change the prior odds, and so the
        probabilities.
    hyperprior : float or None
        Standard deviation, in log scale, of a log-normal prior on every kernel parameter, centred on
        its start. It is part of the objective; None is the paper's flat prior.
    standardize : bool or "whiten"
        Whether inputs are centred and scaled, feature by feature. "whiten" also replaces each feature by
        what the features before it do not tell, for those that go together, such as a distance and the
        time that it takes; then `kernel_` is about these, one lengthscale each.
    warm_start : bool
        Whether fit goes on from the last fit's kernel, inducing points and posterior.
    window_size : float or None
        Of about how many of the latest rows `partial_fit` keeps knowledge, from when it is set. None
        counts every row alike, except that of a stream without a fit before it the first 25 rows for
        each inducing point count less, while kernel and inducing points find their place.
    checkpoint : path or None
        File to which training is saved, and from which a fit that was killed goes on.
    checkpoint_interval : float
        Seconds between two checkpoints.
    random_state, n_jobs, verbose
        As in scikit-learn; n_jobs=None uses all cores.

    Attributes
    ----------
    classes_ : array [C]
    kernel_ : the fitted kernel, on standardised inputs
    inducing_points_ : array [m, d], in the units of X
    log_marginal_likelihood_value_ : float
        log Z_q of all rows; NaN after `partial_fit`, whose rows are gone, and if a budget left no room
        for the exact sweeps that it needs.
    loo_log_proba_ : array [n]
        Log probability of each training label with its row left out, free from the cavities; NaN for
        rows that a budget in seconds left no time to visit, and for rows of no weight.
    loo_log_loss_ : float, minus their mean, every row counted by its weight
    inverse_temperature_ : float
        The factor on the latent means that `calibration` has found; 1 without.
    inducing_search_ : list of `cavity.inference.history.InducingCandidate`
        The numbers of inducing points that n_inducing="auto" has tried, with their scores and seconds.
    n_iter_ : int, steps taken
    history_ : list of `cavity.inference.history.Iteration`
    model_ : `cavity.gp.model.Model`
    relevance_ : `cavity.gp.relevance.Relevance`, how much each feature matters, with a 90 % band
    n_features_in_, feature_names_in_ : as in scikit-learn

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from cavity import SEPClassifier
    >>> X, y = make_moons(200, noise=0.2, random_state=0)
    >>> model = SEPClassifier(n_inducing=20, random_state=0).fit(X, y)
    >>> print(f"{model.score(X, y):.1f}")
    1.0
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **SteppedGPClassifier._parameter_constraints,
        "gradient": [StrOptions({"approximate", "exact"})],
        "site_storage": [StrOptions({"sites", "factors"})],
        "residual_scale": [Interval(Real, 0, 1, closed="both"), StrOptions({"auto"})],
        "trace_penalty": [Interval(Real, 0, None, closed="left"), StrOptions({"auto"})],
    }

    def __init__(
        self,
        kernel: Any = None,
        *,
        likelihood: str = "probit",
        n_inducing: int | str = 100,
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
        calibration: str | None = "auto",
        gradient: str = "approximate",
        residual_scale: float | str = "auto",
        trace_penalty: float | str = "auto",
        site_storage: str = "sites",
        class_weight: Any = None,
        hyperprior: float | None = 1.0,
        standardize: bool | str = True,
        warm_start: bool = False,
        window_size: float | None = None,
        checkpoint: str | PathLike[str] | None = None,
        checkpoint_interval: float = 60.0,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            kernel,
            likelihood=likelihood,
            n_inducing=n_inducing,
            inducing_points=inducing_points,
            init_inducing=init_inducing,
            learn_inducing=learn_inducing,
            optimizer=optimizer,
            learning_rate=learning_rate,
            batch_size=batch_size,
            max_iter=max_iter,
            max_epochs=max_epochs,
            max_seconds=max_seconds,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            damping=damping,
            tol=tol,
            calibration=calibration,
            class_weight=class_weight,
            hyperprior=hyperprior,
            standardize=standardize,
            warm_start=warm_start,
            window_size=window_size,
            checkpoint=checkpoint,
            checkpoint_interval=checkpoint_interval,
            random_state=random_state,
            n_jobs=n_jobs,
            verbose=verbose,
        )
        self.gradient = gradient
        self.residual_scale = residual_scale
        self.trace_penalty = trace_penalty
        self.site_storage = site_storage

    def _rule(self) -> Rule:
        return propagation_rule(self.likelihood, len(self.classes_))

    def _stored_directions(self, m: int, n_rows: int) -> int:
        if self.site_storage == "factors" and self.calibration == "loo":
            raise ValueError(
                'calibration="loo" with site_storage="factors", the paper\'s scheme, which has none: '
                'calibration=None, or site_storage="sites"'
            )
        if self.site_storage == "sites" or resolved_batch_size(self.batch_size, n_rows, m) is None:
            return 0
        require_memory(
            4 * n_rows * m,
            f'site_storage="factors" for {n_rows:,} rows and m={m}',
            instead='fewer inducing points, or site_storage="sites", which needs two numbers a row',
        )
        return m

    def _update(self, problem: Problem) -> PosteriorUpdate:
        stored = problem.engine.stored_directions > 0
        each = problem.engine.threads.map
        return FactorUpdate(each) if stored else NaturalUpdate(each)

    def _train(self, problem: Problem, progress: Progress, seed: int) -> Outcome:
        judged = calibration_share(self, problem, self._update(problem)) > 0.0
        # Held-out rows watch the training, and what is not calibrated yet would get worse and worse.
        watched = problem.engine.held_out is not None
        self._residual_share = 0.0 if judged and not watched else 1.0
        return super()._train(problem, progress, seed)

    @property
    def _share(self) -> float:
        """Of the residual; "auto" is that of the last fit, with which a stream goes on."""
        auto: float = getattr(self, "_residual_share", 1.0)
        return auto if self.residual_scale == "auto" else float(self.residual_scale)

    def _options(self, batch_size: int | None) -> SweepOptions:
        penalty = self.trace_penalty
        if penalty == "auto":
            penalty = 1.0 if batch_size is None else 0.0
        damping = self.damping
        if damping == "auto":
            minibatch = 1.0 if self.site_storage == "sites" else 0.99
            damping = 0.5 if batch_size is None else minibatch
        return SweepOptions(
            damping=float(damping),
            exact=self.gradient == "exact",
            residual_scale=self._share,
            trace_penalty=float(penalty),
        )
