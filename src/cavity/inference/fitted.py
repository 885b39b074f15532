"""What plots, reports and exports ask of a fitted classifier, without knowing its class."""

from __future__ import annotations

from typing import Protocol

from sklearn.base import BaseEstimator
from sklearn.gaussian_process.kernels import Kernel

from cavity.gp.model import Model
from cavity.gp.relevance import Relevance
from cavity.inference.history import Iteration
from cavity.typing import AnyArray, Array, FeatureNames, InputRows


class FittedClassifier(Protocol):
    """The learned attributes of a classifier of cavity; `SEPClassifier` describes them."""

    classes_: AnyArray
    """[C]"""
    n_features_in_: int
    kernel_: Kernel
    inducing_points_: Array
    """[m, d], in the units of the user."""
    model_: Model
    relevance_: Relevance
    history_: list[Iteration]
    n_jobs: int | None

    def predict_proba(self, X: InputRows) -> Array:
        """Probabilities [n, C] of the classes."""


class HasFeatures(Protocol):
    """An estimator that knows how many features it was fitted with."""

    n_features_in_: int


def names_of_features(
    estimator: HasFeatures | BaseEstimator, feature_names: FeatureNames = None
) -> list[str]:
    """Names [d] of the features: those given, those that the estimator was fitted with, or x0, x1, …

    >>> from types import SimpleNamespace
    >>> names_of_features(SimpleNamespace(n_features_in_=2))
    ['x0', 'x1']
    """
    d = int(estimator.n_features_in_)
    if feature_names is None:
        feature_names = getattr(estimator, "feature_names_in_", None)
    if feature_names is None:
        return [f"x{i}" for i in range(d)]
    names = [str(name) for name in feature_names]
    if len(names) != d:
        raise ValueError(
            f"feature_names has {len(names)} names, but the estimator was fitted with {d} features; "
            "give one name for each feature"
        )
    return names
