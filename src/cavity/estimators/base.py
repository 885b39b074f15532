"""The base class of all classifiers: `fit`, predictions, learned attributes, saving."""

from __future__ import annotations

import inspect
from abc import ABCMeta
from collections.abc import Callable
from dataclasses import replace
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import Kernel
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted

from cavity.data.sampling import HeldOut
from cavity.data.scaling import Scaling
from cavity.data.source import RowSource, with_feature_set
from cavity.engines.backend import LocalBackend
from cavity.engines.protocol import Engine
from cavity.engines.threads import compute_context, thread_count
from cavity.errors import NumericalError, warn_user
from cavity.estimators.facts import NotebookRepr
from cavity.estimators.state import (
    RELEVANCE_CACHE,
    State,
    restored_state,
    rollback_on_error,
    saved_state,
)
from cavity.estimators.validation import (
    check_common_parameters,
    validated_inducing_points,
    validated_rows,
    validated_source,
)
from cavity.export.model_file import save
from cavity.gp.model import Model
from cavity.gp.prior import Prior
from cavity.gp.relevance import Relevance
from cavity.gp.uncertainty import Uncertainty, split_uncertainty
from cavity.inference.checkpoint import Checkpointer
from cavity.inference.config import (
    FEWEST_ROWS_TO_SPARE,
    SETTABLE,
    TrainingConfig,
    check_fields,
    resolve,
)
from cavity.inference.converge import FitResult, converge
from cavity.inference.fingerprint import Fingerprint, fingerprint
from cavity.inference.fitted import names_of_features
from cavity.inference.held_out import NOT_SCORED, HeldOutScore
from cavity.inference.history import Progress
from cavity.inference.race import SAFE, Candidate, Decision, Entrants, Race, RaceLog, race
from cavity.inference.start import (
    PreviousFit,
    Start,
    chosen_start,
    continued_start,
    hold_out_rows,
    learn_scaling,
    prepare,
)
from cavity.inference.sweep import Sweep, SweepOptions
from cavity.inference.train import make_rule, stopped_before_training, train
from cavity.inference.trainer import Problem
from cavity.inference.updates import gradient
from cavity.typing import (
    AnyArray,
    Array,
    ClassWeight,
    InputLabels,
    InputRows,
    InputWeights,
    RandomSeed,
)

if TYPE_CHECKING:
    from cavity.estimators.streaming import StreamRecord

ConfigFields: TypeAlias = dict[str, Any]
"""Fields of `TrainingConfig` by name."""
_OTHER_NAMES = {"inducing_init": "inducing_points", "max_epochs": "max_iter", "seed": "random_state"}
"""Parameters of classifiers that set a field of another name."""


def warn_not_converged(name: str, tol: float, result: FitResult) -> None:
    """Warn about a fit that was interrupted or has not converged."""
    steps = f"{result.n_iter} iterations"
    if result.interrupted:
        words = f"{name} was interrupted after {steps}; it is fitted with what it had learned by then"
    elif result.stuck:
        words = (
            f"{name} stopped after {steps}: L-BFGS found no way up, though the gradient is not zero; "
            'try scaling="standard", other inducing_points or tighter kernel bounds'
        )
    elif not result.converged:
        words = (
            f"{name} stopped after {steps} before it converged to tol={tol:g}; raise tol, max_epochs, "
            "max_iter or whatever budget was set"
        )
    else:
        return
    warn_user(words, ConvergenceWarning)


class FitPlan(NamedTuple):
    """What a fit would do, as far as the rows do not decide it."""

    config: TrainingConfig
    chooses_features: bool
    """Whether it chooses among sets of features, or uses one by name."""


