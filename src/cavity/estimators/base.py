"""Methods that an estimator, or one of its settings, lacks.

What of an estimator outlives it, in a model file, a pickle or a copy; and what a failure leaves.

What the user is told of how a fit has ended.

What a fitted classifier knows about its own predictions and features.

What all the classifiers share: the scikit-learn shell around a schedule.
"""

from __future__ import annotations

import os
import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from numbers import Integral, Real
from os import PathLike
from types import MethodType
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from cavity.data.scaling import Standardizer
from cavity.data.source import Source
from cavity.engines.local import LocalEngine
from cavity.engines.protocol import Engine
from cavity.engines.threads import Threads, compute_context, thread_count
from cavity.estimators.facts import NotebookRepr
from cavity.estimators.validation import (
    require_weight_on_both_sides,
    validated_kernel,
    validated_rows,
    validated_source,
)
from cavity.export.model_file import save
from cavity.gp.model import Model
from cavity.gp.prior import Prior
from cavity.gp.relevance import Relevance
from cavity.gp.uncertainty import Uncertainty, split_uncertainty
from cavity.inference.calibration import calibrated
from cavity.inference.converge import converge
from cavity.inference.history import InducingCandidate, Iteration, Progress
from cavity.inference.rule import Rule
from cavity.inference.sweep import Sweep, SweepOptions
from cavity.inference.train import Outcome, chosen_start, continued_start, stopped_before_training
from cavity.inference.trainer import Problem, hold_out, make_problem, standardizer_of
from cavity.inference.updates import gradient
from cavity.memory import require_memory
from cavity.typing import Array


class Offered:
    """A method that is absent to hasattr where there is a reason, which whoever asks for it is told."""

    def __init__(self, method: Any, why_not: Callable[[Any], str | None]) -> None:
        """Offer `method`, None if there never is one, where `why_not(estimator)` has nothing to say."""
        self.method = method
        self.why_not = why_not

    def __get__(self, instance: Any, owner: type) -> Any:
        """The method, bound to the estimator if there is one."""
        if instance is None:
            return self.method
        reason = self.why_not(instance)
        if reason is not None:
            raise AttributeError(reason)
        return MethodType(self.method, instance)


def saved_state(state: dict[str, Any]) -> dict[str, Any]:
    """The attributes of an estimator, as they are to be saved.

    The training rows stay behind; what is left is plain data, and small: a history is saved as columns,
    a path as text.
    """
    state = dict(state)
    if "_training" in state:
        state["_training"] = None
    if "history_" in state:
        state["history_"] = _columns(state["history_"])
    if "inducing_search_" in state:
        state["inducing_search_"] = [rung.as_dict() for rung in state["inducing_search_"]]
    if isinstance(state.get("checkpoint"), os.PathLike):
        state["checkpoint"] = os.fspath(state["checkpoint"])
    if state.get("inducing_points") is not None:
        state["inducing_points"] = np.asarray(state["inducing_points"])
    return state


def restored_state(state: dict[str, Any]) -> dict[str, Any]:
    """The attributes of an estimator, from what `saved_state` gave."""
    state, history = dict(state), state.get("history_")
    if isinstance(history, dict):
        state["history_"] = _iterations(history)
    if "inducing_search_" in state:
        state["inducing_search_"] = [InducingCandidate(**rung) for rung in state["inducing_search_"]]
    return state


@contextmanager
def rollback_on_error(estimator: Any) -> Iterator[None]:
    """What fails, or is stopped, leaves the estimator as it was, not half of it as it was to be."""
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


