"""What a stream may change between two chunks, and what it may not."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from numbers import Integral
from os import PathLike
from typing import Any

import numpy as np

from cavity.estimators.growing import STREAM_POINTS
from cavity.estimators.plans import BATCH_PER_POINT
from cavity.history import Iteration
from cavity.optimizers import Optimizer
from cavity.parameters import ParameterSpace
from cavity.schedules.online import StreamSettings
from cavity.schedules.step import TrainingState
from cavity.sources.arrow_tables import is_arrow_stream, is_dataset
from cavity.sources.blocks import require_one_kind
from cavity.sources.opening import is_source
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
    memory = np.inf if estimator.stream_memory is None else float(estimator.stream_memory)
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
