"""The base class of all classifiers: `fit`, predictions, learned attributes, saving."""

from __future__ import annotations

import inspect
import os
from abc import ABCMeta
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from numbers import Integral
from os import PathLike
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from cavity.data.source import RowSource
from cavity.engines.backend import LocalBackend
from cavity.engines.protocol import Engine
from cavity.engines.threads import compute_context, thread_count
from cavity.errors import warn_user
from cavity.estimators.facts import NotebookRepr
from cavity.estimators.validation import (
    check_common_parameters,
    require_weight_on_both_sides,
    validated_inducing_points,
    validated_rows,
    validated_source,
)
from cavity.export.model_file import save
from cavity.gp.model import Model
from cavity.gp.parameters import ParameterSpace
from cavity.gp.prior import Prior
from cavity.gp.relevance import Relevance
from cavity.gp.uncertainty import Uncertainty, split_uncertainty
from cavity.inference.checkpoint import Checkpointer
from cavity.inference.config import SETTABLE, TrainingConfig, check_fields, resolve
from cavity.inference.converge import FitResult, converge
from cavity.inference.fingerprint import Fingerprint, fingerprint
from cavity.inference.history import InducingCandidate, Iteration, Progress
from cavity.inference.inducing_search import DEFAULT_POINTS, halfway_kernel, search_inducing_points
from cavity.inference.start import PreviousFit, Start, chosen_start, continued_start, prepare
from cavity.inference.sweep import Sweep, SweepOptions
from cavity.inference.train import make_rule, stopped_before_training, train
from cavity.inference.trainer import Problem
from cavity.inference.updates import gradient
from cavity.memory import require_memory
from cavity.typing import Array

_CACHE = "_relevance_cache"
"""Attribute that keeps `relevance_`, which can be computed again."""
_WHITENING_SQUARES = 4
"""Arrays [d, d] that whitening holds, about."""
_OTHER_NAMES = {"inducing_init": "inducing_points", "max_epochs": "max_iter", "seed": "random_state"}
"""Parameters of classifiers that set a field of another name."""


def saved_state(state: dict[str, Any]) -> dict[str, Any]:
    """The attributes of an estimator in the form in which they are saved.

    Training rows and caches are left out. The rest is small, plain data: a history is saved as columns,
    a path as text.
    """
    state = {name: value for name, value in state.items() if name != _CACHE}
    if "_training" in state:
        state["_training"] = None
    if "history_" in state:
        state["history_"] = _columns(state["history_"])
    if "inducing_search_" in state:
        state["inducing_search_"] = [tried.as_dict() for tried in state["inducing_search_"]]
    if isinstance(state.get("checkpoint"), os.PathLike):
        state["checkpoint"] = os.fspath(state["checkpoint"])
    if not isinstance(state.get("inducing_points"), (str, type(None))):
        state["inducing_points"] = np.asarray(state["inducing_points"])
    return state


def restored_state(state: dict[str, Any]) -> dict[str, Any]:
    """The attributes of an estimator, from what `saved_state` gave."""
    state, history = dict(state), state.get("history_")
    if isinstance(history, dict):
        state["history_"] = _iterations(history)
    if "inducing_search_" in state:
        state["inducing_search_"] = [InducingCandidate(**tried) for tried in state["inducing_search_"]]
    return state


