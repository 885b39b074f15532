"""Scores with their uncertainty, next to those of a forecast that knows the class shares only.

What was predicted and what was true, on rows that the prediction had not seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

from cavity.gp.metrics import Bins, binomial_band, calibration_error, reliability_bins
from cavity.plot.canvas import log_proba_at
from cavity.report.target import KnownRows, Subject
from cavity.typing import Array, IntArray


class Score(NamedTuple):
    """One line of the table of scores."""

    name: str
    value: str
    band: str
    """95 % interval, or empty."""
    baseline: str
    """Of the forecast that says the class shares of these rows each time, or empty."""
    meaning: str


def scores(evaluation: Evaluation) -> list[Score]:
    """What the predictions are worth."""
    codes, p = evaluation.codes, evaluation.proba
    loss = -evaluation.true_log_proba
    shares = np.bincount(codes, minlength=p.shape[1]) / len(codes)
    present = shares[shares > 0]
    wrong = p.argmax(axis=1) != codes
    low, high = binomial_band(np.array(float(wrong.sum())), np.array(len(wrong)))
    squared = ((p - np.eye(p.shape[1])[codes]) ** 2).sum(axis=1)
    table = [
        Score(
            "NLL",
            f"{loss.mean():.4f}",
            _mean_band(loss),
            f"{-present @ np.log(present):.4f}",
            "mean −log probability of what happened; smaller is better",
        ),
        Score(
            "Error",
            f"{wrong.mean():.1%}",
            f"{low:.1%} – {high:.1%}",
            f"{1 - shares.max():.1%}",
            "share of rows whose likeliest class is not theirs",
        ),
        Score(
            "Brier score",
            f"{squared.mean():.4f}",
            _mean_band(squared),
            f"{1 - shares @ shares:.4f}",
            "mean squared distance of the probabilities from what happened",
        ),
        Score(
            "Calibration error",
            f"{calibration_error(top_label_bins(evaluation)):.1%}",
            "",
            "",
            "mean gap between the confidence in the likeliest class and how often it is right, 15 bins",
        ),
    ]
    return table + _ranking_scores(evaluation)


def top_label_bins(evaluation: Evaluation, n_bins: int = 15) -> Bins:
    """Reliability of the likeliest class."""
    p = evaluation.proba
    return reliability_bins(p.max(axis=1), p.argmax(axis=1) == evaluation.codes, n_bins=n_bins)


def _ranking_scores(evaluation: Evaluation) -> list[Score]:
    """Areas under the curves: of the second class, or the mean over classes against the rest."""
    codes, p = evaluation.codes, evaluation.proba
    judged = [code for code in range(p.shape[1]) if 0 < np.sum(codes == code) < len(codes)]
    judged = judged[-1:] if p.shape[1] == 2 else judged
    if not judged:
        return []
    roc = [roc_auc_score(codes == code, p[:, code]) for code in judged]
    precision = [average_precision_score(codes == code, p[:, code]) for code in judged]
    share = np.mean([np.mean(codes == code) for code in judged])
    of = "" if p.shape[1] == 2 else ", mean over classes against the rest"
    return [
        Score(
            "ROC area",
            f"{np.mean(roc):.3f}",
            "",
            "0.500",
            f"chance that a row of the class is ranked above one that is not{of}",
        ),
        Score(
            "Average precision",
            f"{np.mean(precision):.3f}",
            "",
            f"{share:.3f}",
            f"area under the precision–recall curve{of}",
        ),
    ]


def _mean_band(values: Array) -> str:
    if len(values) < 2:
        return ""
    half = 1.96 * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean() - half:.4f} – {values.mean() + half:.4f}"


@dataclass(frozen=True)
class Evaluation:
    """Predictions to be judged."""

    codes: IntArray
    """[n]: true classes."""
    log_proba: Array
    """[n, C]"""
    held_out: bool
    """Whether the rows took no part in training; otherwise each was left out of the posterior."""
    n_available: int
    """Rows of which these were drawn."""

    @property
    def proba(self) -> Array:
        """[n, C]"""
        return np.exp(self.log_proba)

    @property
    def true_log_proba(self) -> Array:
        """[n]: log probability that was given to what is true."""
        return np.asarray(np.take_along_axis(self.log_proba, self.codes[:, None], axis=1)[:, 0])


def held_out_evaluation(subject: Subject, rows: KnownRows, n_available: int) -> Evaluation:
    """Judge held-out rows."""
    log_proba = log_proba_at(subject.classifier, rows.X)
    return Evaluation(rows.codes, log_proba, held_out=True, n_available=n_available)


def left_out_evaluation(subject: Subject, rows: KnownRows) -> Evaluation | None:
    """Judge training rows by their leave-one-out probabilities, which two classes determine."""
    loo = np.asarray(subject.classifier.loo_log_proba_, dtype=np.float64)
    if len(subject.classes) != 2 or len(rows.index) == 0 or rows.index[-1] >= len(loo):
        return None
    of_label = loo[rows.index]
    visited = np.isfinite(of_label)
    if not visited.any():
        return None
    of_label, codes = of_label[visited], rows.codes[visited].astype(int)
    of_other = np.log(-np.expm1(np.minimum(of_label, -1e-15)))
    log_proba = np.where(codes[:, None] == np.arange(2), of_label[:, None], of_other[:, None])
    return Evaluation(codes, log_proba, held_out=False, n_available=int(np.isfinite(loo).sum()))
