"""`partial_fit`: a stream of chunks with no end, the posterior carried from one to the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from cavity.engines.local import LocalEngine
from cavity.engines.threads import Threads, thread_count
from cavity.estimators.base import SparseGPClassifier, computing
from cavity.estimators.plans import BATCH_PER_POINT, GAIN_WINDOW, resolved_optimizer
from cavity.estimators.validation import validated_kernel
from cavity.model import Model
from cavity.parameters import ParameterSpace
from cavity.posterior import Posterior
from cavity.problem import Problem, make_problem
from cavity.schedules.online import Stream, StreamSettings, absorb
from cavity.schedules.progress import Progress
from cavity.schedules.step import Trainer
from cavity.sources.arrays import ArraySource
from cavity.sweep import SweepOptions
from cavity.typing import Array, IntArray

STREAM_RATE = 0.05


@dataclass(frozen=True)
class StreamRecord:
    """What an estimator keeps between two chunks."""

    stream: Stream
    space: ParameterSpace
    """Where the stream began: the hyper-prior stays centred there."""


class StreamingMixin(SparseGPClassifier):
    """Adds `partial_fit` to a classifier whose rule can take rows a chunk at a time."""

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> StreamingMixin:
        """Learn from one more chunk of rows X [n, d] with labels y [n]; earlier chunks stay learned.

        The first call on an estimator that is not fitted takes standardisation and inducing points from
        its chunk, and needs `classes` if the chunk does not show both. After `fit`, the stream goes on
        from the fitted posterior. With `stream_memory` the posterior stands for about that many of the
        latest rows, for streams that drift.
        """
        self._validate_params()
        validated_kernel(self.kernel)
        first = not hasattr(self, "model_")
        X, y = validate_data(self, X, y, reset=first, accept_sparse="csr", dtype="numeric")
        check_classification_targets(y)
        if first:
            self.classes_ = _stream_classes(y, classes)
        chunk = ArraySource(X if X.dtype.kind != "b" else X.astype(np.uint8), _codes(y, self.classes_))
        progress = Progress(int(self.verbose))
        with computing(thread_count(self.n_jobs)) as threads:
            trainer, stream = self._resume_stream(chunk, threads)
            stream = absorb(trainer, stream, chunk, progress, self._stream_settings(trainer.problem))
        self._store_stream(trainer.problem, stream, progress)
        return self

    def _resume_stream(self, chunk: ArraySource, threads: Threads) -> tuple[Trainer, Stream]:
        record: StreamRecord | None = getattr(self, "_stream", None)
        naturals, seen = None, 0.0
        if record is not None:
            space, standardizer = record.space, self.model_.standardizer
        elif hasattr(self, "model_"):
            learns = self._learns
            space = ParameterSpace(self.kernel_, self.model_.Z, learns, learns and self.learn_inducing)
            standardizer = self.model_.standardizer
            naturals, seen = self.model_.posterior.naturals, float(len(self.loo_log_proba_))
        else:
            start = self._problem(chunk, threads, check_random_state(self.random_state))
            space, standardizer = start.space, start.engine.standardizer
        engine = LocalEngine(chunk, standardizer, self._rule(), threads)
        optimizer = resolved_optimizer(
            self.optimizer or "adam", self.learning_rate or STREAM_RATE, batch_size=1
        )
        assert optimizer is not None
        trainer = Trainer(
            make_problem(engine, space, self.hyperprior),
            optimizer,
            SweepOptions(residual_penalty=getattr(self, "residual_penalty", 0.0)),
        )
        stream = Stream(trainer.start(naturals), seen) if record is None else record.stream
        return trainer, stream

    def _stream_settings(self, problem: Problem) -> StreamSettings:
        m = len(problem.space.Z)
        size = self.batch_size
        if size is None or size == "auto":
            size = BATCH_PER_POINT * m
        memory = np.inf if self.stream_memory is None else float(self.stream_memory)
        return StreamSettings(int(size), size / (GAIN_WINDOW * m), memory)

    def _store_stream(self, problem: Problem, stream: Stream, progress: Progress) -> None:
        engine = problem.engine
        kernel, Z = problem.space.unpack(stream.state.x)
        posterior = Posterior.from_naturals(stream.state.naturals)
        self._stream = StreamRecord(stream, problem.space)
        self.model_ = Model(kernel, Z, posterior, engine.standardizer, engine.rule, np.dtype(np.float64))
        self.kernel_ = kernel
        self.inducing_points_ = engine.standardizer.invert(Z)
        self.log_marginal_likelihood_value_ = progress.history[-1].objective
        self.loo_log_proba_ = engine.log_predictive
        self.history_ = [*getattr(self, "history_", []), *progress.history]
        self.n_iter_ = len(self.history_)
        self._training = None


def _stream_classes(y: Array, classes: Any) -> Array:
    found = np.unique(y)
    if classes is None:
        classes = found
    known: Array = np.unique(np.asarray(classes))
    if len(known) != 2:
        raise ValueError(
            f"the first call of partial_fit knows {len(known)} classes ({known.tolist()}); pass "
            "classes=[...] with the two labels that the stream will have"
        )
    return known


def _codes(y: Array, classes: Array) -> IntArray:
    unknown = np.setdiff1d(y, classes)
    if len(unknown):
        raise ValueError(
            f"y has the label {unknown[0]!r}, but this stream's classes are {classes.tolist()}; fit a new "
            "estimator for other classes"
        )
    return np.asarray(np.searchsorted(classes, y), dtype=np.int8)
