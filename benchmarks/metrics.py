"""Scores of predicted probabilities, from log-probabilities wherever a method gives them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

CLIP = 1e-12  # for methods that give plain probabilities only


def log_probabilities(p_plus: NDArray[np.floating]) -> NDArray[np.float64]:
    """[n] probabilities of +1 to the [n, 2] logarithms of p(-1) and p(+1), clipped at `CLIP`."""
    p = np.asarray(p_plus, dtype=np.float64)
    return np.log(np.clip(np.column_stack([1.0 - p, p]), CLIP, 1.0))


def scores(log_p: NDArray[np.floating], y: NDArray[np.integer]) -> dict[str, float]:
    """Mean negative log-likelihood, error and calibration error of log_p: [n, 2], y: [n] in ±1."""
    log_p = np.asarray(log_p, dtype=np.float64)
    if log_p.shape != (len(y), 2):
        raise ValueError(f"log_p has shape {log_p.shape}; expected ({len(y)}, 2)")
    positive = np.asarray(y) > 0
    predicted = log_p[:, 1] > log_p[:, 0]
    return {
        "nll": float(-np.mean(np.where(positive, log_p[:, 1], log_p[:, 0]))),
        "error": float(np.mean(predicted != positive)),
        "ece": expected_calibration_error(np.exp(log_p.max(axis=1)), predicted == positive),
    }


def expected_calibration_error(
    confidence: NDArray[np.floating], correct: NDArray[np.bool_], bins: int = 15
) -> float:
    """Mean |accuracy − confidence| over equal-width bins of [0, 1], weighted by their rows."""
    index = np.minimum((np.asarray(confidence) * bins).astype(int), bins - 1)
    gap = np.bincount(index, weights=correct - confidence, minlength=bins)
    return float(np.abs(gap).sum() / len(correct))
