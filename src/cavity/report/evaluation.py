"""What was predicted and what was true, on rows that the prediction had not seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cavity.plot.prediction import log_proba_at
from cavity.report.subject import Subject
from cavity.report.training_rows import KnownRows
from cavity.typing import Array, IntArray


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
