"""What a stream may change between two chunks, and what it may not.

Classifiers trained step by step: on all rows, on minibatches, or on a stream (`partial_fit`).
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from numbers import Integral, Real
from os import PathLike
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from cavity.data.arrays import ArraySource
from cavity.data.arrow import is_arrow_stream, is_dataset
from cavity.data.labels import require_one_kind
from cavity.data.opening import is_source, numbers, weighted_arrays
from cavity.data.weights import any_weight, validated_sample_weight, weighted_mean
from cavity.engines.local import LocalEngine
from cavity.engines.threads import Threads, compute_context, thread_count
from cavity.estimators.base import SparseGPClassifier, rollback_on_error
from cavity.estimators.config import (
    BATCH_PER_POINT,
    resolved_batch_size,
    resolved_optimizer,
    training_plan,
)
from cavity.estimators.validation import validated_kernel
from cavity.gp.model import Model
from cavity.gp.parameters import ParameterSpace
from cavity.gp.posterior import Posterior
from cavity.inference.history import Iteration, Progress
from cavity.inference.inducing_search import STREAM_POINTS
from cavity.inference.optimizers import Optimizer
from cavity.inference.streaming import Stream, StreamSettings, absorb
from cavity.inference.sweep import SweepOptions
from cavity.inference.train import Outcome
from cavity.inference.trainer import Problem, Trainer, TrainingState, make_problem
from cavity.inference.updates import NaturalUpdate, PosteriorUpdate
from cavity.typing import Array

SETTLING_ROWS = 25
"""Rows for each inducing point in which the parameters of a stream find their place."""
MOST_RECORDS = 4_000
"""Records that the history of a stream has at most: one without end must not grow without end."""


def refuse_what_a_stream_cannot_do(estimator: Any) -> None:
    """Raise for parameters that only a fit can follow."""
    if estimator.class_weight == "balanced":
        raise ValueError(
            'class_weight="balanced" is not supported by partial_fit, which cannot know how often '
            "the classes of a stream will occur; pass a dict, for instance from "
            'sklearn.utils.class_weight.compute_class_weight("balanced", ...) on a sample'
        )


def refuse_what_is_no_chunk(X: Any) -> None:
    """Raise for what `fit` can read and a stream cannot, and for chunks that were not taken out."""
    if isinstance(X, Iterator) and not hasattr(X, "__array__"):
        raise TypeError(
            f"X is a {type(X).__name__}; partial_fit takes the rows of one chunk: call it for each of "
            "those that this yields"
        )
    if isinstance(X, (str, PathLike)) or is_dataset(X) or is_arrow_stream(X) or is_source(X):
        what = repr(str(X)) if isinstance(X, (str, PathLike)) else f"a {type(X).__name__}"
        raise TypeError(
            f"X is {what}; partial_fit takes the rows of a chunk as an array, data frame or sparse "
            "matrix: read them, or call fit, which goes over files and sources itself"
        )


def stream_settings(estimator: Any, m: int) -> StreamSettings:
    """How the parameters want a stream with m inducing points to be learned."""
    size = estimator.batch_size
    if not isinstance(size, Integral):
        size = BATCH_PER_POINT * m
    memory = np.inf if estimator.window_size is None else float(estimator.window_size)
    return StreamSettings(int(size), SETTLING_ROWS * m if estimator._learns else 0.0, memory)


def stream_classes(y: Array, classes: Any) -> Array:
    """The classes [C] of a stream that begins with labels y [n]."""
    if classes is not None:
        require_one_kind(np.asarray(classes), "classes")
    known: Array = np.unique(np.unique(y) if classes is None else np.asarray(classes))
    if len(known) < 2:
        raise ValueError(
            f"the first call of partial_fit knows {len(known)} classes ({known.tolist()}); pass "
            "classes=[...] with all labels that the stream will have"
        )
    return known


def check_classes(y: Array, classes: Any, known: Array) -> None:
    """Refuse labels y [n], or an announcement of classes, other than those that are known."""
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


def warn_of_few_points(m: int, n_inducing: int | str) -> None:
    """Tell that a stream has fewer inducing points than were asked for, and always will."""
    wanted = STREAM_POINTS if isinstance(n_inducing, str) else n_inducing
    if m < wanted:
        warnings.warn(
            f"the first chunk has too few different rows for n_inducing={n_inducing!r}: this stream "
            f"has {m} inducing points for good; begin with {wanted} rows at least, better a few "
            "thousand, or pass inducing_points",
            UserWarning,
            stacklevel=3,
        )


def moved_to(state: TrainingState, space: ParameterSpace, optimizer: Optimizer) -> TrainingState:
    """A state as one of this space, which starts where it stands, and of this optimiser.

    What was to be learned may have changed since the last chunk, and how. Of another length x has other
    parts, which the space knows; the optimiser forgets what it knew of them.
    """
    x = state.x if len(state.x) == len(space.start) else space.start
    fresh = optimizer.initial(len(x))
    if x is state.x and type(fresh) is type(state.optimizer_state):
        return state
    return replace(state, x=x, optimizer_state=fresh, previous=(x, state.q))


def thinned(history: list[Iteration]) -> list[Iteration]:
    """The history, or every second record of it as often as it takes, and the last.

    >>> records = [Iteration(i, 0.0, 0.0, 0.0, 0.0, 0.0) for i in range(1, 2 * MOST_RECORDS)]
    >>> short = thinned(records)
    >>> len(short), short[0].iteration, short[-2].iteration, short[-1].iteration
    (4000, 1, 7997, 7999)
    """
    while len(history) > MOST_RECORDS:
        history = history[:-1][::2] + history[-1:]
    return history


STREAM_RATE = 0.05


@dataclass(frozen=True)
class StreamRecord:
    """What an estimator keeps between two chunks."""

    stream: Stream
    space: ParameterSpace
    """Where the stream began: the hyper-prior stays centred there."""


class SteppedGPClassifier(SparseGPClassifier):
    """A classifier whose q and parameters move together, a step at a time."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **SparseGPClassifier._parameter_constraints,
        "optimizer": [StrOptions({"auto", "adam", "rprop", "adadelta"}), None],
        "learning_rate": [Interval(Real, 0, None, closed="neither"), None],
        "batch_size": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"}), None],
        "max_epochs": [Interval(Real, 0, None, closed="neither"), None],
        "max_seconds": [Interval(Real, 0, None, closed="neither"), None],
        "early_stopping": [StrOptions({"loo", "validation"}), None],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "damping": [Interval(Real, 0, 1, closed="right"), StrOptions({"auto"})],
        "window_size": [Interval(Real, 0, None, closed="neither"), None],
        "checkpoint": [str, PathLike, None],
        "checkpoint_interval": [Interval(Real, 0, None, closed="left")],
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
        self.kernel = kernel
        self.likelihood = likelihood
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
        self.calibration = calibration
        self.class_weight = class_weight
        self.hyperprior = hyperprior
        self.standardize = standardize
        self.warm_start = warm_start
        self.window_size = window_size
        self.checkpoint = checkpoint
        self.checkpoint_interval = checkpoint_interval
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def _batch_size(self, problem: Problem) -> int | None:
        """Rows of a step, or None for all of them."""
        return resolved_batch_size(self.batch_size, problem.engine.n_rows, len(problem.space.Z))

    @abstractmethod
    def _options(self, batch_size: int | None) -> SweepOptions:
        """How this method's passes treat their rows; batch_size None means all rows."""

    def _optimizer_name(self) -> str | None:
        """The optimiser, "auto" being left to the plan."""
        return self.optimizer

    def _update(self, problem: Problem) -> PosteriorUpdate:
        """How q moves."""
        return NaturalUpdate(problem.engine.threads.map)

    def _train(self, problem: Problem, progress: Progress, seed: int) -> Outcome:
        plan = training_plan(
            self,
            problem,
            self._options(self._batch_size(problem)),
            self._update(problem),
            self._optimizer_name(),
            seed,
            calibration_seed=seed if self._calibrates(problem) else None,
        )
        return plan.run(problem, progress)

    def _refuse_what_does_not_go_together(self) -> None:
        if not self._learns:
            for name in ("checkpoint", "early_stopping"):
                value = getattr(self, name)
                if value is not None:
                    raise ValueError(
                        f"{name}={value!r} does not go with optimizer=None, which takes no steps: the "
                        f"posterior is brought to convergence at the given kernel; leave {name} out"
                    )
        if self.checkpoint is None:
            return
        resumed = f"checkpoint={str(self.checkpoint)!r}"
        if not isinstance(self.random_state, Integral):
            raise ValueError(
                f"{resumed} with random_state={self.random_state!r}: a fit to be resumed must start "
                "from the same place; give random_state a whole number"
            )
        if self.n_inducing == "auto" and self.max_seconds is not None:
            raise ValueError(
                f'{resumed} with n_inducing="auto" and max_seconds={self.max_seconds!r}: how many '
                "points there will be depends on the clock, and a fit to be resumed must start from the "
                "same place; give n_inducing a number, or max_epochs instead of max_seconds"
            )

    def _refuse_what_does_not_suit(self, n_rows: int) -> None:
        if self.learning_rate is not None and self._optimizer_name() == "adadelta":
            raise ValueError(
                f"learning_rate={self.learning_rate!r} does not go with ADADELTA, which has none (here "
                f'optimizer={self.optimizer!r}); leave it out, or pass optimizer="adam"'
            )

    def _calibrates(self, problem: Problem) -> bool:
        if self.calibration == "auto":
            if problem.engine.stores_directions:  # the paper's scheme
                return False
            if self._learns and self._batch_size(problem) is not None:
                return True
        return super()._calibrates(problem)

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> SteppedGPClassifier:
        """Learn from one more chunk of rows X [n, d] with labels y [n]; earlier chunks stay learned.

        The first call on an estimator that is not fitted takes standardisation and inducing points from
        its chunk, and needs `classes` if the chunk does not show all of them. After `fit`, the stream
        goes on from the fitted posterior. With `window_size` the posterior stands for about that many
        of the latest rows, for streams that drift. A weight of w counts a row w times, 0 leaves it out,
        and a later chunk without any weight changes nothing.
        """
        self._validate_params()
        refuse_what_a_stream_cannot_do(self)
        validated_kernel(self.kernel)
        refuse_what_is_no_chunk(X)
        first = not hasattr(self, "model_")
        with rollback_on_error(self):
            X, y = validate_data(self, X, y, reset=first, accept_sparse="csr", dtype="numeric")
            self._refuse_what_does_not_suit(len(y))
            require_one_kind(y)
            check_classification_targets(y)
            weight = validated_sample_weight(sample_weight, len(y), some=first)
            if first:
                self.classes_ = stream_classes(y, classes)
            check_classes(y, classes, self.classes_)
            if not first and not any_weight(y, weight, self.class_weight, self.classes_):
                return self
            chunk, _ = weighted_arrays(numbers(X), y, weight, self.class_weight, self.classes_)
            history = getattr(self, "history_", [])
            progress = Progress(int(self.verbose), history[-1].iteration if history else 0)
            if history:
                progress.resume_at(history[-1].seconds)
            with compute_context(thread_count(self.n_jobs)) as threads:
                trainer, record = self._resume_stream(chunk, threads)
                settings = stream_settings(self, len(trainer.problem.space.Z))
                stream = absorb(trainer, record.stream, chunk, progress, settings)
            self._store_stream(trainer.problem, replace(record, stream=stream), progress)
        if first and self.inducing_points is None:
            warn_of_few_points(len(self.model_.Z), self.n_inducing)
        return self

    def _resume_stream(self, chunk: ArraySource, threads: Threads) -> tuple[Trainer, StreamRecord]:
        """A trainer for the next chunk, and where the stream stands before it."""
        record: StreamRecord | None = getattr(self, "_stream", None)
        posterior, jitter, seen = None, None, 0.0
        if hasattr(self, "model_"):
            # What moves is what the parameters say today, from where the last chunk or fit has ended.
            learns, standardizer = self._learns, self.model_.standardizer
            space = ParameterSpace(self.kernel_, self.model_.Z, learns, learns and self.learn_inducing)
            jitter = self.model_.jitter  # q keeps the coordinates that it was made in
            if record is None:
                posterior, seen = self.model_.posterior, self._weight_seen
        else:
            start = self._problem(chunk, threads, check_random_state(self.random_state))
            space, standardizer = start.space, start.engine.standardizer
        begun = space if record is None else record.space
        engine = LocalEngine(chunk, standardizer, self._rule(), threads)
        optimizer = resolved_optimizer(
            self.optimizer or "adam", self.learning_rate or STREAM_RATE, batch_size=1
        )
        assert optimizer is not None
        centre = space.project(space.pack(begun.kernel.theta, begun.Z))
        problem = make_problem(engine, space, self.hyperprior, centre=centre, posterior=posterior)
        trainer = Trainer(
            replace(problem, jitter=jitter), optimizer, replace(self._options(batch_size=1), damping=1.0)
        )
        if record is None:
            stream = Stream(trainer.start(), seen, importance_weight=seen, fitted=seen)
        else:
            state = moved_to(record.stream.state, space, optimizer)
            stream = replace(record.stream, state=state)
        return trainer, StreamRecord(stream, begun)

    def _store_stream(self, problem: Problem, record: StreamRecord, progress: Progress) -> None:
        engine, stream = problem.engine, record.stream
        assert isinstance(engine, LocalEngine)  # a chunk is an array
        self._stream, self._weight_seen = record, stream.seen
        self._centre = problem.hyperprior.centre
        prior = problem.prior(stream.state.x)
        self.inverse_temperature_ = getattr(
            self, "inverse_temperature_", 1.0
        )  # a stream goes on with that of its fit
        posterior = Posterior.from_naturals(stream.state.q)
        self.model_ = Model.at(prior, posterior, engine, inverse_temperature=self.inverse_temperature_)
        self.kernel_ = prior.kernel
        self.inducing_points_ = engine.standardizer.invert(prior.Z)
        self.log_marginal_likelihood_value_ = np.nan  # what a stream has forgotten cannot be summed up
        self.loo_log_proba_ = engine.of_all_rows(engine.log_predictive)
        self.loo_log_loss_ = -weighted_mean(engine.log_predictive, engine.source)
        self.n_iter_ = getattr(self, "n_iter_", 0) + len(progress.history)
        self.history_ = thinned([*getattr(self, "history_", []), *progress.history])
        self._training = None
