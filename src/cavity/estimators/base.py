"""The base class of all classifiers: `fit`, predictions, learned attributes, saving."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from cavity.data.routing import Routing
from cavity.data.sampling import HeldOut
from cavity.data.scaling import Scaling
from cavity.data.source import RawRows, RowSource, Source, with_feature_set, with_offset
from cavity.engines.backend import Backend
from cavity.engines.local import LocalBackend
from cavity.engines.protocol import Engine
from cavity.engines.threads import compute_context, thread_count
from cavity.estimators.endings import warn_of_ending
from cavity.estimators.mean_function import learn_mean_function
from cavity.estimators.parameters import (
    ConfiguredClassifier,
    check_leaves_before,
    check_own_validation,
    routes,
)
from cavity.estimators.racing import NO_LEAVES, OpenFit, decide, entrants
from cavity.estimators.state import (
    State,
    restored_state,
    rollback_on_error,
    saved_state,
)
from cavity.estimators.validation import (
    source_with_offset,
    validated_offset,
    validated_rows,
    validated_source,
    validation_rows,
)
from cavity.gp.mean_function import MeanFunction
from cavity.gp.model import Model
from cavity.gp.relevance import Relevance
from cavity.inference.candidates import Entrants
from cavity.inference.checkpoint import Checkpointer
from cavity.inference.checkpoint_file import Fingerprint, fingerprint
from cavity.inference.config import ConfigFields, TrainingConfig
from cavity.inference.converge import NOT_SCORED, FitResult, HeldOutScore, converge
from cavity.inference.fitted import names_of_features
from cavity.inference.history import Progress
from cavity.inference.leaves import parameter_gradient
from cavity.inference.race import RaceDecision
from cavity.inference.race_records import Race
from cavity.inference.start import (
    PreviousFit,
    Start,
    cached_starts,
    chosen_start,
    continued_start,
    hold_out_rows,
    learn_scaling,
    open_problem,
)
from cavity.inference.sweep import Sweep, SweepOptions
from cavity.inference.train import make_rule, stopped_in_race, train
from cavity.inference.trainer import Problem
from cavity.typing import (
    AnyArray,
    Array,
    ArrayOrSparse,
    InputLabels,
    InputOffset,
    InputRows,
    InputWeights,
)

if TYPE_CHECKING:
    from cavity.estimators.streaming import StreamRecord

Validation: TypeAlias = tuple[InputRows, InputLabels, InputWeights]
"""The user's own validation rows: X [n, d], labels [n] and weights [n]; or None for each."""

_EXACT_TOL = 1e-8
"""Tolerance of `log_marginal_likelihood(theta)`: finer than that of fits, because an optimiser compares
values at neighbouring theta, and the gradient is that of EP's fixed point."""
_MOST_EXACT_SWEEPS = 500
"""Sweeps that this may take."""


class FitPlan(NamedTuple):
    """What a fit would do, as far as the rows do not decide it."""

    config: TrainingConfig
    chooses_features: bool
    """Whether it chooses among sets of features, or uses one by name."""


