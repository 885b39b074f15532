"""Rows of the training source, fetched by number.

What the report is about: a classifier, and the way from a user's rows to its inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from cavity.data.source import Source
from cavity.estimators.validation import validated_rows
from cavity.plot.canvas import dense, names_of_features
from cavity.typing import Array, IntArray


@dataclass(frozen=True)
class KnownRows:
    """Some labelled rows."""

    index: IntArray
    """[k]: their numbers."""
    X: Array
    """[k, d]: inputs of the classifier."""
    codes: IntArray
    """[k]"""


def rows_at(source: Source, index: IntArray) -> KnownRows:
    """The rows with these numbers, sorted; a source in files is read through once.

    >>> from cavity.data import ArraySource
    >>> source = ArraySource(np.eye(4), np.array([0, 1, 1, 0]))
    >>> rows_at(source, np.array([2, 0])).codes.tolist()
    [0, 1]
    """
    wanted: IntArray = np.unique(index)
    rows = source.take(wanted)
    return KnownRows(wanted, rows.X, rows.labels)


def sample_index(n: int, size: int, seed: int) -> IntArray:
    """Up to `size` of n row numbers, at random, sorted."""
    if n <= size:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, size, replace=False))


@dataclass(frozen=True)
class Subject:
    """A fitted classifier of this library, maybe inside a table classifier or a pipeline."""

    classifier: Any
    names: list[str]
    """[d]: the inputs of the classifier."""
    prepare: Callable[[Any], Array]
    """A user's rows [n, …] as inputs [n, d]."""
    transforms: bool = False
    """Whether the inputs differ from the columns of the user's rows."""
    fit_seconds: float | None = None
    fit_memory: int | None = None
    """Bytes; what a fit took, if the estimator has kept that."""

    @property
    def classes(self) -> list[str]:
        """The classes as words."""
        return [str(value) for value in self.classifier.classes_]

    @property
    def source(self) -> Source | None:
        """The rows it was trained on, if they are still at hand."""
        source = getattr(getattr(self.classifier, "_training", None), "source", None)
        return source if hasattr(source, "blocks") else None

    def codes(self, y: Any) -> IntArray:
        """Positions of labels y [n] among the classes."""
        labels, known = np.asarray(y), np.asarray(self.classifier.classes_)
        codes = np.searchsorted(known, labels).clip(0, len(known) - 1)
        strange = known[codes] != labels
        if strange.any():
            raise ValueError(
                f"y has the label {labels[strange].tolist()[0]!r}, but the classifier knows "
                f"{known.tolist()}; leave such rows out of the report"
            )
        return codes


def subject_of(estimator: Any, feature_names: Any = None) -> Subject:
    """Find the classifier in an estimator, a scikit-learn pipeline or a table classifier."""
    check_is_fitted(estimator)
    if isinstance(estimator, Pipeline):
        before, classifier = estimator[:-1], estimator[-1]
        return _behind(before, classifier, before.transform, feature_names)
    if hasattr(estimator, "classifier_"):
        return _behind(estimator, estimator.classifier_, estimator.transform, feature_names)
    _require_ours(estimator)
    return Subject(
        estimator,
        names_of_features(estimator, feature_names),
        lambda X: dense(validated_rows(estimator, X, reset=False)),
    )


def _behind(
    preparation: Any, classifier: Any, transform: Callable[[Any], Any], feature_names: Any
) -> Subject:
    _require_ours(classifier)
    if feature_names is None and hasattr(preparation, "get_feature_names_out"):
        feature_names = preparation.get_feature_names_out()
    return Subject(
        classifier,
        names_of_features(classifier, feature_names),
        lambda X: dense(transform(X)),
        True,
        getattr(preparation, "fit_seconds_", None),
        getattr(preparation, "peak_memory_bytes_", None),
    )


def _require_ours(classifier: Any) -> None:
    if not hasattr(classifier, "model_") or not hasattr(classifier, "loo_log_proba_"):
        raise TypeError(
            f"estimator is a {type(classifier).__name__}; a report is about a fitted classifier of "
            "cavity, or a pipeline that ends in one"
        )
