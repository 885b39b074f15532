"""The classifier that a report is about, rows as its inputs, and the scores of its predictions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline

from cavity.data.source import Source
from cavity.estimators.facts import FitFacts, fit_facts, fitted_classifier
from cavity.estimators.validation import validated_rows
from cavity.gp.metrics import BINS, binomial_band, score, score_rows
from cavity.inference.fitted import names_of_features
from cavity.plot.canvas import dense, log_proba_at, n_rows, take_rows
from cavity.text import printable
from cavity.typing import Array, FeatureNames, InputLabels, InputRows, IntArray, JsonObject

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


class Score(NamedTuple):
    """One line of the table of scores."""

    name: str
    value: str
    band: str
    """95 % interval, or empty."""
    baseline: str
    """The same score of a forecast that predicts the class shares of these rows, or empty."""
    meaning: str


def scores(evaluation: Evaluation) -> list[Score]:
    """Score the predictions; the table of scores line by line."""
    codes, log_proba = evaluation.codes, evaluation.log_proba
    found = score(log_proba, codes, np.bincount(codes, minlength=log_proba.shape[1]))
    rows, baseline = score_rows(log_proba, codes), found["baseline"]
    low, high = binomial_band(np.array(float(rows.error.sum())), np.array(len(codes)))
    table = [
        Score(
            "NLL",
            f"{found['nll']:.4f}",
            _mean_band(rows.nll),
            f"{baseline['nll']:.4f}",
            "mean −log probability of the true class; smaller is better",
        ),
        Score(
            "Error",
            f"{found['error']:.1%}",
            f"{low:.1%} – {high:.1%}",
            f"{baseline['error']:.1%}",
            "share of rows whose likeliest class is not the true one",
        ),
        Score(
            "Brier score",
            f"{found['brier']:.4f}",
            _mean_band(rows.brier),
            f"{baseline['brier']:.4f}",
            "mean squared distance of the probabilities from the truth",
        ),
        Score(
            "Calibration error",
            f"{found['calibration_error']:.1%}",
            "",
            "",
            "mean gap between the confidence in the likeliest class and how often it is right, "
            f"{BINS} bins",
        ),
    ]
    return table + _ranking_scores(evaluation, found)


def _ranking_scores(evaluation: Evaluation, found: JsonObject) -> list[Score]:
    """Scores of the ranking: of the second class, or the mean over classes against the rest."""
    if found["auc"] is None:
        return []
    shares = np.bincount(evaluation.codes, minlength=evaluation.log_proba.shape[1]) / len(
        evaluation.codes
    )
    two = len(shares) == 2
    share = shares[1] if two else shares[(shares > 0.0) & (shares < 1.0)].mean()
    of = "" if two else ", mean over classes against the rest"
    table = [
        Score(
            "ROC area",
            f"{found['auc']:.3f}",
            "",
            "0.500",
            f"chance that a row of the class is ranked above one that is not{of}",
        ),
        Score(
            "Average precision",
            f"{found['average_precision']:.3f}",
            "",
            f"{share:.3f}",
            f"area under the precision–recall curve{of}",
        ),
        Score("F1", f"{found['f1']:.3f}", "", "", f"harmonic mean of precision and recall{of}"),
    ]
    if two:
        meaning = (
            "how many times more frequent the class is among the tenth of the rows that ranks highest"
        )
        table.append(Score("Lift at 10 %", f"{found['lift_10']:.2f}", "", "1.00", meaning))
    return table


def _mean_band(values: Array) -> str:
    """95 % interval of the mean of values [n], by their standard error."""
    if len(values) < 2:
        return ""
    half = 1.96 * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean() - half:.4f} – {values.mean() + half:.4f}"


@dataclass(frozen=True)
class Evaluation:
    """Predictions and the true classes."""

    codes: IntArray
    """[n]: true classes."""
    log_proba: Array
    """[n, C]"""
    held_out: bool
    """Whether the rows took no part in training; otherwise each was left out of the posterior."""
    n_available: int
    """Number of rows from which these were drawn."""

    @property
    def proba(self) -> Array:
        """Class probabilities [n, C]."""
        return np.exp(self.log_proba)

    @property
    def true_log_proba(self) -> Array:
        """Log probability [n] of the true class."""
        return np.asarray(np.take_along_axis(self.log_proba, self.codes[:, None], axis=1)[:, 0])


def held_out_evaluation(target: ReportTarget, rows: ReportRows, n_available: int) -> Evaluation:
    """Predict held-out rows."""
    log_proba = log_proba_at(target.classifier, rows.X)
    return Evaluation(rows.codes, log_proba, held_out=True, n_available=n_available)


def left_out_evaluation(target: ReportTarget, rows: ReportRows) -> Evaluation | None:
    """Take the leave-one-out probabilities of training rows as predictions.

    Only with two classes do they determine the probabilities of all classes; with more, return None.
    """
    loo = np.asarray(target.classifier.loo_log_proba_, dtype=np.float64)
    if len(target.classes) != 2 or len(rows.index) == 0 or rows.index[-1] >= len(loo):
        return None
    of_label = loo[rows.index]
    visited = np.isfinite(of_label)
    if not visited.any():
        return None
    of_label, codes = of_label[visited], rows.codes[visited].astype(int)
    of_other = np.log(-np.expm1(np.minimum(of_label, -1e-15)))
    log_proba = np.where(codes[:, None] == np.arange(2), of_label[:, None], of_other[:, None])
    return Evaluation(codes, log_proba, held_out=False, n_available=int(np.isfinite(loo).sum()))