def warn_not_converged(estimator: Any, outcome: Outcome) -> None:
    """Warn, in the line that has called `fit`, of a fit that has not come to its proper end."""
    name, steps = type(estimator).__name__, f"{outcome.n_iter} iterations"
    if outcome.interrupted:
        words = (
            f"{name} was interrupted after {steps}; the estimator is fitted with what it had learned by "
            "then"
        )
    elif outcome.stuck:
        words = (
            f"{name} stopped after {steps} where L-BFGS found no way up, though the gradient is not "
            "zero; try standardize=True, other inducing_points or tighter kernel bounds"
        )
    elif not outcome.converged:
        words = (
            f"{name} stopped after {steps} before it converged to tol={estimator.tol:g}; raise tol, "
            "max_iter or whatever budget was set"
        )
    else:
        return
    warnings.warn(words, ConvergenceWarning, stacklevel=5)


_CACHE = "_relevance_cache"


class Insight:
    """Uncertainty of predictions, distance from the data, and relevance of features."""

    model_: Model

    @abstractmethod
    def _latent_moments(self, X: Any) -> tuple[Array, Array]:
        """Mean and variance [L, n] of the L latent functions at X [n, d]."""

    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Predictive entropy at X [n, d] in nats, split: `total` = `aleatoric` + `epistemic`, each [n].

        The noise is E[H[p(y | f)]], what would remain if the latent function were known; the knowledge
        part is the mutual information of label and latent value, what rows near x would take away.

        >>> from sklearn.datasets import make_moons
        >>> from cavity import SEPClassifier
        >>> X, y = make_moons(200, noise=0.2, random_state=0)
        >>> model = SEPClassifier(n_inducing=20, tol=1e-3, random_state=0).fit(X, y)
        >>> far = model.predict_uncertainty([[50.0, 50.0]])
        >>> bool(far.epistemic[0] > far.aleatoric[0])
        True
        """
        mean, variance = self._latent_moments(X)
        return split_uncertainty(self.model_.rule, mean, variance)

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


def without_caches(state: dict[str, Any]) -> dict[str, Any]:
    """An estimator's state without what can be computed again."""
    return {name: value for name, value in state.items() if name != _CACHE}


_SQUARES = 4
"""Arrays [d, d] that whitening holds, about."""