@contextmanager
def rollback_on_error(estimator: Any) -> Iterator[None]:
    """Give the estimator its earlier attributes back if the block fails or is interrupted."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


def _columns(history: list[Iteration]) -> dict[str, Any]:
    return {
        field.name: np.array([getattr(entry, field.name) for entry in history])
        for field in fields(Iteration)
    }


def _iterations(columns: dict[str, Any]) -> list[Iteration]:
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    return [Iteration(**dict(zip(columns, row, strict=True))) for row in rows]


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


class SparseGPClassifier(NotebookRepr, ClassifierMixin, BaseEstimator, metaclass=ABCMeta):
    """A Gaussian process classifier on inducing points; subclasses choose method and parameters."""

    _method: ClassVar[str] = "ep"
    _config_fields: ClassVar[tuple[str, ...]] = ()
    """Constructor parameters that are fields of `TrainingConfig` under the same name."""

    kernel: Any
    n_inducing: int | str
    inducing_points: Any
    class_weight: Any
    config: TrainingConfig | dict[str, Any] | None
    warm_start: bool
    random_state: Any
    n_jobs: int | None
    verbose: int
    classes_: Array

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> SparseGPClassifier:
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
        config = self._resolve(source.n_rows)
        rng = np.random.RandomState(config.seed)
        progress = Progress(int(self.verbose), n_rows=source.n_rows, status=backend.status)
        if config.scaling == "whiten":
            what = f'scaling="whiten" for {source.n_features:,} features'
            needed = _WHITENING_SQUARES * 8 * source.n_features**2
            require_memory(needed, what, instead='scaling="standard"')
        standardizer = backend.standardizer(source, config.scaling)
        held_out = None
        if config.early_stopping == "validation":
            held_out = backend.hold_out(source, config.validation_fraction, rng)
        kernel, centre, start, candidates, interrupted = self.kernel, None, None, None, False
        if self.warm_start and hasattr(self, "model_"):
            start = continued_start(self._previous_fit(source.n_features), standardizer, config)
        elif self._searches:
            found = search_inducing_points(
                source,
                standardizer,
                config,
                make_rule(config, sites=True),
                backend.threads,
                rng,
                progress,
                kernel,
            )
            candidates, interrupted = found.candidates, found.interrupted
            # The search has seen the held-out rows: then only its number of points is used.
            goes_on = found.on_all_rows and held_out is None
            config = self._resolve(source.n_rows, len(found.Z), searched=goes_on, seed=config.seed)
            if goes_on:
                space = ParameterSpace(found.kernel, found.Z, config.learn_kernel, config.learn_inducing)
                start = Start(space, space.pack(found.theta, found.Z), None, found.engine)
            elif held_out is None:
                kernel, centre = halfway_kernel(found), found.theta
        if start is None:
            start = chosen_start(
                source,
                standardizer,
                config,
                rng,
                kernel=kernel,
                inducing_points=self._own_points(),
                centre_theta=centre,
            )
        problem = prepare(
            source,
            config,
            backend,
            standardizer=standardizer,
            start=start,
            rule=make_rule(config),
            held_out=held_out,
        )
        if held_out is not None:
            require_weight_on_both_sides(problem.engine, config.validation_fraction)
        if interrupted:
            result = stopped_before_training(problem, progress)
        else:
            result = train(problem, config, progress, self._checkpointer(problem, config))
        self._store(problem, config, result, progress, candidates)
        return result

    def _check_parameters(self) -> None:
        """Raise for parameters with impossible values, and for those that contradict each other."""
        check_common_parameters(self)
        check_fields(self._fields())
        if isinstance(self.config, TrainingConfig):
            self._check_whole_config()
        elif self.config is not None:
            self._check_further_fields(self.config)

    def _check_further_fields(self, config: dict[str, Any]) -> None:
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
        for name in names:
            if getattr(self, name) != parameters[name].default:
                raise ValueError(
                    f"{name}={getattr(self, name)!r} and a whole TrainingConfig, which sets it too; "
                    "leave one of them out, or change the configuration by dataclasses.replace"
                )

    def _resolve(
        self,
        n_rows: int,
        n_inducing: int | None = None,
        *,
        searched: bool = False,
        seed: int | None = None,
    ) -> TrainingConfig:
        """The configuration that the parameters mean for a number of rows.

        n_inducing: the number of inducing points that a search has found.
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
        given = self._fields()
        if n_inducing is None:
            n_inducing = DEFAULT_POINTS if self.n_inducing == "auto" else int(self.n_inducing)
            points = self._own_points()
            if points is not None:
                n_inducing = len(points)
            elif self.warm_start and hasattr(self, "model_"):
                n_inducing = len(self.model_.Z)
        return resolve(
            n_rows,
            n_classes,
            method=self._method,
            n_inducing=n_inducing,
            seed=self._seed() if seed is None else seed,
            searched=searched,
            **given,
            **(self.config or {}),
        )

    def _fields(self) -> dict[str, Any]:
        """Constructor parameters that are fields of `TrainingConfig`."""
        given = {name: getattr(self, name) for name in self._config_fields}
        if isinstance(self.inducing_points, str):
            given["inducing_init"] = self.inducing_points
        return given

    def _seed(self) -> int:
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31))

    @property
    def _given_points(self) -> Any:
        """The user's own inducing points, or None."""
        return None if isinstance(self.inducing_points, str) else self.inducing_points

    def _own_points(self) -> Array | None:
        """The user's own inducing points as an array [m, d], or None."""
        return validated_inducing_points(self._given_points, self.n_features_in_)

    @property
    def _searches(self) -> bool:
        """Whether the number of inducing points is to be found."""
        pinned = isinstance(self.config, TrainingConfig)
        return self.n_inducing == "auto" and self._given_points is None and not pinned

    def _previous_fit(self, n_features: int) -> PreviousFit:
        """What a warm start takes over."""
        before = self.inducing_points_.shape[1]
        if before != n_features:
            raise ValueError(
                f"X has {n_features} features, but with warm_start=True this {type(self).__name__} goes "
                f"on from a fit with {before}; pass as many, or set warm_start=False to begin anew"
            )
        return PreviousFit(
            self.kernel_, self.inducing_points_, self.model_, self._centre, self._training
        )

    def _checkpointer(self, problem: Problem, config: TrainingConfig) -> Checkpointer:
        """Saves nothing, unless a subclass has a parameter for it."""
        return Checkpointer(None, config.checkpoint_interval, self._fingerprinted(problem, config))

    def _fingerprinted(self, problem: Problem, config: TrainingConfig) -> Callable[[], Fingerprint]:
        """A function that takes the fingerprint of a fit, which reads some rows."""
        points, weights = self._given_points, self.class_weight
        return lambda: fingerprint(config, problem, self.kernel, points, weights)

    def _store(
        self,
        problem: Problem,
        config: TrainingConfig,
        result: FitResult,
        progress: Progress,
        candidates: list[InducingCandidate] | None,
    ) -> None:
        """Set the learned attributes."""
        engine, point = problem.engine, result.point
        prior = point.prior
        self.config_ = config
        self.model_ = Model.from_prior(
            prior,
            point.posterior,
            engine.standardizer,
            problem.rule.likelihood,
            inverse_temperature=point.inverse_temperature,
        )
        self.kernel_ = prior.kernel
        self.inducing_points_ = engine.standardizer.invert(prior.Z)
        if candidates is not None:
            self.inducing_search_ = candidates
        elif hasattr(self, "inducing_search_"):
            del self.inducing_search_
        self.log_marginal_likelihood_value_ = point.objective
        self.loo_log_proba_: Any = engine.expanded_to_input_rows(engine.log_predictive)
        self.loo_log_loss_ = -point.mean_log_predictive
        self.inverse_temperature_ = point.inverse_temperature
        self.n_iter_ = result.n_iter
        self.history_ = progress.history
        self.fit_seconds_ = progress.seconds
        self._weight_seen = engine.total_weight
        self._centre: Array | None = problem.hyperprior.centre
        self._training: Engine | None = engine
        self._stream: Any = None

    def latent_mean_and_variance(self, X: Any) -> tuple[Array, Array]:
        """Posterior mean [n] and variance [n] of the latent function at X [n, d].

        With three classes or more, means [n, C] and variances [n, C], a column for each class.

        The variance includes the kernel's own white noise, if it has any, but not the unit noise of
        the probit.
        """
        mean, variance = self._latent_moments(X)
        return (mean[0], variance[0]) if len(mean) == 1 else (mean.T, variance.T)

    def _latent_moments(self, X: Any) -> tuple[Array, Array]:
        """Mean and variance [L, n] of the L latent functions: one for two classes, else one a class."""
        check_is_fitted(self)
        X = validated_rows(self, X, reset=False)
        with compute_context(thread_count(self.n_jobs)) as threads:
            return self.model_.latent_moments(X, threads.map)

    def predict_log_proba(self, X: Any) -> Array:
        """Log probabilities [n, C] of the classes, in the order of `classes_`."""
        mean, variance = self._latent_moments(X)
        return self.model_.likelihood.predict_log_proba(mean, variance)

    def predict_proba(self, X: Any) -> Array:
        """Probabilities [n, C] of the classes, in the order of `classes_`."""
        return np.exp(self.predict_log_proba(X))

    def decision_function(self, X: Any) -> Array:
        """A score [n] that rises with the probability of the second class and is 0 at one half.

        For the probit, z with probability Φ(z): mean/√(1 + variance); for the logit, the log-odds.
        With three classes or more, scores [n, C]: the log probabilities.
        """
        mean, variance = self._latent_moments(X)
        return self.model_.likelihood.decision_score(mean, variance)

    def predict(self, X: Any) -> Array:
        """The most probable class of each row [n]."""
        scores = self.decision_function(X)
        codes = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[codes])

    def predict_uncertainty(self, X: Any) -> Uncertainty:
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

    def ood_score(self, X: Any) -> Array:
        """How far X [n, d] is from what was learned: [n], from 0 (known) to 1 (nothing is known).

        The share of the latent function's prior variance k(x, x) that the data have not taken away,
        without the kernel's white noise; with several latent functions, the mean of theirs. It nears 1
        far from all rows if the kernel forgets with distance, as RBF, Matérn and rational quadratic do.
        """
        _, variance = self._latent_moments(X)
        inputs = validated_rows(self, X, reset=False)
        return np.asarray(self.model_.remaining_variance_share(inputs, variance).mean(axis=0))

    @property
    def relevance_(self) -> Relevance:
        """Relevance of each feature with a 90 % band: shares of the latent function's squared slope.

        Its numbers are computed when first asked for. See `cavity.gp.relevance`.
        """
        check_is_fitted(self, "model_")
        cached: tuple[Any, Relevance] | None = self.__dict__.get(_CACHE)
        if cached is None or cached[0] is not self.model_:
            cached = self.model_, Relevance(self.model_, self._feature_names())
            self.__dict__[_CACHE] = cached
        return cached[1]

    def _feature_names(self) -> list[str]:
        d = self.model_.Z.shape[1]
        return [str(name) for name in getattr(self, "feature_names_in_", [f"x{j}" for j in range(d)])]

    def sample_latent(self, X: Any, n_samples: int = 1, random_state: Any = None) -> Array:
        """Joint draws [n, n_samples] of the noise-free latent function at X [n, d]; O(n²) memory.

        With three classes or more, draws [n, C, n_samples]: the latent functions are independent.
        """
        check_is_fitted(self)
        X = validated_rows(self, X, reset=False)
        with compute_context(thread_count(self.n_jobs)):
            samples = self.model_.sample(X, n_samples, check_random_state(random_state))
        return np.asarray(samples[0] if len(samples) == 1 else samples.transpose(1, 0, 2))

    def log_marginal_likelihood(
        self, theta: Any = None, eval_gradient: bool = False
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
                "log_marginal_likelihood(theta) needs the training rows, which are kept neither in a "
                "saved or copied estimator nor of a stream; call fit first"
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

    def __getstate__(self) -> dict[str, Any]:
        return saved_state(super().__getstate__())

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(restored_state(state))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted model to one file that `cavity.load` reads; see `cavity.save`."""
        save(self, path)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
