"""Scores of predicted probabilities, as sums over rows, and reliability bins with confidence bands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from cavity.typing import Array, IntArray

BINS = 15
"""Bins of confidence for the calibration error."""
_GRADES = 2**16
"""Steps of the log odds, between −40 and 40, by which rows are ranked: fine enough to be exact."""


@dataclass
class ScoreSums:
    """Sums from which scores are computed; their size does not depend on the number of rows."""

    n_classes: int
    nll: float = 0.0
    brier: float = 0.0
    gaps: Array = field(default_factory=lambda: np.zeros(BINS))
    """Correct predictions minus confidence, in bins of confidence."""
    weighted: bool = False
    """Whether rows had weights."""
    rows: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """[C]: rows of each class, regardless of their weights."""
    confusion: Array = field(default_factory=lambda: np.zeros((0, 0)))
    """[C, C]: weight of the rows of a class (first index) that were predicted as another (second)."""
    ranks: Array = field(default_factory=lambda: np.zeros((0, 2, 0)))
    """[C or 1, 2, grades]: weights of the other classes and of the class, by grade of its log odds."""

    def __post_init__(self) -> None:
        self.rows = np.zeros(self.n_classes, dtype=np.int64)
        self.confusion = np.zeros((self.n_classes, self.n_classes))
        ranked = 1 if self.n_classes == 2 else self.n_classes
        self.ranks = np.zeros((ranked, 2, _GRADES))

    def add(self, log_proba: Array, labels: IntArray, weights: Array | None = None) -> None:
        """Add rows with log probabilities [t, C], class codes [t] and weights [t]."""
        self.weighted |= weights is not None
        w = np.ones(len(labels)) if weights is None else weights
        rows = np.arange(len(labels))
        proba = np.exp(log_proba)
        predicted = log_proba.argmax(axis=1)
        confidence = proba[rows, predicted]
        self.rows += np.bincount(labels, minlength=self.n_classes)
        self.nll -= float(w @ log_proba[rows, labels])
        self.brier += float(w @ (np.square(proba).sum(axis=1) - 2 * proba[rows, labels] + 1.0))
        bin_of = np.minimum((confidence * BINS).astype(int), BINS - 1)
        self.gaps += np.bincount(bin_of, w * ((predicted == labels) - confidence), minlength=BINS)
        np.add.at(self.confusion, (labels, predicted), w)
        for counts, c in zip(self.ranks, self._ranked, strict=True):
            grade = _grades(log_proba, c) + _GRADES * (labels == c)
            counts += np.bincount(grade, weights, minlength=2 * _GRADES).reshape(2, _GRADES)

    @property
    def _ranked(self) -> Sequence[int]:
        """Classes by which rows are ranked: the second of two, or all of more."""
        return (1,) if self.n_classes == 2 else range(self.n_classes)

    def scores(self, training_counts: Array | IntArray) -> dict[str, Any]:
        """The scores by name; the baseline predicts the class frequencies in training for every row."""
        n = float(self.confusion.sum())
        frequency = training_counts / training_counts.sum()
        counts = self.confusion.sum(axis=1)
        # Laplace's rule: a class that is absent in training would make the baseline's NLL infinite.
        safe = (training_counts + 1) / (training_counts.sum() + len(training_counts))
        return {
            "rows": int(self.rows.sum()),
            "weight": n,
            "nll": self.nll / n,
            "error": 1.0 - float(np.trace(self.confusion)) / n,
            "brier": self.brier / n,
            "calibration_error": float(np.abs(self.gaps).sum()) / n,
            "auc": self._auc(),
            "baseline": {
                "nll": float(-(counts @ np.log(safe)) / n),
                "error": 1.0 - float(counts[int(np.argmax(frequency))]) / n,
                "brier": float(np.square(frequency).sum() - 2 * counts @ frequency / n + 1.0),
            },
            "confusion": (self.confusion if self.weighted else self.confusion.astype(int)).tolist(),
        }

    def _auc(self) -> float | None:
        """Area under the ROC curve of the second class, or the mean over all classes that occur."""
        known = [area for area in map(_area, self.ranks) if area is not None]
        return float(np.mean(known)) if known else None


def _grades(log_proba: Array, c: int) -> IntArray:
    """Grade [t] of the log odds of class c."""
    others = np.delete(log_proba, c, axis=1)
    odds = log_proba[:, c] - np.logaddexp.reduce(others, axis=1)
    place = (np.clip(odds, -40.0, 40.0) + 40.0) * ((_GRADES - 1) / 80.0)
    return np.asarray(np.rint(place), dtype=np.int64)


def _area(counts: Array) -> float | None:
    """Share of pairs of a positive and another row in the right order; a tie counts one half."""
    others, positive = counts
    if not others.any() or not positive.any():
        return None
    below = np.cumsum(others) - 0.5 * others
    return float((positive @ below) / (float(positive.sum()) * float(others.sum())))


def score(log_proba: Array, labels: IntArray, training_counts: IntArray) -> dict[str, Any]:
    """The scores of log probabilities [n, C] against class codes [n].

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
    """Rows grouped by their predicted probability; empty groups are left out. All arrays are [b]."""

    predicted: Array
    """Mean predicted probability."""
    frequency: Array
    """Share of rows with a positive outcome."""
    low: Array
    high: Array
    """Confidence band of the frequency."""
    count: IntArray
    """Rows in the group."""


