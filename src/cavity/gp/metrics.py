"""Scores of predicted probabilities, as sums over rows, bins for calibration curves, and decisions.

A decision is which class is predicted, given probabilities and what mistakes cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from cavity.data.labels import n_latents
from cavity.typing import Array, IntArray, JsonObject


@dataclass(frozen=True)
class Decision:
    """How probabilities become labels: the likeliest class, unless a threshold or costs are given.

    >>> log_proba = np.log([[0.7, 0.3], [0.9, 0.1]])
    >>> Decision().codes(log_proba).tolist(), Decision(threshold=0.3).codes(log_proba).tolist()
    ([0, 0], [1, 0])

    If it costs 5 to miss a row of the second class, and 1 to take another row for it, the second class
    is worth predicting from a probability of 1/6 on:

    >>> decision = Decision(costs=np.array([[0.0, 1.0], [5.0, 0.0]]))
    >>> decision.codes(log_proba).tolist(), round(decision.least_probability, 3)
    ([1, 0], 0.167)
    """

    positive: int = 1
    """Code of the positive one of two classes, to which the threshold belongs."""
    threshold: float | None = None
    """Probability from which on the positive one of two classes is predicted."""
    costs: Array | None = None
    """[C, C]: cost of predicting a class (second index) for a row of another (first index)."""

    def codes(self, log_proba: Array) -> IntArray:
        """The predicted classes [t] at log probabilities [t, C]."""
        if self.threshold is not None:
            found = np.exp(log_proba[:, self.positive]) >= self.threshold
            return np.where(found, self.positive, 1 - self.positive)
        if self.costs is not None:
            # The expected cost of predicting j is Σ_i p_i C_ij.
            return np.asarray((np.exp(log_proba) @ self.costs).argmin(axis=1))
        return np.asarray(log_proba.argmax(axis=1))

    @property
    def least_probability(self) -> float:
        """Probability from which on the positive one of two classes is predicted.

        There p c(positive, other) = (1 − p) c(other, positive); c(i, j) is the cost of j for a row of i.
        """
        if self.threshold is not None:
            return self.threshold
        if self.costs is None:
            return 0.5
        missed = float(self.costs[self.positive, 1 - self.positive])
        wrong = float(self.costs[1 - self.positive, self.positive])
        return wrong / (wrong + missed)


BINS = 15
"""Bins of equal width in which the calibration error compares confidence and accuracy."""
_GRADES = 2**16
"""Steps of the log odds, between −40 and 40, by which rows are ranked: fine enough for an exact AUC."""


class RowScores(NamedTuple):
    """Scores of each row, all [t]."""

    nll: Array
    """−log p of the true class."""
    error: NDArray[np.bool_]
    """Whether the likeliest class is not the true one."""
    brier: Array
    """Squared distance of the probabilities from the truth; half of it with two classes."""


def score_rows(log_proba: Array, labels: IntArray) -> RowScores:
    """Score log probabilities [t, C] against class codes [t], row by row.

    The Brier score is scikit-learn's: (p_1 − y)² for two classes, Σ_c (p_c − y_c)² for more.

    >>> rows = score_rows(np.log([[0.2, 0.8], [0.6, 0.4]]), np.array([1, 1]))
    >>> rows.brier.round(2).tolist(), rows.error.tolist()
    ([0.04, 0.36], [False, True])
    """
    true = np.take_along_axis(log_proba, labels[:, None], axis=1)[:, 0]
    distance = np.square(np.exp(log_proba)).sum(axis=1) - 2 * np.exp(true) + 1.0
    scale = _brier_scale(log_proba.shape[1])
    return RowScores(-true, log_proba.argmax(axis=1) != labels, scale * distance)


def _brier_scale(n_classes: int) -> float:
    return 0.5 if n_classes == 2 else 1.0


@dataclass
class ScoreSums:
    """Sums from which the scores of any number of rows are computed, in constant memory."""

    n_classes: int
    decision: Decision = field(default_factory=Decision)
    """How labels are predicted, and which of two classes is the positive one."""
    nll: float = 0.0
    brier: float = 0.0
    bins: Array = field(default_factory=lambda: np.zeros((3, BINS)))
    """Weight of the rows, of their confidences and of the right answers, in bins of confidence."""
    weighted: bool = False
    """Whether any rows came with weights."""
    rows: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """[C]: number of rows of each class, weights ignored."""
    confusion: Array = field(default_factory=lambda: np.zeros((0, 0)))
    """[C, C]: weight of the rows by true class (first index) and predicted class (second)."""
    ranks: Array = field(default_factory=lambda: np.zeros((0, 2, 0)))
    """[C or 1, 2, grades]: weight of the other classes and of the class, by grade of its log odds."""

    def __post_init__(self) -> None:
        self.rows = np.zeros(self.n_classes, dtype=np.int64)
        self.confusion = np.zeros((self.n_classes, self.n_classes))
        self.ranks = np.zeros((n_latents(self.n_classes), 2, _GRADES))

    def add(self, log_proba: Array, labels: IntArray, weights: Array | None = None) -> None:
        """Add rows with log probabilities [t, C], class codes [t] and weights [t]."""
        self.weighted |= weights is not None
        w = np.ones(len(labels)) if weights is None else weights
        of_rows = score_rows(log_proba, labels)
        confidence = np.exp(log_proba.max(axis=1))
        self.rows += np.bincount(labels, minlength=self.n_classes)
        self.nll += float(w @ of_rows.nll)
        self.brier += float(w @ of_rows.brier)
        bin_of = np.minimum((confidence * BINS).astype(int), BINS - 1)
        for sums, values in zip(self.bins, (w, w * confidence, w * ~of_rows.error), strict=True):
            sums += np.bincount(bin_of, values, minlength=BINS)
        np.add.at(self.confusion, (labels, self.decision.codes(log_proba)), w)
        for counts, c in zip(self.ranks, self._ranked, strict=True):
            grade = _grades(log_proba, c) + _GRADES * (labels == c)
            counts += np.bincount(grade, weights, minlength=2 * _GRADES).reshape(2, _GRADES)

    def merge(self, other: ScoreSums) -> None:
        """Add the rows of other sums for the same classes."""
        self.nll += other.nll
        self.brier += other.brier
        self.weighted |= other.weighted
        self.bins = self.bins + other.bins
        self.rows = self.rows + other.rows
        self.confusion = self.confusion + other.confusion
        self.ranks = self.ranks + other.ranks

    @property
    def _ranked(self) -> Sequence[int]:
        """Classes whose log odds rank the rows: the positive one of two, or all."""
        return (self.decision.positive,) if self.n_classes == 2 else range(self.n_classes)

    def scores(self, training_counts: Array | IntArray) -> JsonObject:
        """Compute the scores by name, and those of a baseline.

        The baseline predicts the class frequencies of `training_counts` [C] for every row.
        """
        n = float(self.confusion.sum())
        frequency = training_counts / training_counts.sum()
        counts = self.confusion.sum(axis=1)
        # Laplace's rule: without it a class that training has not seen costs the baseline infinitely.
        smoothed = (training_counts + 1) / (training_counts.sum() + len(training_counts))
        with np.errstate(divide="ignore"):
            usual = int(self.decision.codes(np.log(frequency)[None])[0])
        squared_distance = float(np.square(frequency).sum() - 2 * counts @ frequency / n + 1.0)
        return {
            "rows": int(self.rows.sum()),
            "weight": n,
            "nll": self.nll / n,
            "error": 1.0 - float(np.trace(self.confusion)) / n,
            "brier": self.brier / n,
            "calibration_error": float(np.abs(self.bins[2] - self.bins[1]).sum()) / n,
            "auc": self._ranking(_area),
            "average_precision": self._ranking(_average_precision),
            "precision": self._share_right(axis=0),
            "recall": self._share_right(axis=1),
            "f1": self._f1(),
            "lift_10": self._ranking(_lift) if self.n_classes == 2 else None,
            "baseline": {
                "nll": float(-(counts @ np.log(smoothed)) / n),
                "error": 1.0 - float(counts[usual]) / n,
                "brier": _brier_scale(self.n_classes) * squared_distance,
                **self._mean_cost(counts[:, None] * (np.arange(self.n_classes) == usual)),
            },
            **self._mean_cost(self.confusion),
            "confusion": (self.confusion if self.weighted else self.confusion.astype(int)).tolist(),
            "reliability": self._reliability(),
        }

    def _ranking(self, of: Callable[[Array, Array], float]) -> float | None:
        """A score of the ranking: of the positive class, or the mean over all classes that occur."""
        known = [of(*counts) for counts in self.ranks if counts.any(axis=1).all()]
        return float(np.mean(known)) if known else None

    def _f1(self) -> float:
        """Harmonic mean of precision and recall: of the positive class, or the mean over all."""
        found, wanted = self.confusion.sum(axis=0), self.confusion.sum(axis=1)
        both = np.where(found + wanted > 0.0, found + wanted, 1.0)
        f1 = 2.0 * np.diag(self.confusion) / both
        if self.n_classes == 2:
            return float(f1[self.decision.positive])
        return float(f1[found + wanted > 0.0].mean())

    def _share_right(self, axis: int) -> float | None:
        """Share of the rows that are predicted as positive (axis 0), or are it (1), which are both.

        It is None without any such rows, and for more than two classes.
        """
        if self.n_classes > 2:
            return None
        positive = self.decision.positive
        total = float(self.confusion.sum(axis=axis)[positive])
        return float(self.confusion[positive, positive]) / total if total else None

    def _mean_cost(self, confusion: Array) -> JsonObject:
        """The mean cost of a row, if mistakes have costs, for rows by true and predicted class."""
        if self.decision.costs is None:
            return {}
        return {"cost": float((confusion * self.decision.costs).sum() / confusion.sum())}

    def _reliability(self) -> list[JsonObject]:
        """Mean confidence, share of right answers and weight of the rows, in each bin that has rows."""
        return [
            {"confidence": said / weight, "accuracy": right / weight, "weight": weight}
            for weight, said, right in self.bins.T.tolist()
            if weight > 0.0
        ]


def _grades(log_proba: Array, c: int) -> IntArray:
    """Grades [t] of the log odds of class c."""
    others = np.delete(log_proba, c, axis=1)
    odds = log_proba[:, c] - np.logaddexp.reduce(others, axis=1)
    place = (np.clip(odds, -40.0, 40.0) + 40.0) * ((_GRADES - 1) / 80.0)
    return np.asarray(np.rint(place), dtype=np.int64)


def _area(others: Array, positive: Array) -> float:
    """Share of the pairs (row of the class, other row) in the right order; ties count half."""
    below = np.cumsum(others) - 0.5 * others
    return float((positive @ below) / (float(positive.sum()) * float(others.sum())))


def _average_precision(others: Array, positive: Array) -> float:
    """Mean over the rows of the class of the precision among rows that rank as high or higher."""
    found = np.cumsum(positive[::-1])
    seen = found + np.cumsum(others[::-1])
    precision = found / np.where(seen > 0.0, seen, 1.0)
    return float(positive[::-1] @ precision / found[-1])


def _lift(others: Array, positive: Array, share: float = 0.1) -> float:
    """How many times more frequent the class is among the tenth of the rows that ranks highest.

    If rows tie at the end of the tenth, a part of them is counted.
    """
    found, seen = np.cumsum(positive[::-1]), np.cumsum((positive + others)[::-1])
    inside = np.interp(share * seen[-1], np.append(0.0, seen), np.append(0.0, found))
    return float(inside / (share * found[-1]))


def score(log_proba: Array, labels: IntArray, training_counts: IntArray) -> JsonObject:
    """Score log probabilities [n, C] against class codes [n]; see `ScoreSums.scores`.

    >>> log_proba = np.log([[0.01, 0.99], [0.5, 0.5]])
    >>> scores = score(log_proba, np.array([1, 0]), np.array([1, 1]))
    >>> [round(scores[name], 3) for name in ("nll", "error", "calibration_error", "auc")]
    [0.352, 0.0, 0.255, 1.0]
    """
    sums = ScoreSums(log_proba.shape[1])
    sums.add(log_proba, labels)
    return sums.scores(training_counts)


@dataclass(frozen=True)
class Bins:
    """Rows grouped by predicted probability, without empty groups. All [b]."""

    predicted: Array
    """Mean predicted probability."""
    frequency: Array
    """Share of the rows in which the event happened."""
    low: Array
    high: Array
    """Confidence band of the frequency."""
    count: IntArray
    """Number of rows."""


def reliability_bins(
    probability: Array,
    outcome: NDArray[np.bool_],
    *,
    n_bins: int = 10,
    strategy: str = "uniform",
    confidence: float = 0.95,
) -> Bins:
    """Compare probabilities [n] with outcomes [n], in bins of equal width or of equally many rows.

    The bands are Clopper and Pearson's, which are exact for independent rows.

    >>> probability, outcome = np.array([0.2, 0.2, 0.9]), np.array([True, False, True])
    >>> bins = reliability_bins(probability, outcome, n_bins=2)
    >>> bins.frequency.tolist(), bins.count.tolist()
    ([0.5, 1.0], [2, 1])
    """
    if n_bins < 1:
        raise ValueError(f"n_bins={n_bins!r} is not possible; it must be a whole number from 1")
    if strategy == "uniform":
        edges = np.linspace(0.0, 1.0, n_bins + 1)[1:-1]
    elif strategy == "quantile":
        edges = np.unique(np.quantile(probability, np.linspace(0.0, 1.0, n_bins + 1)[1:-1]))
    else:
        raise ValueError(f'strategy={strategy!r} is not an option; use "uniform" or "quantile"')
    bin_of = np.searchsorted(edges, probability, side="right")
    count = np.bincount(bin_of, minlength=n_bins)
    predicted = np.bincount(bin_of, weights=probability, minlength=n_bins)
    happened = np.bincount(bin_of, weights=outcome, minlength=n_bins)
    kept = count > 0
    count, predicted, happened = count[kept], predicted[kept], happened[kept]
    low, high = binomial_band(np.asarray(happened, dtype=float), count, confidence)
    return Bins(predicted / count, happened / count, low, high, count)


def binomial_band(successes: Array, trials: IntArray, confidence: float = 0.95) -> tuple[Array, Array]:
    """Clopper and Pearson's confidence interval of a share, for counts [b].

    >>> [round(float(end), 3) for end in binomial_band(np.array(0.0), np.array(10))]
    [0.0, 0.308]
    """
    tail = 0.5 * (1.0 - confidence)
    successes, failures = np.asarray(successes, dtype=float), np.asarray(trials - successes, dtype=float)
    low = betaincinv(np.maximum(successes, 1e-300), failures + 1.0, tail)
    high = betaincinv(successes + 1.0, np.maximum(failures, 1e-300), 1.0 - tail)
    return np.where(successes == 0, 0.0, low), np.where(failures == 0, 1.0, high)


def calibration_error(bins: Bins) -> float:
    """Mean distance between predicted probability and observed frequency, over all rows."""
    return float(np.abs(bins.predicted - bins.frequency) @ bins.count / bins.count.sum())
