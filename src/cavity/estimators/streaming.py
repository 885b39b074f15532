"""Learning from a stream of rows: `partial_fit`, a chunk at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets

from cavity.data.arrays import ArraySource
from cavity.data.labels import encode_labels, require_one_kind, whole_labels
from cavity.data.opening import described_source, rows_that_count
from cavity.data.routing import Routing, leaves_of_rows, with_leaves
from cavity.data.source import booleans_as_integers
from cavity.data.weights import any_weight, validated_sample_weight, weighted_mean
from cavity.engines.backend import Backend
from cavity.engines.local import LocalBackend, LocalEngine
from cavity.engines.threads import compute_context, thread_count
from cavity.errors import warn_user
from cavity.estimators.base import SparseGPClassifier
from cavity.estimators.state import rollback_on_error
from cavity.estimators.validation import checked_arrays, is_stream
from cavity.gp.calibration import Calibration
from cavity.gp.model import Model
from cavity.gp.parameters import ParameterSpace
from cavity.inference.config import ConfigFields, TrainingConfig
from cavity.inference.converge import NOT_SCORED
from cavity.inference.decisions import STREAM_DAMPING, stream_batch_size, stream_optimizer
from cavity.inference.history import Iteration, Progress
from cavity.inference.leaves import LocalStreamUpdate
from cavity.inference.optimizers import Optimizer
from cavity.inference.start import require_memory_for_leaves
from cavity.inference.streaming import Stream, StreamSettings, absorb
from cavity.inference.sweep import SweepOptions
from cavity.inference.train import make_rule
from cavity.inference.trainer import Problem, Trainer, TrainingState, make_problem
from cavity.inference.updates import NaturalUpdate
from cavity.typing import (
    AnyArray,
    InputLabels,
    InputRows,
    InputWeights,
)

MOST_RECORDS = 4_000
"""Most records in the history of a stream, which may be endless."""


def check_stream_parameters(estimator: StreamingGPClassifier) -> None:
    """Raise for parameters that only `fit` can follow."""
    _can_stream(estimator)
    if estimator.class_weight == "balanced":
        raise ValueError(
            'class_weight="balanced" is not supported by partial_fit, which cannot know how often '
            "the classes of a stream will occur; pass a dict, for instance from "
            'sklearn.utils.class_weight.compute_class_weight("balanced", ...) on a sample'
        )
    model: Model | None = vars(estimator).get("model_")
    if estimator.mean_function is not None or (model is not None and model.mean_function is not None):
        raise ValueError(
            f"mean_function={estimator.mean_function!r}: a mean function is fitted to all rows at once, "
            "so partial_fit cannot learn with one; call fit, or begin an estimator with "
            "mean_function=None"
        )
    changed = model is not None and (estimator.leaves is None) != (model.local is None)
    if changed and not isinstance(estimator.leaves, str):
        raise ValueError(
            f"leaves={estimator.leaves!r}, but the model that partial_fit goes on from has "
            f"{'leaves' if estimator.leaves is None else 'none'}; leave the parameter as it was, or "
            "begin another estimator"
        )
    if model is not None and model.needs_offset:
        raise ValueError(
            "the rows of the last fit had offsets, which chunks of partial_fit cannot have; call fit"
        )


def check_chunk(X: InputRows) -> None:
    """Raise for inputs that only `fit` can read, and for iterators of chunks."""
    if is_stream(X):
        raise TypeError(
            f"X is a {type(X).__name__}; partial_fit takes the rows of one chunk: call it for each "
            "chunk that this yields"
        )
    what = described_source(X)
    if what is not None:
        raise TypeError(
            f"X is {what}; partial_fit takes the rows of a chunk as an array, data frame or sparse "
            "matrix: read them, or call fit, which goes over files and sources itself"
        )


def stream_classes(y: AnyArray, classes: ArrayLike | None) -> AnyArray:
    """The classes [C] of a stream that begins with labels y [n]."""
    if classes is not None:
        require_one_kind(np.asarray(classes), "classes")
    known: AnyArray = np.unique(np.unique(y) if classes is None else np.asarray(classes))
    if len(known) < 2:
        raise ValueError(
            f"the first call of partial_fit knows {len(known)} classes ({known.tolist()}); pass "
            "classes=[...] with all labels that the stream will have"
        )
    return known


def check_stream_classes(y: AnyArray, classes: ArrayLike | None, known: AnyArray) -> None:
    """Raise for labels y [n], or announced classes, other than the known ones."""
    if classes is not None and not np.array_equal(np.unique(np.asarray(classes)), known):
        raise ValueError(
            f"classes={np.asarray(classes).tolist()} are not those that this stream has had from its "
            f"first call, {known.tolist()}; leave classes out, or begin another estimator with them"
        )
    unknown = np.setdiff1d(y, known)
    if len(unknown):
        raise ValueError(
            f"y has the label {unknown.tolist()[0]!r}, but the classes of this stream are "
            f"{known.tolist()}; fit another estimator for other classes"
        )


def warn_few_points(m: int, wanted: int) -> None:
    """Warn if the first chunk of a stream gave fewer inducing points than were asked for."""
    if m < wanted:
        warn_user(
            f"the first chunk has too few different rows for n_inducing={wanted}: this stream keeps {m} "
            f"inducing points; begin with at least {wanted} rows, better a few thousand, or pass "
            "inducing_points"
        )


def moved_to(state: TrainingState, space: ParameterSpace, optimizer: Optimizer) -> TrainingState:
    """The state for a space and an optimiser that may have changed since the last chunk.

    If other parameters are learned than before, x has another length and is taken from the space, which
    starts where the state is; the optimiser then begins anew.
    """
    x = state.x if len(state.x) == len(space.start) else space.start
    fresh = optimizer.initial(len(x))
    if x is state.x and type(fresh) is type(state.optimizer_state):
        return state
    return replace(state, x=x, optimizer_state=fresh, previous=(x, state.q))


def thinned(history: list[Iteration]) -> list[Iteration]:
    """The history with every second record left out, as often as it is too long; the last one stays.

    >>> records = [Iteration(i, 0.0, 0.0, 0.0, 0.0, 0.0) for i in range(1, 2 * MOST_RECORDS)]
    >>> short = thinned(records)
    >>> len(short), short[0].iteration, short[-2].iteration, short[-1].iteration
    (4000, 1, 7997, 7999)
    """
    while len(history) > MOST_RECORDS:
        history = history[:-1][::2] + history[-1:]
    return history


@dataclass(frozen=True)
class StreamRecord:
    """What an estimator keeps between two chunks."""

    stream: Stream
    space: ParameterSpace
    """Where the stream began: the hyper-prior stays centred there."""


def _can_stream(estimator: StreamingGPClassifier) -> bool:
    """Whether there is a `partial_fit`, which needs a posterior made of sites."""
    config = estimator.config
    if isinstance(config, TrainingConfig):
        update = config.posterior_update
    else:
        update = (config or {}).get("posterior_update", "natural")
    if update == "gradient":
        raise AttributeError(
            'posterior_update="gradient" has no partial_fit: gradient steps need to see rows many '
            'times, and a stream shows them once; use posterior_update="natural"'
        )
    return True


class StreamingGPClassifier(SparseGPClassifier):
    """A classifier that also learns from a stream of rows, chunk by chunk."""

    batch_size: int | str | None
    optimizer: str | Optimizer | None

    @available_if(_can_stream)
    def partial_fit(
        self,
        X: InputRows,
        y: InputLabels,
        classes: ArrayLike | None = None,
        sample_weight: InputWeights = None,
    ) -> StreamingGPClassifier:
        """Learn from one more chunk of rows X [n, d] with labels y [n]; earlier chunks stay learned.

        The first call on an estimator that is not fitted takes scaling, leaves and inducing points from
        its chunk, and needs `classes` if the chunk does not show all of them. Later chunks may come from
        elsewhere: inducing points follow the rows. After `fit`, the stream goes on from the fitted
        posterior, and with the model of the fit: if that has residual_scale=0, the points stay. With
        `window_size` the posterior stands for about that many of the latest rows, for streams that
        drift. A weight of w counts a row w times, 0 leaves it out, and a later chunk without any weight
        changes nothing.
        """
        y, classes = whole_labels(y), whole_labels(classes)
        check_chunk(X)
        first = not self.__sklearn_is_fitted__()
        with rollback_on_error(self):
            X, y = checked_arrays(self, X, y, reset=first)
            require_one_kind(y)
            check_classification_targets(y)
            weight = validated_sample_weight(sample_weight, len(y), require_positive=first)
            known = stream_classes(y, classes) if first else self.classes_
            check_stream_classes(y, classes, known)
            _, codes = encode_labels(y, known)
            self._learn_chunk(ArraySource(booleans_as_integers(X), codes, weight), known)
        return self

    def _learn_chunk(self, rows: ArraySource, classes: AnyArray) -> None:
        """Learn from one more chunk of rows, checked, whose labels are codes of the classes [C]."""
        self._check_parameters()
        check_stream_parameters(self)
        first = not self.__sklearn_is_fitted__()
        self.classes_, self.n_features_in_ = classes, rows.n_features
        if not first and not any_weight(rows.labels, rows.weight, self.class_weight, classes):
            return
        chunk = rows_that_count(rows, self.class_weight, classes)
        history: list[Iteration] = [] if first else self.history_
        progress = Progress(int(self.verbose), history[-1].iteration if history else 0)
        if not first:
            progress.resume_at(self.fit_seconds_)
        with compute_context(thread_count(self.n_jobs)) as threads:
            backend = LocalBackend(threads)
            routing = self._stream_routing(chunk, backend)
            config = self._stream_config(chunk.n_rows, routing)
            trainer, record = self._resume_stream(chunk, config, backend, routing)
            settings = self._stream_settings(config, trainer.problem)
            learned = trainer.engine.source  # the chunk, with the leaves of its rows
            assert isinstance(learned, ArraySource)
            trainer, stream = absorb(trainer, record.stream, learned, progress, settings)
            self._store_stream(trainer.problem, config, replace(record, stream=stream), progress)
        progress.finish()
        if first and self._given_points is None and not config.learn_inducing:
            warn_few_points(len(self.model_.Z), config.n_inducing)

    def _stream_routing(self, chunk: ArraySource, backend: Backend) -> Routing | None:
        """What says which leaf a row falls into, if that is known before the stream begins."""
        if self.__sklearn_is_fitted__():
            return None if self.model_.local is None else self.model_.local.leaves.routing
        return None if self._router is None else self._learned_routing(chunk, backend, self._seed())

    def _stream_config(self, n_rows: int, routing: Routing | None) -> TrainingConfig:
        """The configuration of a stream: minibatches that are seen once."""
        goes_on = self.__sklearn_is_fitted__()
        decided: ConfigFields = {} if routing is None else {"n_leaves": routing.n_leaves}
        if goes_on:
            decided |= self._model_before()
        config = self._resolve(n_rows, self._seed(), decided)
        is_whole, n_inducing = isinstance(self.config, TrainingConfig), config.n_inducing
        optimizer = stream_optimizer(config.optimizer if is_whole else self.optimizer)
        if goes_on and not is_whole and self._given_points is None:  # a fit may have chosen more
            n_inducing = max(n_inducing, len(self.model_.Z))
        return replace(config, optimizer=optimizer, damping=STREAM_DAMPING, n_inducing=n_inducing)

    def _stream_settings(self, config: TrainingConfig, problem: Problem) -> StreamSettings:
        """How a stream is learned that goes on with the inducing points of a problem."""
        m, n_local = len(problem.space.Z), 0
        if problem.leaves is not None:
            n_local = max(*problem.leaves.sizes, config.n_local or 0)
        given = self.config.batch_size if isinstance(self.config, TrainingConfig) else self.batch_size
        if self._given_points is None:
            m = max(m, config.n_inducing)  # a small first chunk gave fewer
        return StreamSettings(
            batch_size=stream_batch_size(given, m + n_local),
            # Points are exchanged by the trace term, which is zero for a model without the residual.
            n_inducing=m if config.learn_inducing and config.residual_scale > 0.0 else None,
            n_local=n_local,
            memory=np.inf if self.window_size is None else float(self.window_size),
        )

    def _resume_stream(
        self,
        chunk: ArraySource,
        config: TrainingConfig,
        backend: Backend,
        routing: Routing | None,
    ) -> tuple[Trainer, StreamRecord]:
        """A trainer for the next chunk, and where the stream stands before it."""
        record: StreamRecord | None = None
        posterior, jitter, leaf_jitter, leaves, seen = None, None, None, None, 0.0
        if self.__sklearn_is_fitted__():
            # What moves is what the parameters say now, from where the last chunk or fit has ended.
            record, scaling = self._stream, self.model_.scaling
            space = ParameterSpace(
                self.kernel_, self.model_.Z, config.learn_kernel, learn_inducing=False
            )
            jitter = self.model_.jitter  # q keeps the coordinates that it was made in
            if self.model_.local is not None:
                leaves, leaf_jitter = self.model_.local.leaves, self.model_.local.jitter
            if record is None:
                posterior, seen = self.model_.whole_posterior, self._weight_seen
        else:
            scaling = backend.learn_scaling(chunk, config.scaling)
            start = self._start(chunk, scaling, config, routing)
            space, leaves = start.space, start.leaves
        # Inducing points follow the rows: they are exchanged for rows, not moved by steps.
        space = replace(space, learn_inducing=False)
        began = space if record is None else record.space
        rule, update = make_rule(config), NaturalUpdate()
        if leaves is not None:
            require_memory_for_leaves(len(space.Z), leaves.sizes, rule.n_latents)
            update = LocalStreamUpdate()
            chunk = with_leaves(chunk, leaves_of_rows(chunk, leaves.routing))
        engine = backend.engine(chunk, scaling, rule.n_latents)
        assert config.optimizer is not None
        centre = space.project(space.pack(began.kernel.theta, began.Z))
        problem = make_problem(
            engine,
            rule,
            space,
            config.hyperprior_scale,
            centre=centre,
            posterior=posterior,
            leaves=leaves,
        )
        options = SweepOptions(
            exact=config.exact_gradient,
            residual_scale=config.residual_scale,
            trace_penalty=config.trace_penalty,
        )
        problem = replace(problem, jitter=jitter, leaf_jitter=leaf_jitter)
        trainer = Trainer(problem, config.optimizer, options, update)
        if record is None:
            stream = Stream(trainer.init(), seen, represents=seen)
        else:
            state = moved_to(record.stream.state, space, config.optimizer)
            stream = replace(record.stream, state=state)
        return trainer, StreamRecord(stream, began)

    def _store_stream(
        self, problem: Problem, config: TrainingConfig, record: StreamRecord, progress: Progress
    ) -> None:
        engine, stream = problem.engine, record.stream
        assert isinstance(engine, LocalEngine)  # a chunk is an array
        self._stream, self._weight_seen = record, stream.seen
        self._centre = problem.hyperprior.centre
        calibration = Calibration()
        if self.__sklearn_is_fitted__():
            calibration = self.model_.calibration
        else:
            self.n_iter_ = 0
            self.history_: list[Iteration] = []
        self.config_, self.race_ = config, None
        self._store_validation(NOT_SCORED)  # the score of an earlier fit is not that of this model
        state = stream.state
        self.model_ = problem.model(problem.prior(state.x), state.q.posterior(), calibration)
        self.log_marginal_likelihood_value_ = np.nan  # the rows before this chunk are gone
        self.loo_log_proba_ = engine.expanded_to_input_rows(engine.log_predictive)
        self.loo_log_loss_ = -weighted_mean(engine.log_predictive, engine.source)
        self.n_iter_ += len(progress.history)
        self.history_ = thinned([*self.history_, *progress.history])
        self.fit_seconds_ = progress.seconds
        self._training = None
