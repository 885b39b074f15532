"""The classifier that a report is about, and rows by number as inputs of that classifier."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline

from cavity.data.source import Source
from cavity.estimators.facts import FitFacts, fit_facts, fitted_classifier
from cavity.estimators.validation import validated_rows
from cavity.inference.fitted import names_of_features
from cavity.plot.canvas import dense, n_rows, take_rows
from cavity.text import printable
from cavity.typing import Array, FeatureNames, InputLabels, InputRows, IntArray

if TYPE_CHECKING:
    import pandas

    from cavity.estimators.base import SparseGPClassifier


@dataclass(frozen=True)
class ReportTarget:
    """A fitted classifier of cavity, on its own or inside a table classifier or a pipeline."""

    classifier: SparseGPClassifier
    names: list[str]
    """[d]: names of the classifier's inputs."""
    prepare: Callable[[InputRows], Array]
    """Turns rows of the user [n, …] into inputs [n, d]."""
    transforms: bool
    """Whether the inputs differ from the columns of the user's rows."""
    facts: FitFacts

    @property
    def classes(self) -> list[str]:
        """Names of the classes."""
        return [printable(str(value)) for value in self.classifier.classes_]

    def codes(self, y: InputLabels) -> IntArray:
        """Positions of labels y [n] among the classes."""
        labels, known = np.asarray(y), np.asarray(self.classifier.classes_)
        codes = np.searchsorted(known, labels).clip(0, len(known) - 1)
        unknown = known[codes] != labels
        if unknown.any():
            raise ValueError(
                f"y has the label {labels[unknown].tolist()[0]!r}, but the classifier knows "
                f"{known.tolist()}; leave such rows out of the report"
            )
        return codes


def report_target(estimator: BaseEstimator, feature_names: FeatureNames = None) -> ReportTarget:
    """Find the classifier in an estimator, a scikit-learn pipeline or a table classifier."""
    classifier, facts = fitted_classifier(estimator), fit_facts(estimator)
    if classifier is estimator:
        names = [printable(name) for name in names_of_features(classifier, feature_names)]

        def validated(X: InputRows) -> Array:
            return dense(validated_rows(classifier, X))

        return ReportTarget(classifier, names, validated, False, facts)
    before = estimator[:-1] if isinstance(estimator, Pipeline) else estimator
    if feature_names is None and hasattr(before, "get_feature_names_out"):
        feature_names = before.get_feature_names_out()
    names = [printable(name) for name in names_of_features(classifier, feature_names)]
    return ReportTarget(classifier, names, lambda X: dense(before.transform(X)), True, facts)


@dataclass(frozen=True)
class GivenRows:
    """Rows of the user."""

    target: ReportTarget
    X: InputRows
    """[n, …]: an array, a data frame, or what has a length and `take`, which returns a frame."""
    y: InputLabels
    """[n]"""

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return n_rows(self.X)


@dataclass(frozen=True)
class ReportRows:
    """Some labelled rows, as the classifier sees them and as the user knows them."""

    index: IntArray
    """[k]: their numbers, counted from 0."""
    X: Array
    """[k, d]: inputs of the classifier."""
    codes: IntArray
    """[k]: positions of their labels among the classes."""
    frame: pandas.DataFrame | None = None
    """The same rows as a data frame of the user, if the inputs were made from its columns."""

    def at(self, positions: IntArray) -> ReportRows:
        """Select rows by their positions among these."""
        frame = None if self.frame is None else self.frame.iloc[positions]
        return ReportRows(self.index[positions], self.X[positions], self.codes[positions], frame)

    def numbered(self, numbers: IntArray) -> ReportRows:
        """Select rows by their numbers."""
        return self.at(np.flatnonzero(np.isin(self.index, numbers)))


def rows_at(rows: GivenRows | Source, numbers: IntArray) -> ReportRows:
    """Fetch rows by number, sorted and without repeats; a source in files is read through once.

    >>> from cavity.data import ArraySource
    >>> source = ArraySource(np.eye(4), np.array([0, 1, 1, 0]))
    >>> rows_at(source, np.array([2, 0])).codes.tolist()
    [0, 1]
    """
    wanted: IntArray = np.unique(numbers)
    if isinstance(rows, GivenRows):
        target, X = rows.target, take_rows(rows.X, wanted)
        frame = X if target.transforms and hasattr(X, "iloc") else None
        return ReportRows(wanted, target.prepare(X), target.codes(take_rows(rows.y, wanted)), frame)
    found = rows.take(wanted)
    return ReportRows(wanted, found.X, found.labels)


def sample_index(n: int, size: int, seed: int) -> IntArray:
    """Draw up to `size` of n row numbers at random, sorted."""
    if n <= size:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, size, replace=False))