class SparseGPClassifier(ConfiguredClassifier):
    """A Gaussian process classifier on inducing points; subclasses choose method and parameters."""

    _on_cluster: ClassVar[bool] = False
    """Whether the rows of a fit are on a Dask cluster."""
    _shared_by_clones: ClassVar[tuple[str, ...]] = ("leaves",)
    """Parameters that clones share: an estimator as `leaves` has been fitted, and stays so."""

    def fit(
        self,
        X: InputRows,
        y: InputLabels = None,
        sample_weight: InputWeights = None,
        *,
        offset: InputOffset = None,
    ) -> SparseGPClassifier:
        """Fit to rows X [n, d] with labels y [n] of two kinds or more, and weights [n].

        The arguments are those of `cavity.SEPClassifier.fit`, without validation rows.
        """
        self._fit_rows(X, y, sample_weight, offset)
        return self

    def _fit_rows(
        self,
        X: InputRows,
        y: InputLabels,
        sample_weight: InputWeights,
        offset: InputOffset,
        validation: Validation = (None, None, None),
    ) -> None:
        """Check and open what the user has passed, and fit to it.

        validation: rows, labels and weights of the user's own validation rows, if there are any.
        """
        self._check_parameters()
        if offset is not None and self.mean_function is not None:
            raise ValueError(
                f"offset and mean_function={self.mean_function!r} both say what is added to the latent "
                "values; leave one of them out"
            )
        if offset is not None and validation[0] is not None:
            raise ValueError(
                "offset and X_val, whose rows have no offsets; use mean_function, or leave X_val out "
                "and let validation_fraction hold out rows"
            )
        with rollback_on_error(self):
            source, self.classes_ = validated_source(self, X, y, sample_weight)
            own_rows = validation_rows(self, *validation)
            if offset is not None:
                source = source_with_offset(source, offset, len(self.classes_))
            with compute_context(thread_count(self.n_jobs)) as threads:
                result = self._fit_source(source, LocalBackend(threads), own_rows)
        warn_of_ending(self, result)

    def _fit_source(
        self, source: RowSource, backend: Backend, validation: RawRows | None = None
    ) -> FitResult:
        """Fit to an opened source, wherever its rows are.

        validation: the user's own validation rows, which take the place of held-out ones.
        """
        fit = self._open_fit(source, backend, validation)
        decision = decide(fit, self._fingerprint_of(fit.source, fit.config, None, validation))
        config, stopped = decision.config, decision.stopped
        source = self._with_feature_set(fit.source, config.feature_set)
        problem = self._problem_of(fit, decision, source)
        if stopped is not None:
            n_steps = 0 if stopped.end is None else stopped.n_steps
            result = stopped_in_race(problem, config, fit.progress, n_steps)
        else:
            make_fingerprint = self._fingerprint_of(source, config, problem, validation)
            saver = Checkpointer(fit.checkpoint, config.checkpoint_interval, make_fingerprint)
            chooses = fit.chooses_predicting
            result = train(problem, config, fit.progress, saver, chooses_predicting=chooses)
            if chooses:
                config = replace(config, n_predicting=result.n_predicting)
        self._store(problem, config, result, fit.progress, decision.race, fit.mean_function)
        fit.progress.finish(None if result.validation is None else str(result.validation))
        return result

    def _open_fit(self, source: RowSource, backend: Backend, validation: RawRows | None) -> OpenFit:
        """What is known of a fit before its race: configuration, mean function, held-out rows, start."""
        seed, own_leaves = self._seed(), self._router is not None and not self._continues
        routing: Routing | None = None

        def configure(decided: ConfigFields) -> TrainingConfig:
            if own_leaves:  # how many they are is known when the held-out rows are
                decided = {"n_leaves": 1 if routing is None else routing.n_leaves, **decided}
            sets, own = tuple(source.feature_sets), validation is not None
            return self._resolve(source.n_rows, seed, decided, sets, own_validation=own)

        config, candidates = self._config_and_candidates(
            configure, source.n_rows, tuple(source.feature_sets), validates=validation is not None
        )
        checkpoint = self._checkpoint_path(config)
        progress = Progress(int(self.verbose), n_rows=source.n_rows, status=backend.status)
        rows, mean = self._with_mean_function(source, config, backend)
        if mean is not None:
            progress.stage(f"mean function: {mean}")
        if validation is None:
            held_out = hold_out_rows(rows, config, backend)
        else:
            offset = None if mean is None else mean(validation.X).T
            held_out = HeldOut(np.zeros(0, np.int64), validation, offset)
        if own_leaves:
            numbers = None if held_out is None else held_out.numbers
            routing = self._learned_routing(source, backend, seed, numbers)
            config = configure({})
        make_start = cached_starts(
            lambda scaling, one: self._start(
                with_feature_set(rows, one.feature_set), scaling, one, routing, held_out
            )
        )
        return OpenFit(
            rows,
            backend,
            config,
            configure,
            make_start,
            held_out,
            candidates,
            checkpoint,
            progress,
            mean,
        )

    def _problem_of(self, fit: OpenFit, decision: RaceDecision, source: RowSource) -> Problem:
        """The problem of fitting the chosen features, from the start or where a race was stopped."""
        held_out = None if fit.held_out is None else fit.held_out.leading(source.n_features)
        return open_problem(
            source,
            decision.config,
            fit.backend,
            fit.make_start,
            held_out,
            scaling=decision.scaling,
            start=None if decision.stopped is None else decision.stopped.end,
        )

    def _with_mean_function(
        self, source: RowSource, config: TrainingConfig, backend: Backend
    ) -> tuple[RowSource, MeanFunction | None]:
        """The rows with the values of the mean function as offsets, and the mean function."""
        if self.mean_function is None:
            return source, None
        assert isinstance(source, Source)
        mean, offset = learn_mean_function(
            self.mean_function,
            source,
            self.classes_,
            make_rule(config).likelihood,
            scaling=learn_scaling(source, config, backend),
            seed=config.seed,
        )
        return with_offset(source, offset), mean

    def _plan(
        self,
        n_rows: int,
        n_features: int,
        classes: AnyArray,
        feature_sets: tuple[str, ...] = (),
        *,
        validates: bool = False,
    ) -> FitPlan:
        """What `fit` would do with rows of these classes [C], as far as it is known without them.

        validates: whether the user has validation rows of their own.
        """
        self._check_parameters()
        planned = copy(self)  # nothing is fitted yet
        planned.classes_, planned.n_features_in_ = classes, n_features
        seed = self._seed()
        # How many leaves the user's own have is known when the rows are, and does not matter here.
        leaves = {} if self._router is None else {"n_leaves": 1}

        def configure(decided: ConfigFields) -> TrainingConfig:
            return planned._resolve(n_rows, seed, {**leaves, **decided}, own_validation=validates)

        config, candidates = planned._config_and_candidates(
            configure, n_rows, feature_sets, validates=validates
        )
        free = frozenset() if candidates is None else candidates.free
        return FitPlan(config, "feature_set" in free or config.feature_set is not None)

    def _config_and_candidates(
        self,
        configure: Callable[[ConfigFields], TrainingConfig],
        n_rows: int,
        feature_sets: tuple[str, ...],
        *,
        validates: bool,
    ) -> tuple[TrainingConfig, Entrants | None]:
        """What the parameters mean without a race, checked, and what a race may decide, if there is one.

        configure: makes the configuration with some fields decided; validates: whether the user has
        validation rows of their own.
        """
        config = configure({})
        if validates:
            check_own_validation(self, config)
        check_leaves_before(self, config)
        if not validates and not config.validation_fraction:
            return config, None
        return config, entrants(self, configure(NO_LEAVES), n_rows, feature_sets)

    def _with_feature_set(self, source: RowSource, name: str | None) -> RowSource:
        """The rows with the features that were chosen, which are the inputs from now on."""
        if name is not None and source.feature_sets:
            source = with_feature_set(source, name)
            self._set_features(source)
        return source

    def _set_features(self, source: RowSource) -> None:
        """Set the number and the names of the features to those of a source."""
        self.n_features_in_ = source.n_features
        if source.feature_names is not None:
            self.feature_names_in_ = np.asarray(source.feature_names, dtype=object)
        else:  # those of an earlier fit are not these columns'
            self.__dict__.pop("feature_names_in_", None)

    def _start(
        self,
        source: RowSource,
        scaling: Scaling,
        config: TrainingConfig,
        routing: Routing | None = None,
        held_out: HeldOut | None = None,
    ) -> Start:
        """Where training begins: where an earlier fit has ended, or at points that are chosen."""
        previous = self._previous_fit(source.n_features)
        if previous is not None:
            return continued_start(previous, scaling, config)
        return chosen_start(
            source,
            scaling,
            config,
            kernel=self.kernel,
            inducing_points=self._own_points(),
            routing=routing,
            held_out=held_out,
        )

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
        self,
        source: RowSource,
        config: TrainingConfig,
        problem: Problem | None,
        validation: RawRows | None,
    ) -> Callable[[], Fingerprint]:
        """A function that makes the fingerprint of a fit; it is called only if there is a checkpoint."""
        points, weights, router = self._own_points(), self.class_weight, self._router
        if router is not None and not routes(router):
            router = np.unique(router, return_inverse=True)[1]  # names as numbers
        posterior = None if problem is None else problem.posterior
        return lambda: fingerprint(
            config,
            source,
            self.kernel,
            points,
            weights,
            posterior,
            validation,
            self.mean_function,
            router,
        )

    def _store(
        self,
        problem: Problem,
        config: TrainingConfig,
        result: FitResult,
        progress: Progress,
        race: Race | None,
        mean_function: MeanFunction | None = None,
    ) -> None:
        """Set the learned attributes."""
        engine, point = result.engine or problem.engine, result.point
        self.config_ = config
        self.model_ = problem.model(point.prior, point.posterior, point.calibration, mean_function)
        self.race_ = race
        self._store_validation(result.validation or NOT_SCORED)
        self.log_marginal_likelihood_value_ = point.objective
        self.loo_log_proba_ = engine.expanded_to_input_rows(engine.log_predictive)
        self.loo_log_loss_ = -point.mean_log_predictive
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
            prior = self.model_.prior.at(kernel)
            options = SweepOptions(residual_scale=self.config_.residual_scale)
            point = converge(
                engine, prior, rule, options=options, tol=_EXACT_TOL, max_sweeps=_MOST_EXACT_SWEEPS
            )
            if point.interrupted:
                raise KeyboardInterrupt
            if not eval_gradient:
                return point.objective
            sums = engine.run(Sweep(prior, point.posterior, rule, replace(options, damping=0.0)))
            return point.objective, parameter_gradient(sums, prior, point.posterior).theta

    @property
    def _fitted(self) -> SparseGPClassifier:
        check_is_fitted(self, "model_")
        return self

    def _chunks(self, X: InputRows, offset: InputOffset) -> Iterable[tuple[ArrayOrSparse, Array | None]]:
        rows = validated_rows(self, X)
        return [(rows, self._checked_offset(offset, rows.shape[0]))]

    def _checked_offset(self, offset: InputOffset, n_rows: int) -> Array | None:
        """The user's latent offsets [L, n] of rows to be predicted, if the rows of the fit had any."""
        if offset is None:
            return None
        if not self.model_.needs_offset:
            raise ValueError(
                f"offset was passed, but the rows that this {type(self).__name__} was fitted to had "
                "none; leave it out, or pass offset to fit, too"
            )
        return validated_offset(offset, n_rows, len(self.classes_)).T

    def _relevance(self, model: Model) -> Relevance:
        return Relevance(model, names_of_features(self))

    def __sklearn_clone__(self) -> SparseGPClassifier:
        """A clone that has the same objects as parameters that are not to be copied."""
        same = {n: v for n, v in self.get_params(deep=False).items() if n in self._shared_by_clones}
        without = object.__new__(type(self))
        without.__dict__.update(vars(self) | dict.fromkeys(same))
        other: SparseGPClassifier = super(SparseGPClassifier, without).__sklearn_clone__()
        other.set_params(**same)
        return other

    def __sklearn_is_fitted__(self) -> bool:
        return "model_" in vars(self)

    def __getstate__(self) -> State:
        return saved_state(super().__getstate__())

    def __setstate__(self, state: State) -> None:
        super().__setstate__(restored_state(state))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
