"""How often what was said came true: frequencies with exact confidence bands."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from cavity.typing import Array, IntArray


@dataclass(frozen=True)
class Bins:
    """Rows grouped by what was said of them; empty groups are left out. All [b]."""

    predicted: Array
    """Mean probability that was said."""
    frequency: Array
    """Share of the rows of which it came true."""
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

    The bands are Clopper and Pearson's: exact for rows that are independent.

    >>> said, came_true = np.array([0.2, 0.2, 0.9]), np.array([True, False, True])
    >>> bins = reliability_bins(said, came_true, n_bins=2)
    >>> bins.frequency.tolist(), bins.count.tolist()
    ([0.5, 1.0], [2, 1])
    """
    if strategy == "uniform":
        edges = np.linspace(0.0, 1.0, n_bins + 1)[1:-1]
    elif strategy == "quantile":
        edges = np.unique(np.quantile(probability, np.linspace(0.0, 1.0, n_bins + 1)[1:-1]))
    else:
        raise ValueError(f'strategy={strategy!r}; it is "uniform" or "quantile"')
    bin_of = np.searchsorted(edges, probability, side="right")
    count = np.bincount(bin_of, minlength=n_bins)
    said = np.bincount(bin_of, weights=probability, minlength=n_bins)
    true = np.bincount(bin_of, weights=outcome, minlength=n_bins)
    kept = count > 0
    count, said, true = count[kept], said[kept], true[kept]
    low, high = binomial_band(np.asarray(true, dtype=float), count, confidence)
    return Bins(said / count, true / count, low, high, count)


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
    """Mean distance between what was said and how often it came true, over all rows."""
    return float(np.abs(bins.predicted - bins.frequency) @ bins.count / bins.count.sum())
