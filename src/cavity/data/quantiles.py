"""Scalings that no outlier decides: by medians, interquartile ranges and ranks of a sample of rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from cavity.data.moments import FARTHEST, MOSTLY, Moments, learn_standard
from cavity.data.sampling import row_hash
from cavity.data.scaling import Knots, Scaling
from cavity.data.source import RowSource, even_parts
from cavity.typing import AnyArray, Array, IntArray

KINDS = ("robust", "quantile")
"""The scalings that are learned here."""
MOST_ROWS = 100_000
"""Most rows of a sample."""
MOST_VALUES = 25_000_000
"""Most values of a sample, which has fewer rows if they are wide."""
FEW_VALUES = 10
"""A column with at most so many different values is standardised."""
SIMILAR = 100.0
"""Largest range of such a column, in units of the smallest gap between two of its values."""
BEND = 1.0 / 3.0
"""How soon large values are drawn in: the reciprocal of a in z ↦ a·asinh(z/a)."""
IQR_OF_NORMAL = float(2.0 * ndtri(0.75))
"""Interquartile range of a standard normal distribution."""
KNOTS = 160, 40
"""Most knots of a column, without those that continue its tails: even in rank, and among the values."""
LEAST_RANK = 1e-4
"""Ranks lie between this share and one minus it, so that normal quantiles lie between ±3.7."""
ROUNDING = 1e-12
"""Relative differences that are rounding errors."""


def sample_numbers(n_rows: int, n_features: int) -> IntArray:
    """Sorted numbers of the rows that scalings are learned from: all, or one of each of 100,000 parts.

    They depend on the sizes of a table alone, so that all sources of the same rows agree.

    >>> sample_numbers(4, 2).tolist(), len(sample_numbers(10**9, 8)), len(sample_numbers(10**9, 10**6))
    ([0, 1, 2, 3], 100000, 25)
    """
    size = min(n_rows, MOST_ROWS, max(1, MOST_VALUES // n_features))
    bounds = np.arange(size + 1, dtype=np.int64) * n_rows // size
    begin, length = bounds[:-1], np.diff(bounds)
    return begin + (row_hash(begin) % length.astype(np.uint64)).astype(np.int64)


def learn_from_sample(source: RowSource, kind: str) -> Scaling:
    """The "robust" or "quantile" scaling of a source, learned from a sample of its rows."""
    rows = source.take(sample_numbers(source.n_rows, source.n_features))
    return scaling_of(rows.X, rows.weight, kind)


def scaling_of(X: AnyArray, weight: Array | None, kind: str) -> Scaling:
    """The "robust" or "quantile" scaling of rows X [t, d] with weights [t]; without rows, the identity.

    Columns with few different values are standardised, all others scaled by their quartiles.

    >>> X = np.r_[np.arange(99.0), 1e12][:, None]
    >>> robust = scaling_of(X, None, "robust")
    >>> robust.centre, robust.scale
    (array([49.5]), array([37.06505546]))
    """
    if weight is not None and not np.all(weight):
        X, weight = X[weight > 0], weight[weight > 0]
    d = X.shape[1]
    centre, scale, bend = np.zeros(d), np.ones(d), np.zeros(d)
    tiny = float(np.finfo(X.dtype if X.dtype.kind == "f" else np.float64).tiny)
    few, functions = [], {}
    for j in range(d if len(X) else 0):
        column = Distribution.of(X[:, j], weight)
        if column.has_few_values:
            few.append(j)
            continue
        centre[j], spread = column.centre_and_spread()
        if spread == 0.0:  # a constant column with rounding errors
            continue
        scale[j], bend[j] = max(spread, tiny), BEND
        if kind == "quantile":
            functions[j] = column.scaled(Scaling(centre[[j]], scale[[j]], bend=bend[[j]])).knots()
    if few:
        parts = even_parts(len(X), -(-len(X) // 4096))
        standard = learn_standard(
            Moments.of(X[part][:, few], None if weight is None else weight[part]) for part in parts
        )
        centre[few], scale[few] = standard.centre, standard.scale
    knots = _joined(functions, d) if functions else None
    return Scaling(centre, scale, bend=bend if bend.any() else None, knots=knots)


def _joined(functions: dict[int, tuple[Array, Array]], d: int) -> Knots:
    """The functions of some of d columns, given as positions and values of their knots."""
    lengths = [len(functions[j][0]) if j in functions else 0 for j in range(d)]
    positions, values = zip(*functions.values(), strict=True)
    return Knots(np.concatenate(positions), np.concatenate(values), np.cumsum([0, *lengths]))


@dataclass(frozen=True)
class Distribution:
    """The different values of a column, sorted [k], and the weight of each [k]."""

    values: Array
    weight: Array

    @classmethod
    def of(cls, x: AnyArray, weight: Array | None) -> Distribution:
        """That of a column x [t] with positive weights [t]."""
        x = x.astype(np.float64)
        if weight is None:
            values, counts = np.unique(x, return_counts=True)
            return cls(values, counts.astype(np.float64))
        values, inverse = np.unique(x, return_inverse=True)
        return cls(values, _total_weights(inverse, weight))

    @property
    def has_few_values(self) -> bool:
        """Whether there are few different values, none of which is far away from all others."""
        values = self.values
        if not 1 < len(values) <= FEW_VALUES:
            return len(values) == 1
        halves = values / 2.0  # the range itself may be infinite
        return bool(halves[-1] - halves[0] <= SIMILAR * np.diff(halves).min())

    def quantiles(self, shares: Array) -> Array:
        """Values [q] below which the given shares [q] of the weight lie; between two values, their mean.

        >>> Distribution(np.arange(4.0), np.ones(4)).quantiles(np.array([0.25, 0.3, 0.5]))
        array([0.5, 1. , 1.5])
        """
        up_to = np.cumsum(self.weight) / self.weight.sum()
        last = len(up_to) - 1
        low, high = (
            np.minimum(np.searchsorted(up_to, shares + error), last) for error in (-ROUNDING, ROUNDING)
        )
        return np.asarray(0.5 * self.values[low] + 0.5 * self.values[high])

    def centre_and_spread(self) -> tuple[float, float]:
        """The median, and the interquartile range in units of that of a standard normal distribution.

        If most of the weight is at the median, half of the other values are at most two units away.
        """
        first, median, third = self.quantiles(np.array([0.25, 0.5, 0.75]))
        spread = third / IQR_OF_NORMAL - first / IQR_OF_NORMAL
        other = np.abs(self.values / 2.0 - median / 2.0) > ROUNDING / 2.0 * np.abs(median)
        if not other.any():
            return float(median), 0.0
        if self.weight[~other].sum() > MOSTLY * self.weight.sum() or spread <= ROUNDING * abs(median):
            distances = np.abs(self.values[other] / FARTHEST - median / FARTHEST)
            order = np.argsort(distances, kind="stable")
            others = Distribution(distances[order], self.weight[other][order])
            spread = max(spread, float(others.quantiles(np.array([0.5]))[0]))
        return float(median), float(spread)

    def scaled(self, scaling: Scaling) -> Distribution:
        """The same column after a scaling of one column; values that have become equal are joined."""
        values = scaling.apply(self.values[:, None], np.dtype(np.float64))[:, 0]
        first = np.diff(values, prepend=-np.inf) > 0
        return Distribution(values[first], _total_weights(np.cumsum(first) - 1, self.weight))

    def knots(self) -> tuple[Array, Array]:
        """Positions and values [k] of the knots of a function from values to normal quantiles.

        The rank of a value is the share of the weight below it and half of that at it. If there are many
        values, most knots are even in rank, and the rest are even among the different values, so that a
        column that is mostly one value has knots among the others. The outermost values are not knots
        then. One more knot at each end continues the line through the outer tenth of the knots.
        """
        ranks = (np.cumsum(self.weight) - 0.5 * self.weight) / self.weight.sum()
        k = len(ranks)
        chosen = np.arange(k)
        if k > sum(KNOTS):
            by_rank, by_value = ((np.arange(number) + 0.5) / number for number in KNOTS)
            at_ranks = np.minimum(np.searchsorted(ranks, by_rank), k - 1)
            chosen = np.union1d(at_ranks, (by_value * k).astype(int))
        scores = ndtri(LEAST_RANK + (1.0 - 2.0 * LEAST_RANK) * ranks[chosen])
        rises = np.diff(scores, prepend=-np.inf) > 0  # weights may be negligible
        positions, scores = self.values[chosen][rises], scores[rises]
        if len(positions) == 1:
            return np.r_[positions, positions + 1.0], np.r_[scores, scores + 1.0]
        before, after = (_continued(positions[::s], scores[::s]) for s in (-1, 1))
        return np.r_[before[0], positions, after[0]], np.r_[before[1], scores, after[1]]


def _total_weights(group: IntArray, weight: Array) -> Array:
    """Total weight of each group, given the groups [t] and weights [t] of some values."""
    return np.bincount(group, weight).astype(np.float64, copy=False)


_SHORTEST = 1e-6
"""Least length of the line that continues a tail, so that rounding errors do not make it steep."""


def _continued(positions: Array, values: Array) -> tuple[float, float]:
    """One more point on the line through the last point and the one a tenth of the points before it."""
    i = -1 - max(1, len(positions) // 10)
    run, rise = positions[-1] - positions[i], values[-1] - values[i]
    return positions[-1] + np.sign(run) * max(abs(run), _SHORTEST), values[-1] + rise
