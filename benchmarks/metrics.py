"""Scores of predicted probabilities, from log-probabilities wherever a method gives them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr
from scipy.stats import rankdata

CLIP = 1e-12  # for methods that give plain probabilities only


def log_probabilities(p_plus: NDArray[np.floating]) -> NDArray[np.float64]:
    """[n] probabilities of +1 to the [n, 2] logarithms of p(-1) and p(+1), clipped at `CLIP`."""
    p = np.asarray(p_plus, dtype=np.float64)
    return np.log(np.clip(np.column_stack([1.0 - p, p]), CLIP, 1.0))


def scores(log_p: NDArray[np.floating], y: NDArray[np.integer]) -> dict[str, float]:
    """Mean negative log-likelihood, error and calibration error of log_p: [n, C], y: [n].

    Two classes are −1 and +1; more are the columns' numbers 0, …, C − 1.
    """
    log_p = np.asarray(log_p, dtype=np.float64)
    if log_p.ndim != 2 or log_p.shape[1] < 2 or len(log_p) != len(y):
        raise ValueError(f"log_p has shape {log_p.shape}; expected ({len(y)}, 2) or more columns")
    code = np.asarray(y) > 0 if log_p.shape[1] == 2 else np.asarray(y)
    code = code.astype(int)
    correct = log_p.argmax(axis=1) == code
    confidence = np.exp(log_p.max(axis=1))
    return {
        "nll": float(-np.mean(log_p[np.arange(len(code)), code])),
        "error": float(np.mean(~correct)),
        "ece": expected_calibration_error(confidence, correct),
        "ece_by_chance": calibration_error_by_chance(confidence),
    }


def expected_calibration_error(
    confidence: NDArray[np.floating], correct: NDArray[np.bool_], bins: int = 15
) -> float:
    """Mean |accuracy − confidence| over equal-width bins of [0, 1], weighted by their rows."""
    index = np.minimum((np.asarray(confidence) * bins).astype(int), bins - 1)
    gap = np.bincount(index, weights=correct - confidence, minlength=bins)
    return float(np.abs(gap).sum() / len(correct))


def calibration_error_by_chance(confidence: NDArray[np.floating], bins: int = 15) -> float:
    """The expected calibration error of n rows that are right exactly as often as they say.

    A bin's accuracy is a mean of few rows, and so differs from their confidence by chance. The sum of a
    bin is taken to be normal, with the variance of independent rows.

    >>> calibration_error_by_chance(np.array([1.0, 1.0]))
    0.0
    """
    p = np.asarray(confidence)
    index = np.minimum((p * bins).astype(int), bins - 1)
    variance = np.bincount(index, weights=p * (1.0 - p), minlength=bins)
    return float(np.sqrt(2.0 / np.pi * variance).sum() / len(p))


SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5)
"""Shares of the rows that `rejection` leaves without an answer."""


def rejection(correct: NDArray[np.bool_], score: NDArray[np.floating]) -> list[float]:
    """Error on the rows that are left if those with the largest score are rejected, by `SHARES`.

    >>> rejection(np.array([True] * 9 + [False]), np.arange(10.0))[:3]
    [0.1, 0.1, 0.0]
    """
    wrong = ~np.asarray(correct)[np.argsort(score, kind="stable")]
    kept = [len(wrong) - round(share * len(wrong)) for share in SHARES]
    return [float(wrong[:n].mean()) for n in kept]


def auroc(known: NDArray[np.floating], foreign: NDArray[np.floating]) -> float:
    """The probability that a foreign row has the larger score; ties count as a half.

    >>> auroc(np.array([0.0, 1.0]), np.array([1.0, 2.0]))
    0.875
    """
    both = rankdata(np.concatenate([known, foreign]))
    above = both[len(known) :].sum() - len(foreign) * (len(foreign) + 1) / 2
    return float(above / (len(known) * len(foreign)))


def latent_scores(
    f: NDArray[np.floating],
    mean: NDArray[np.floating],
    variance: NDArray[np.floating],
    log_p: NDArray[np.floating],
) -> dict[str, float]:
    """Scores against the true latent function f: [n], where p(+1) = Φ(f).

    coverage: share of rows with f in the 95 % interval. width: its mean width. slope: that of f by least
    squares on the latent mean, with an intercept. excess: the expected NLL of log_p: [n, 2] over the
    labels, less that of the true probabilities (the Bayes rate); it is never negative.
    """
    half = 1.96 * np.sqrt(variance)
    moments = np.cov(mean, f)
    labels = np.column_stack([ndtr(-f), ndtr(f)])
    gap = np.column_stack([log_ndtr(-f), log_ndtr(f)]) - log_p
    return {
        "coverage": float(np.mean(np.abs(f - mean) <= half)),
        "slope": float(moments[0, 1] / moments[0, 0]),
        "width": float(np.mean(2.0 * half)),
        "excess": float(np.mean(np.sum(labels * gap, axis=1))),
    }
