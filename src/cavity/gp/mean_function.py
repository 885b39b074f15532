"""A mean function of the latent values: a classifier's score of a row, times a coefficient.

With a mean function m the latent value of a row is f(x) = m(x) + g(x), and only g is a Gaussian process.
m(x) = a·score(x), where the score of a classifier is its log-odds, or for C ≥ 3 classes its log
probabilities minus their mean. `cavity.estimators.mean_function` learns both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import logit
from sklearn.base import BaseEstimator

from cavity.data.scaling import Scaling
from cavity.data.source import rows_to_look_at
from cavity.typing import FLOAT64, AnyArray, Array, ArrayOrSparse

LEAST_PROBABILITY = 1e-4
"""Probabilities of a classifier are taken as at least this: some say 0, which has no logarithm."""


@dataclass(frozen=True)
class LinearScore:
    """Log-odds that are linear in the scaled inputs, as logistic regression learns them."""

    scaling: Scaling
    weights: Array
    """[d, L]"""
    intercept: Array
    """[L]"""

    def __call__(self, X: ArrayOrSparse) -> Array:
        """Scores [n, L] of raw inputs X [n, d]."""
        dense = X.toarray() if sparse.issparse(X) else np.asarray(X)
        return np.asarray(self.scaling.apply(dense, FLOAT64) @ self.weights + self.intercept)


@dataclass(frozen=True)
class MeanFunction:
    """The score of a fitted classifier times a coefficient."""

    classifier: LinearScore | BaseEstimator
    coefficient: float
    """a ≥ 0"""

    def __str__(self) -> str:
        linear = isinstance(self.classifier, LinearScore)
        return f"{self.coefficient:.3g} × {'linear' if linear else type(self.classifier).__name__}"

    def __call__(self, X: ArrayOrSparse) -> Array:
        """Latent means [L, n] at raw inputs X [n, d], without the Gaussian process."""
        size = rows_to_look_at(X.shape[1])
        parts = [scores(self.classifier, X[i : i + size]) for i in range(0, X.shape[0], size)]
        return self.coefficient * np.concatenate(parts).T


def scores(
    classifier: LinearScore | BaseEstimator, X: ArrayOrSparse, classes: AnyArray | None = None
) -> Array:
    """Scores [n, L] of raw inputs X [n, d]: log-odds (L = 1), or centred log probabilities (L = C).

    classes: all classes [C], if the classifier may not have seen all of them; it has then the smallest
    score for those that it does not know.

    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([0, 0, 1, 1])
    >>> scores(LogisticRegression().fit(X, y), np.array([[3.0]])).round(1)
    array([[1.4]])
    """
    if isinstance(classifier, LinearScore):
        return classifier(X)
    name, known = type(classifier).__name__, np.asarray(classifier.classes_)
    classes = known if classes is None else classes
    found = _two_classes(classifier, X) if len(classes) == 2 else _many_classes(classifier, X)
    if found.shape != (X.shape[0], 1 if len(classes) == 2 else len(known)):
        raise ValueError(
            f"mean_function={name} has scores of shape {found.shape} for {X.shape[0]} rows and "
            f"{len(known)} classes; pass a classifier with decision_function or predict_proba as in "
            "scikit-learn"
        )
    if not np.isfinite(found).all():
        raise ValueError(
            f"mean_function={name} has scores that are not finite; pass a classifier that predicts "
            "finite numbers for these rows"
        )
    if len(classes) == 2:
        return found
    every = np.repeat(found.min(axis=1, keepdims=True), len(classes), axis=1)
    every[:, np.searchsorted(classes, known)] = found
    return np.asarray(every - every.mean(axis=1, keepdims=True))


def _two_classes(classifier: Any, X: ArrayOrSparse) -> Array:
    if hasattr(classifier, "decision_function"):
        return np.asarray(classifier.decision_function(X), dtype=np.float64).reshape(X.shape[0], -1)
    p = np.asarray(classifier.predict_proba(X), dtype=np.float64)[:, 1:]
    return np.asarray(logit(np.clip(p, LEAST_PROBABILITY, 1.0 - LEAST_PROBABILITY)))


def _many_classes(classifier: Any, X: ArrayOrSparse) -> Array:
    if hasattr(classifier, "predict_proba"):
        p = np.asarray(classifier.predict_proba(X), dtype=np.float64)
        return np.log(np.maximum(p, LEAST_PROBABILITY))
    values = np.asarray(classifier.decision_function(X), dtype=np.float64)
    return values if values.ndim == 2 else np.stack([-0.5 * values, 0.5 * values], axis=1)
