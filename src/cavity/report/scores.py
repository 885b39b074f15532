"""How good the predictions are: scores, the confusion matrix, and what each threshold would do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cavity.gp.metrics import BINS, binomial_band, score, score_rows
from cavity.plot.canvas import log_proba_at
from cavity.report.target import ReportRows, ReportTarget
from cavity.typing import Array, IntArray, JsonObject


class Score(NamedTuple):
    """One line of the table of scores."""

    name: str
    value: str
    band: str
    """95 % interval, or empty."""
    baseline: str
    """The same score of a forecast that predicts the class shares of these rows, or empty."""
    meaning: str


def scores(evaluation: Evaluation, positive: int | None) -> list[Score]:
    """The lines of the table of scores; with two classes, rows are ranked by the `positive` one."""
    codes, log_proba = evaluation.codes, evaluation.log_proba
    found = score(log_proba, codes, np.bincount(codes, minlength=log_proba.shape[1]))
    if positive == 0 and log_proba.shape[1] == 2:
        found |= _of_the_first(evaluation, found)
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
            "Calibration error (ECE)",
            f"{found['calibration_error']:.1%}",
            "",
            "",
            "mean gap between the confidence in the likeliest class and how often it is right, "
            f"{BINS} bins",
        ),
    ]
    shares = np.bincount(codes, minlength=log_proba.shape[1]) / len(codes)
    return table + _ranking_scores(shares[::-1] if positive == 0 else shares, found)


def _of_the_first(evaluation: Evaluation, found: JsonObject) -> JsonObject:
    """Scores of the ranking of the first of two classes; `score` has those of the second."""
    codes, log_proba = 1 - evaluation.codes, evaluation.log_proba[:, ::-1]
    mirrored = score(log_proba, codes, np.bincount(codes, minlength=2))
    right, missed = found["confusion"][0]
    taken = found["confusion"][1][0]
    return {
        "average_precision": mirrored["average_precision"],
        "lift_10": mirrored["lift_10"],
        "f1": 2.0 * right / max(1, 2 * right + missed + taken),
    }


def _ranking_scores(shares: Array, found: JsonObject) -> list[Score]:
    """Scores of the ranking: of the positive class, the last, or the mean over all against the rest."""
    if found["auc"] is None:
        return []
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


class Confusion(NamedTuple):
    """Which classes are taken for which."""

    counts: list[list[int]]
    """[C][C]: rows by true class (first) and likeliest class (second)."""
    shares: list[list[float]]
    """[C][C]: the same as shares of the rows of each true class."""
    worst: list[tuple[int, int, int]]
    """True class, likeliest class and rows of the most frequent mistakes."""


def confusion(evaluation: Evaluation, most: int = 12) -> Confusion:
    """Count true and likeliest classes, and list the `most` frequent mistakes.

    >>> log_proba = np.log([[0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
    >>> confusion(Evaluation(np.array([0, 1, 1]), log_proba, True, 3)).counts
    [[1, 0], [1, 1]]
    """
    n_classes = evaluation.log_proba.shape[1]
    counts = np.zeros((n_classes, n_classes), dtype=np.int64)
    np.add.at(counts, (evaluation.codes, evaluation.log_proba.argmax(axis=1)), 1)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    mistakes = counts - np.diag(np.diag(counts))
    order = np.argsort(-mistakes, axis=None, kind="stable")[:most]
    pairs = [tuple(map(int, np.unravel_index(i, mistakes.shape))) for i in order]
    worst = [(a, b, int(mistakes[a, b])) for a, b in pairs if mistakes[a, b]]
    return Confusion(counts.tolist(), shares.tolist(), worst)


_STEPS = np.unique(np.concatenate([np.arange(0, 100), np.arange(100, 900, 10), np.arange(900, 1001)]))
"""Thresholds of the explorer in thousandths: finer at the ends, where those of rare classes are."""
_PRINTED = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Thresholds of the printed table."""


class ThresholdLine(NamedTuple):
    """What a threshold does; a line of the printed table."""

    threshold: float
    flagged: float
    """Share of all rows."""
    precision: float | None
    """None if no row is flagged."""
    recall: float
    counts: tuple[int, int, int, int]
    """Hits, false alarms, misses, and rows that are rightly not flagged."""


class Thresholds(NamedTuple):
    """Rows that are flagged at each threshold: those with a probability of the class as high or higher.

    Only counts are kept, and no rows: they are what the page shows, and all that it discloses.
    """

    at: list[float]
    """[t]"""
    hits: list[int]
    """[t]: flagged rows of the class."""
    alarms: list[int]
    """[t]: flagged rows of other classes."""
    n_class: int
    """Rows of the class."""
    n_other: int

    @property
    def start(self) -> int:
        """Position of the threshold that `predict` has with two classes."""
        return self.at.index(0.5)

    @property
    def data(self) -> JsonObject:
        """What the script of the page reads."""
        return {**self._asdict(), "start": self.start}

    def line(self, position: int) -> ThresholdLine:
        """Precision, recall and counts at one of the thresholds."""
        hits, alarms = self.hits[position], self.alarms[position]
        return ThresholdLine(
            self.at[position],
            (hits + alarms) / (self.n_class + self.n_other),
            hits / (hits + alarms) if hits + alarms else None,
            hits / self.n_class,
            (hits, alarms, self.n_class - hits, self.n_other - alarms),
        )

    @property
    def printed(self) -> list[ThresholdLine]:
        """The lines of the printed table."""
        return [self.line(self.at.index(threshold)) for threshold in _PRINTED]


def thresholds(evaluation: Evaluation, positive: int) -> Thresholds | None:
    """Count the rows that each threshold flags; None unless some rows are of the class and some not.

    >>> found = thresholds(Evaluation(np.array([1, 0]), np.log([[0.2, 0.8], [0.6, 0.4]]), True, 2), 1)
    >>> found.line(found.start)
    ThresholdLine(threshold=0.5, flagged=0.5, precision=1.0, recall=1.0, counts=(1, 0, 0, 1))
    """
    p, is_class = evaluation.proba[:, positive], evaluation.codes == positive
    if is_class.all() or not is_class.any():
        return None
    at = _STEPS / 1000
    hits, alarms = (
        len(part) - np.searchsorted(np.sort(part), at, side="left")
        for part in (p[is_class], p[~is_class])
    )
    return Thresholds(
        at.tolist(), hits.tolist(), alarms.tolist(), int(is_class.sum()), int((~is_class).sum())
    )