class SparseGPClassifier(NotebookRepr, Insight, ClassifierMixin, BaseEstimator, metaclass=ABCMeta):
    """A Gaussian process classifier on inducing points; subclasses bring a rule and a schedule."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "kernel": "no_validation",
        "likelihood": [StrOptions({"probit", "logit"})],
        "n_inducing": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "inducing_points": ["array-like", None],
        "init_inducing": [StrOptions({"kmeans", "random", "greedy"})],
        "learn_inducing": ["boolean"],
        "calibration": [StrOptions({"auto", "loo"}), None],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "class_weight": [StrOptions({"balanced"}), dict, None],
        "hyperprior": [Interval(Real, 0, None, closed="neither"), None],
        "standardize": ["boolean", StrOptions({"whiten"})],
        "warm_start": ["boolean"],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
        "verbose": ["verbose"],
    }

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> SparseGPClassifier:
        """Fit to rows X [n, d] with labels y [n] of two kinds or more, and weights [n].

        X is an array (dense, memory-mapped, pandas or SciPy sparse); or, with y the name of the target
        column, the path or URL (``s3://…``) of a Parquet file or a folder of them, a pyarrow dataset,
        table, record batch or reader, or anything that speaks Arrow's C interface (polars, pandas); or
        the path of a .npy file; or any object that keeps the `cavity.data.Source` contract, which has
        its own labels and weights.

        A weight of w counts a row w times, and 0 leaves it out. Where y is the name of a column, so is
        `sample_weight`, and that column is then no feature.
        """
        validated_kernel(self.kernel)
        self._refuse_what_does_not_go_together()
        n_jobs = thread_count(self.n_jobs)
        with rollback_on_error(self):
            source, self.classes_ = self._validated_source(X, y, sample_weight)
            self._refuse_what_does_not_suit(source.n_rows)
            rng = check_random_state(self.random_state)
            progress = self._progress(source)
            with compute_context(n_jobs) as threads:
                problem = self._problem(source, threads, rng, progress)
                if problem.interrupted:
                    outcome = stopped_before_training(problem, progress)
                else:
                    outcome = self._train(problem, progress, seed=rng.randint(2**31))
        self._store(problem, outcome, progress)
        return self

    def _refuse_what_does_not_go_together(self) -> None:
        """Raise if parameters contradict each other, before any work."""

    def _refuse_what_does_not_suit(self, n_rows: int) -> None:
        """Raise if parameters do so for this number of rows."""

    @abstractmethod
    def _rule(self) -> Rule:
        """The scalar rule of this method."""

    def _site_rule(self) -> Rule:
        """The same, where q is a sum of sites."""
        return self._rule()

    @abstractmethod
    def _train(self, problem: Problem, progress: Progress, seed: int) -> Outcome:
        """Run this method's schedule."""

    def _problem(
        self,
        source: Source,
        threads: Threads,
        rng: np.random.RandomState,
        progress: Progress | None = None,
    ) -> Problem:
        """What is to be fitted; without `progress` it is the beginning of a stream."""
        if self._whitens:
            what = f'standardize="whiten" for {source.n_features:,} features'
            require_memory(_SQUARES * 8 * source.n_features**2, what, instead="standardize=True")
        standardizer = (
            self._standardizer(source, threads)
            if self.standardize
            else Standardizer.identity(source.n_features)
        )
        held_out = None
        if getattr(self, "early_stopping", None) == "validation" and progress is not None:
            held_out = self._hold_out(source, rng)
        rule = self._site_rule()  # points grow where q is a sum of sites
        if self.warm_start and hasattr(self, "model_"):
            start = continued_start(self, standardizer, rule)
        else:
            start = chosen_start(
                self, source, standardizer, rule, threads, rng, progress, held_out is not None
            )
        stored = self._stored_directions(len(start.space.Z), source.n_rows)
        engine = self._engine(source, standardizer, threads, held_out, stored)
        if held_out is not None:
            require_weight_on_both_sides(engine, self.validation_fraction)
        adopted = engine.adopt(start.earlier)
        # Where q is the sum of stored factors, it has none without them.
        posterior = None if stored and not adopted else start.posterior
        problem = make_problem(
            engine, self._rule(), start.space, self.hyperprior, centre=start.centre, posterior=posterior
        )
        return replace(problem, pretrained=start.pretrained, interrupted=start.interrupted)

    def _validated_source(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Array]:
        return validated_source(self, X, y, sample_weight)

    def _progress(self, source: Any) -> Progress:
        return Progress(int(self.verbose))

    def _standardizer(self, source: Any, threads: Threads) -> Standardizer:
        return standardizer_of(source, threads, whiten=self._whitens)

    def _hold_out(self, source: Any, rng: np.random.RandomState) -> Any:
        return hold_out(source, self.validation_fraction, rng)

    def _engine(
        self, source: Any, standardizer: Standardizer, threads: Threads, held_out: Any, stored: int
    ) -> Engine:
        """Where the passes over a source run."""
        return LocalEngine(source, standardizer, self._rule().n_latents, threads, held_out, stored)

    @property
    def _whitens(self) -> bool:
        return bool(self.standardize == "whiten")

    @property
    def _learns(self) -> bool:
        """Whether kernel and inducing points move."""
        return self.optimizer is not None

    def _calibrates(self, problem: Problem) -> bool:
        """Whether the latent means are stretched in the end; see `calibration`."""
        if self.calibration == "auto":
            return problem.rule.n_latents > 1
        return bool(self.calibration == "loo")

    def _calibrated(self, problem: Problem, outcome: Outcome, seed: int, progress: Progress) -> Outcome:
        """What a schedule without a plan has come to, with its means stretched if that is wanted."""
        if outcome.interrupted or not self._calibrates(problem):
            return outcome
        seconds = np.inf if self.max_seconds is None else self.max_seconds - progress.seconds
        point = calibrated(problem.engine, outcome.point, problem.rule, seed, seconds=seconds)
        return outcome._replace(point=point, interrupted=point.interrupted)

    def _stored_directions(self, m: int, n_rows: int) -> int:
        """Length of the vector that is stored with each site; 0 stores none."""
        return 0

    def _store(self, problem: Problem, outcome: Outcome, progress: Progress) -> None:
        engine, prior = problem.engine, outcome.point.prior
        self.model_ = Model.at(
            prior,
            outcome.point.posterior,
            engine,
            problem.rule,
            inverse_temperature=outcome.point.inverse_temperature,
        )
        self.kernel_ = prior.kernel
        self.inducing_points_ = engine.standardizer.invert(prior.Z)
        self.log_marginal_likelihood_value_ = outcome.point.objective
        self.loo_log_proba_: Any = engine.of_all_rows(engine.log_predictive)
        self.loo_log_loss_ = -outcome.point.mean_log_predictive
        self.inverse_temperature_ = outcome.point.inverse_temperature
        self._weight_seen = engine.total_weight
        self.n_iter_ = outcome.n_iter
        self.history_ = progress.history
        self._centre = problem.hyperprior.centre
        self._training: Engine | None = engine
        self._stream: Any = None
        warn_not_converged(self, outcome)

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
            return self.model_.latent_moments(X, threads)

    def predict_log_proba(self, X: Any) -> Array:
        """Log probabilities [n, C] of the classes, in the order of `classes_`."""
        mean, variance = self._latent_moments(X)
        return self.model_.rule.predict_log_proba(mean, variance)

    def predict_proba(self, X: Any) -> Array:
        """Probabilities [n, C] of the classes, in the order of `classes_`."""
        return np.exp(self.predict_log_proba(X))

    def decision_function(self, X: Any) -> Array:
        """A score [n] that rises with the probability of the second class and is 0 at one half.

        For the probit, z with probability Φ(z): mean/√(1 + variance); for the logit, the log-odds.
        With three classes or more, scores [n, C]: the log probabilities.
        """
        mean, variance = self._latent_moments(X)
        return self.model_.rule.decision_score(mean, variance)

    def predict(self, X: Any) -> Array:
        """The most probable class of each row [n]."""
        scores = self.decision_function(X)
        codes = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[codes])

    def sample_latent(self, X: Any, n_samples: int = 1, random_state: Any = None) -> Array:
        """Joint draws [n, n_samples] of the noise-free latent function at X [n, d]; O(n²) memory.

        With three classes or more, draws [n, C, n_samples]: the latent functions are independent.
        """
        check_is_fitted(self)
        X = validated_rows(self, X, reset=False)
        with compute_context(thread_count(self.n_jobs)):
            mean, covariance = self.model_.joint_moments(X)
            values, vectors = np.linalg.eigh(covariance)
        roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None]
        draws = check_random_state(random_state).standard_normal((*mean.shape, n_samples))
        samples = mean[:, :, None] + roots @ draws
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
        engine, rule = self._training.fresh(), self._site_rule()
        with compute_context(thread_count(self.n_jobs)) as engine.threads:
            kernel = self.kernel_.clone_with_theta(theta)
            # The jitter is part of the model: with another one the fitted theta has another value.
            prior = Prior(kernel, self.model_.Z, self.model_.dtype, self.model_.jitter)
            share = getattr(self, "_share", 1.0)
            options = SweepOptions(residual_scale=share)
            point = converge(engine, prior, rule, options=options, tol=1e-8, max_sweeps=500)
            if point.interrupted:
                raise KeyboardInterrupt
            if not eval_gradient:
                return point.objective
            sums = engine.run(Sweep(prior, point.posterior, rule, replace(options, damping=0.0)))
            return point.objective, gradient(sums, prior, point.posterior).theta

    def __getstate__(self) -> dict[str, Any]:
        return saved_state(without_caches(super().__getstate__()))

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(restored_state(state))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted model to one file that `cavity.load` reads; see `cavity.save`."""
        save(self, path)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