def reliability_bins(
    probability: Array,
    outcome: NDArray[np.bool_],
    *,
    n_bins: int = 10,
    strategy: str = "uniform",
    confidence: float = 0.95,
) -> Bins:
    """Compare probabilities [n] with outcomes [n], in bins of equal width or of equally many rows.

    The confidence bands are Clopper and Pearson's: exact for independent rows.

    >>> predicted, outcome = np.array([0.2, 0.2, 0.9]), np.array([True, False, True])
    >>> bins = reliability_bins(predicted, outcome, n_bins=2)
    >>> bins.frequency.tolist(), bins.count.tolist()
    ([0.5, 1.0], [2, 1])
    """
    if strategy == "uniform":
        edges = np.linspace(0.0, 1.0, n_bins + 1)[1:-1]
    elif strategy == "quantile":
        edges = np.unique(np.quantile(probability, np.linspace(0.0, 1.0, n_bins + 1)[1:-1]))
    else:
        raise ValueError(f'strategy={strategy!r} is unknown; use "uniform" or "quantile"')
    bin_of = np.searchsorted(edges, probability, side="right")
    count = np.bincount(bin_of, minlength=n_bins)
    predicted = np.bincount(bin_of, weights=probability, minlength=n_bins)
    positive = np.bincount(bin_of, weights=outcome, minlength=n_bins)
    kept = count > 0
    count, predicted, positive = count[kept], predicted[kept], positive[kept]
    low, high = binomial_band(np.asarray(positive, dtype=float), count, confidence)
    return Bins(predicted / count, positive / count, low, high, count)


def binomial_band(successes: Array, trials: IntArray, confidence: float = 0.95) -> tuple[Array, Array]:
    """Clopper and Pearson's interval of a share, for each of [b] counts.

    >>> [round(float(end), 3) for end in binomial_band(np.array(0.0), np.array(10))]
    [0.0, 0.308]
    """
    tail = 0.5 * (1.0 - confidence)
    successes, failures = np.asarray(successes, dtype=float), np.asarray(trials - successes, dtype=float)
    low = betaincinv(np.maximum(successes, 1e-300), failures + 1.0, tail)
    high = betaincinv(successes + 1.0, np.maximum(failures, 1e-300), 1.0 - tail)
    return np.where(successes == 0, 0.0, low), np.where(failures == 0, 1.0, high)


def calibration_error(bins: Bins) -> float:
    """Mean distance between predicted probability and frequency, over all rows."""
    return float(np.abs(bins.predicted - bins.frequency) @ bins.count / bins.count.sum())