class SparseGPClassifier(NotebookRepr, ClassifierMixin, BaseEstimator, metaclass=ABCMeta):
    """A Gaussian process classifier on inducing points; subclasses choose method and parameters."""

    _method: ClassVar[str] = "ep"
    _config_fields: ClassVar[tuple[str, ...]] = ()
    """Constructor parameters that are fields of `TrainingConfig` under the same name."""

    kernel: Kernel | None
    n_inducing: int | str
    inducing_points: str | ArrayLike
    class_weight: ClassWeight
    config: TrainingConfig | ConfigFields | None
    warm_start: bool
    random_state: RandomSeed
    n_jobs: int | None
    verbose: int
    classes_: AnyArray

    def fit(
        self, X: InputRows, y: InputLabels = None, sample_weight: InputWeights = None
    ) -> SparseGPClassifier:
        """Fit to rows X [n, d] with labels y [n] of two kinds or more, and weights [n].

        X is an array (dense, memory-mapped, pandas or SciPy sparse); or, with y the name of the target
        column, the path or URL (``s3://…``) of a Parquet file or a folder of them, a pyarrow dataset,
        table, record batch or reader, or any object with Arrow's C interface (polars, pandas); or the
        path of a .npy file; or an object that follows the `cavity.data.Source` contract, which has its
        own labels and weights.

        A weight of w counts a row w times, and 0 leaves it out. Where y is the name of a column, so is
        `sample_weight`, and that column is then not a feature.
        """
        self._check_parameters()
        with rollback_on_error(self):
            source, self.classes_ = validated_source(self, X, y, sample_weight)
            with compute_context(thread_count(self.n_jobs)) as threads:
                result = self._fit_source(source, LocalBackend(threads))
        warn_not_converged(type(self).__name__, self.config_.tol, result)
        return self

    def _fit_source(self, source: RowSource, backend: LocalBackend) -> FitResult:
        """Fit to an opened source, wherever its rows are."""
        config = self._resolve(source.n_rows, self._seed())
        if source.feature_sets and config.feature_set is None:
            config = replace(config, feature_set=next(iter(source.feature_sets)))
        checkpoint = self._checkpoint_path(config)
        progress = Progress(int(self.verbose), n_rows=source.n_rows, status=backend.status)
        held_out = hold_out_rows(source, config, backend)
        decision = None
        entrants = (
            None
            if held_out is None
            else self._entrants(config, source.n_rows, tuple(source.feature_sets))
        )
        if held_out is not None and entrants is not None:
            decision, config = self._race(
                source, held_out, backend, entrants, config, checkpoint, progress
            )
        source = self._with_feature_set(source, config.feature_set)
        held_out = None if held_out is None else held_out.leading(source.n_features)
        scaling = learn_scaling(source, config, backend)
        start = self._start(source, scaling, config)
        problem = prepare(source, config, backend, scaling=scaling, start=start, held_out=held_out)
        if decision is not None and decision.interrupted:
            result = stopped_before_training(problem, progress)
        else:
            saver = Checkpointer(
                checkpoint, config.checkpoint_interval, self._fingerprint_of(source, config, problem)
            )
            result = train(problem, config, progress, saver)
        self._store(problem, config, result, progress, None if decision is None else decision.race)
        return result

    def _plan(
        self, n_rows: int, n_features: int, classes: AnyArray, feature_sets: tuple[str, ...] = ()
    ) -> FitPlan:
        """What `fit` would do with rows of these classes [C], as far as it is known without them."""
        self._check_parameters()
        self.classes_, self.n_features_in_ = classes, n_features
        config = self._resolve(n_rows, self._seed())
        race = config.validation_fraction > 0.0
        entrants = self._entrants(config, n_rows, feature_sets) if race else None
        free = frozenset() if entrants is None else entrants.free
        return FitPlan(config, "feature_set" in free or config.feature_set is not None)

    def _with_feature_set(self, source: RowSource, name: str | None) -> RowSource:
        """The rows with the features that were chosen, which are the inputs from now on."""
        if name is not None:
            source = with_feature_set(source, name)
            self.n_features_in_ = source.n_features
            if source.feature_names is not None:
                self.feature_names_in_ = source.feature_names
        return source

    def _start(self, source: RowSource, scaling: Scaling, config: TrainingConfig) -> Start:
        """Where training begins: where an earlier fit has ended, or at points that are chosen."""
        previous = self._previous_fit(source.n_features)
        if previous is not None:
            return continued_start(previous, scaling, config)
        return chosen_start(
            source, scaling, config, kernel=self.kernel, inducing_points=self._own_points()
        )

    def _entrants(
        self, config: TrainingConfig, n_rows: int, feature_sets: tuple[str, ...] = ()
    ) -> Entrants | None:
        """The candidates of a race for what the parameters leave open; None if that is nothing."""
        if isinstance(self.config, TrainingConfig) or self._continues or not config.learn_kernel:
            return None
        if n_rows < FEWEST_ROWS_TO_SPARE:
            return None
        given = {"n_inducing": self.n_inducing, **self._fields(), **(self.config or {})}
        free = {name for name in ("scaling", "n_inducing") if given.get(name) == "auto"}
        if self._own_points() is not None:
            free.discard("n_inducing")
        if config.method == "ep" and all(given.get(name, "auto") == "auto" for name in SAFE):
            free |= set(SAFE)
        if self.kernel is None:
            if given.get("kernel_name", "auto") == "auto":
                free.add("kernel_name")
            # Points and kernels of the user's own are for the columns alone.
            if len(feature_sets) > 1 and not given.get("feature_set") and self._given_points is None:
                free.add("feature_set")
        else:
            free.discard("scaling")
        if not free:
            return None
        start = Candidate(*(getattr(config, name) for name in Candidate._fields))
        return Entrants(start, frozenset(free), feature_sets)

    def _race(
        self,
        source: RowSource,
        held_out: HeldOut,
        backend: LocalBackend,
        entrants: Entrants,
        config: TrainingConfig,
        checkpoint: Path | None,
        progress: Progress,
    ) -> tuple[Decision, TrainingConfig]:
        """Let the held-out rows decide what the parameters leave open."""

        def configure(candidate: Candidate, max_seconds: float | None = None) -> TrainingConfig:
            given = candidate._asdict()
            if config.method == "vi":
                del given["residual_scale"], given["trace_penalty"]
            if max_seconds is not None:
                given["max_seconds"] = max_seconds
            return self._resolve(source.n_rows, config.seed, given)

        log = RaceLog.open(checkpoint, self._fingerprint_of(source, config))
        decision = race(
            source,
            held_out,
            backend,
            entrants,
            configure,
            lambda scaling, one: self._start(with_feature_set(source, one.feature_set), scaling, one),
            progress,
            log,
        )
        progress.resume_at(0.0)
        if config.max_seconds == np.inf:
            return decision, configure(decision.candidate)
        # At least a step is taken, however long the race was.
        return decision, configure(
            decision.candidate, max(config.max_seconds - decision.race.seconds, 1e-3)
        )

    def _check_parameters(self) -> None:
        """Raise for parameters with impossible values, and for those that contradict each other."""
        check_common_parameters(self)
        check_fields(self._fields())
        if isinstance(self.config, TrainingConfig):
            self._check_whole_config()
        elif self.config is not None:
            self._check_further_fields(self.config)

    def _check_further_fields(self, config: ConfigFields) -> None:
        """Raise for fields that cannot be set, or that have a parameter of their own."""
        check_fields(config)
        taken = {*self._fields(), "n_inducing", "inducing_init"}
        parameters = inspect.signature(type(self)).parameters
        for field in config:
            if field in SETTABLE and field not in taken:
                continue
            names = [name for name in (field, _OTHER_NAMES.get(field)) if name in parameters]
            way_out = f"set {names[0]} of {type(self).__name__} instead" if names else "leave it out"
            raise ValueError(f"config sets {field!r}; {way_out}")

    def _check_whole_config(self) -> None:
        """Raise for parameters that are set although a whole configuration sets them too."""
        parameters = inspect.signature(type(self)).parameters
        names = [name for name in (*self._config_fields, "n_inducing", "max_iter") if name in parameters]
        if isinstance(self.inducing_points, str):
            names.append("inducing_points")
        given = self.get_params(deep=False)
        for name in names:
            if given[name] != parameters[name].default:
                raise ValueError(
                    f"{name}={given[name]!r} and a whole TrainingConfig, which sets it too; "
                    "leave one of them out, or change the configuration by dataclasses.replace"
                )

    def _resolve(self, n_rows: int, seed: int, decided: ConfigFields | None = None) -> TrainingConfig:
        """The configuration that the parameters mean for a number of rows.

        decided: fields that a race has decided.
        """
        n_classes = len(self.classes_)
        if isinstance(self.config, TrainingConfig):
            if (self.config.method, self.config.n_classes) != (self._method, n_classes):
                raise ValueError(
                    f"config is for method={self.config.method!r} and {self.config.n_classes} classes; "
                    f"this is {type(self).__name__} with {n_classes} classes; pass a configuration "
                    "for these, or config=None"
                )
            return self.config
        given = {
            "n_inducing": self.n_inducing,
            **self._fields(),
            **(self.config or {}),
            **(decided or {}),
        }
        if self.kernel is not None:
            given["kernel_name"] = None
        points = self._own_points()
        if points is not None:
            given["n_inducing"] = len(points)
        elif self._continues:
            given["n_inducing"] = len(self.model_.Z)
        return resolve(n_rows, n_classes, method=self._method, seed=seed, **given)

    def _fields(self) -> ConfigFields:
        """Constructor parameters that are fields of `TrainingConfig`."""
        parameters = self.get_params(deep=False)
        given = {name: parameters[name] for name in self._config_fields}
        if isinstance(self.inducing_points, str):
            given["inducing_init"] = self.inducing_points
        return given

    def _seed(self) -> int:
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31))

    @property
    def _given_points(self) -> ArrayLike | None:
        """The user's own inducing points, or None."""
        return None if isinstance(self.inducing_points, str) else self.inducing_points

    def _own_points(self) -> Array | None:
        """The user's own inducing points as an array [m, d], or None."""
        return validated_inducing_points(self._given_points, self.n_features_in_)

    @property
    def _continues(self) -> bool:
        """Whether `fit` goes on from an earlier fit."""
        return self.warm_start and self.__sklearn_is_fitted__()

    def _previous_fit(self, n_features: int) -> PreviousFit | None:
        """What a warm start takes over, if this is one."""
        if not self._continues:
            return None
        before = self.inducing_points_.shape[1]
        if before != n_features:
            raise ValueError(
                f"X has {n_features} features, but with warm_start=True this {type(self).__name__} goes "
                f"on from a fit with {before}; pass as many, or set warm_start=False to begin anew"
            )
        return PreviousFit(
            self.kernel_, self.inducing_points_, self.model_, self._centre, self._training
        )

    def _checkpoint_path(self, config: TrainingConfig) -> Path | None:
        """Where training is saved: nowhere, unless a subclass has a parameter for it."""
        return None

    def _fingerprint_of(
        self, source: RowSource, config: TrainingConfig, problem: Problem | None = None
    ) -> Callable[[], Fingerprint]:
        """A function that makes the fingerprint of a fit; it is called only if there is a checkpoint."""
        points, weights = self._own_points(), self.class_weight
        posterior = None if problem is None else problem.posterior
        return lambda: fingerprint(config, source, self.kernel, points, weights, posterior)

    def _store(
        self,
        problem: Problem,
        config: TrainingConfig,
        result: FitResult,
        progress: Progress,
        race: Race | None,
    ) -> None:
        """Set the learned attributes."""
        engine, point = result.engine or problem.engine, result.point
        prior = point.prior
        self.config_ = config
        self.model_ = Model.from_prior(
            prior,
            point.posterior,
            engine.scaling,
            problem.rule.likelihood,
            inverse_temperature=point.calibration.inverse_temperature,
            residual_variance_scale=point.calibration.residual_variance_scale,
        )
        self.kernel_ = prior.kernel
        self.inducing_points_ = engine.scaling.invert(prior.Z)
        self.race_ = race
        self._store_validation(result.validation or NOT_SCORED)
        self.log_marginal_likelihood_value_ = point.objective
        self.loo_log_proba_ = engine.expanded_to_input_rows(engine.log_predictive)
        self.loo_log_loss_ = -point.mean_log_predictive
        self.inverse_temperature_ = point.calibration.inverse_temperature
        self.residual_variance_scale_ = point.calibration.residual_variance_scale
        self.n_iter_ = result.n_iter
        self.history_ = progress.history
        self.fit_seconds_ = progress.seconds + (0.0 if race is None else race.seconds)
        self._weight_seen = engine.total_weight
        self._centre: Array | None = problem.hyperprior.centre
        self._training: Engine | None = engine
        self._stream: StreamRecord | None = None

    def _store_validation(self, score: HeldOutScore) -> None:
        self.validation_log_loss_ = score.log_loss
        self.validation_standard_error_ = score.standard_error
        self.n_validation_rows_ = score.n_rows

    def latent_mean_and_variance(self, X: InputRows) -> tuple[Array, Array]:
        """Posterior mean [n] and variance [n] of the latent function at X [n, d].

        With three classes or more, means [n, C] and variances [n, C], a column for each class.

        Both are calibrated, by `inverse_temperature_` and `residual_variance_scale_`. The variance
        includes the kernel's own white noise, if it has any, but not the unit noise of the probit.
        """
        mean, variance = self._latent_moments(X)
        return (mean[0], variance[0]) if len(mean) == 1 else (mean.T, variance.T)

    def _latent_moments(self, X: InputRows) -> tuple[Array, Array]:
        """Mean and variance [L, n] of the L latent functions: one for two classes, else one a class."""
        check_is_fitted(self)
        X = validated_rows(self, X)
        with compute_context(thread_count(self.n_jobs)) as threads:
            mean, variance = self.model_.latent_moments(X, threads.map)
        finite = np.isfinite(mean + variance).all(axis=0)
        if not finite.all():
            raise NumericalError(
                f"the prediction for row {int(np.argmin(finite))} of X is not finite: its kernel values "
                "are beyond the range of numbers; check the row, or fit with tighter kernel bounds"
            )
        return mean, variance

    def predict_log_proba(self, X: InputRows) -> Array:
        """Log probabilities [n, C] of the classes, in the order of `classes_`."""
        mean, variance = self._latent_moments(X)
        return self.model_.likelihood.predict_log_proba(mean, variance)

    def predict_proba(self, X: InputRows) -> Array:
        """Probabilities [n, C] of the classes, in the order of `classes_`."""
        return np.exp(self.predict_log_proba(X))

    def decision_function(self, X: InputRows) -> Array:
        """A score [n] that rises with the probability of the second class and is 0 at one half.

        For the probit, z with probability Φ(z): mean/√(1 + variance); for the logit, the log-odds.
        With three classes or more, scores [n, C]: the log probabilities.
        """
        mean, variance = self._latent_moments(X)
        return self.model_.likelihood.decision_score(mean, variance)

    def predict(self, X: InputRows) -> Array:
        """The most probable class of each row [n]."""
        scores = self.decision_function(X)
        codes = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[codes])

    def predict_uncertainty(self, X: InputRows) -> Uncertainty:
        """Predictive entropy at X [n, d] in nats, split: `total` = `aleatoric` + `epistemic`, each [n].

        The aleatoric part is E[H[p(y | f)]], what would remain if the latent function were known. The
        epistemic part is the mutual information of label and latent value, which more rows near x would
        reduce.

        >>> from sklearn.datasets import make_moons
        >>> from cavity import SEPClassifier
        >>> X, y = make_moons(200, noise=0.2, random_state=0)
        >>> model = SEPClassifier(n_inducing=20, random_state=0).fit(X, y)
        >>> far = model.predict_uncertainty([[50.0, 50.0]])
        >>> bool(far.epistemic[0] > far.aleatoric[0])
        True
        """
        mean, variance = self._latent_moments(X)
        return split_uncertainty(self.model_.likelihood, mean, variance)

    def ood_score(self, X: InputRows) -> Array:
        """How far X [n, d] is from what was learned: [n], from 0 (known) to 1 (nothing is known).

        It is the posterior variance of the latent function as a share of its prior variance k(x, x),
        both without the kernel's white noise, and with the calibrated part of the residual variance in
        both; with several latent functions, the mean of their shares.
        Far from all rows it approaches 1 if the kernel decreases to 0 with distance, as RBF, Matérn and
        rational quadratic do.
        """
        check_is_fitted(self)
        X = validated_rows(self, X)
        with compute_context(thread_count(self.n_jobs)) as threads:
            return np.asarray(self.model_.remaining_variance_share(X, threads.map).mean(axis=0))

    @property
    def relevance_(self) -> Relevance:
        """Relevance of each feature with a 90 % band: shares of the latent function's squared slope.

        Its numbers are computed when first asked for. See `cavity.gp.relevance`.
        """
        check_is_fitted(self, "model_")
        cached: tuple[Model, Relevance] | None = self.__dict__.get(RELEVANCE_CACHE)
        if cached is None or cached[0] is not self.model_:
            cached = self.model_, Relevance(self.model_, names_of_features(self))
            self.__dict__[RELEVANCE_CACHE] = cached
        return cached[1]

    def sample_latent(self, X: InputRows, n_samples: int = 1, random_state: RandomSeed = None) -> Array:
        """Joint draws [n, n_samples] of the noise-free latent function at X [n, d]; O(n²) memory.

        With three classes or more, draws [n, C, n_samples]: the latent functions are independent.
        """
        check_is_fitted(self)
        X = validated_rows(self, X)
        with compute_context(thread_count(self.n_jobs)):
            samples = self.model_.sample(X, n_samples, check_random_state(random_state))
        return np.asarray(samples[0] if len(samples) == 1 else samples.transpose(1, 0, 2))

    def log_marginal_likelihood(
        self, theta: ArrayLike | None = None, eval_gradient: bool = False
    ) -> float | tuple[float, Array]:
        """The method's estimate of log p(y) at kernel parameters theta (log scale), and its gradient.

        Without theta, the value of the fit. With theta, q is brought to convergence on the training
        rows at the fitted inducing points; the rows are not saved with a pickled estimator.
        """
        check_is_fitted(self)
        if theta is None:
            if eval_gradient:
                raise ValueError("Gradient can only be evaluated for theta!=None")
            return float(self.log_marginal_likelihood_value_)
        if self._training is None:
            raise ValueError(
                "log_marginal_likelihood(theta) needs the training rows, and an estimator that was "
                "saved, copied or trained by partial_fit does not keep them; call fit first"
            )
        engine, rule = self._training.fresh(), make_rule(self.config_, sites=True)
        with compute_context(thread_count(self.n_jobs)) as engine.threads:
            kernel = self.kernel_.clone_with_theta(theta)
            # The jitter is part of the model: with another one the fitted theta has another value.
            prior = Prior(kernel, self.model_.Z, self.model_.dtype, self.model_.jitter)
            options = SweepOptions(residual_scale=self.config_.residual_scale)
            point = converge(engine, prior, rule, options=options, tol=1e-8, max_sweeps=500)
            if point.interrupted:
                raise KeyboardInterrupt
            if not eval_gradient:
                return point.objective
            sums = engine.run(Sweep(prior, point.posterior, rule, replace(options, damping=0.0)))
            return point.objective, gradient(sums, prior, point.posterior).theta

    def __sklearn_is_fitted__(self) -> bool:
        return "model_" in vars(self)

    def __getstate__(self) -> State:
        return saved_state(super().__getstate__())

    def __setstate__(self, state: State) -> None:
        super().__setstate__(restored_state(state))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted model to one file that `cavity.load` reads; see `cavity.save`."""
        save(self, path)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
