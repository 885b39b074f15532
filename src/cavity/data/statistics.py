"""Statistics of columns, and the scalings that are learned from them.

Standardising and whitening need moments: mean, variance and covariance, summed tile by tile. The robust
and the quantile scaling, which no outlier decides, need medians, interquartile ranges and ranks of a
sample of rows.

Whitening decorrelates the features by a triangular (Cholesky) matrix. Two features can be so correlated
that the label depends on their difference, a direction of little variance that a kernel with one
lengthscale for each feature cannot separate. So column j becomes the residual of its regression on the
columns before it, divided by the residual's standard deviation. With the correlation matrix R = LLᵀ that
is u ↦ u L⁻ᵀ for columns u of unit variance: their covariance becomes L⁻¹RL⁻ᵀ = I.

Among the matrices that do this, the triangular one is unique and depends smoothly on R. Principal
components scaled to equal variance are any rotation of each other, so that rounding errors would choose.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from cavity.data.sampling import row_hash
from cavity.data.scaling import Knots, Scaling
from cavity.data.source import RowSource, even_parts
from cavity.typing import FLOAT64, AnyArray, Array, IntArray

FLAT = 1e-6
"""Smallest share of a column's variance, given the columns before it, that is not rounding error."""


def whitening_matrix(R: Array) -> Array:
    """L⁻ᵀ [d, d], upper triangular, for a correlation matrix R [d, d].

    A column that the columns before it determine becomes its residual, which is zero.

    >>> whitening_matrix(np.array([[1.0, 0.6], [0.6, 1.0]]))
    array([[ 1.  , -0.75],
           [ 0.  ,  1.25]])
    """
    L = np.zeros_like(R)
    for j in range(len(R)):
        column = R[j:, j] - L[j:, :j] @ L[j, :j]
        left = column[0]
        if left > FLAT:
            L[j:, j] = column / np.sqrt(left)
        else:
            L[j, j] = 1.0
    return np.asarray(np.linalg.inv(L).T)


MOSTLY = 0.5
"""A column is mostly one value if a larger share of its weight is at its smallest or largest value."""
FARTHEST = 2.0
"""Largest root mean square distance of the other values from that value, in units of the scale."""


@dataclass(frozen=True)
class Extreme:
    """The smallest value of each column, and the weight of the rows that have it [d]."""

    value: Array
    weight: Array

    @classmethod
    def of(cls, X: Array, weight: Array | None, value: Array, sign: float = 1.0) -> Extreme:
        """The smallest value of sign·X [t, d] with weights [t]; value [d]: the same without the sign."""
        there = value == X
        count = np.count_nonzero(there, axis=0) if weight is None else weight @ there
        return cls(sign * value.astype(np.float64), count.astype(np.float64))

    def merged_with(self, other: Extreme) -> Extreme:
        """The smallest value of both sets of rows together."""
        value = np.minimum(self.value, other.value)
        weight = np.where(self.value == value, self.weight, 0.0)
        return Extreme(value, weight + np.where(other.value == value, other.weight, 0.0))


@dataclass(frozen=True)
class Moments:
    """Weight, mean and summed squared deviations of some rows, column by column.

    They are in units of `unit` [d], a power of two. It is 1 unless the column is so large or so small
    that its square would leave the range of a float.
    """

    weight: float
    unit: Array
    mean: Array
    squares: Array
    smallest: Extreme
    """The smallest values of X, in the units of X."""
    largest: Extreme
    """The smallest values of −X, which are the largest of X with the other sign."""
    products: Array | None = None
    """[d, d]: summed products of the deviations of two columns, if they are asked for."""

    @classmethod
    def of(cls, X: Array, weight: Array | None, *, products: bool = False) -> Moments:
        """Moments of X [t, d] with weights [t]."""
        largest = np.maximum(np.abs(X.max(axis=0).astype(float)), np.abs(X.min(axis=0).astype(float)))
        unit = _unit(largest)
        raw, X = X, np.asarray(X, dtype=np.float64)
        if (unit != 1.0).any():
            with np.errstate(over="ignore"):  # NumPy 1.26 warns of tiny units; no quotient is above 2
                X = X / unit
        w = np.ones(len(X)) if weight is None else np.asarray(weight, dtype=np.float64)
        total = float(w.sum())
        mean = w @ X / max(total, 1e-300)
        deviations = X - mean
        squares = np.einsum("ij,ij->j", deviations, deviations) if weight is None else w @ deviations**2
        extremes = _extremes(raw, weight)
        together = deviations.T @ (w[:, None] * deviations) if products else None
        return cls(total, unit, mean, squares, *extremes, together)

    def merged_with(self, other: Moments) -> Moments:
        """Moments of both sets of rows together (Chan, Golub & LeVeque)."""
        unit = np.maximum(self.unit, other.unit)
        mine, theirs = self.unit / unit, other.unit / unit
        total = max(self.weight + other.weight, 1e-300)
        difference = other.mean * theirs - self.mean * mine
        between = self.weight * other.weight / total
        products = None
        if self.products is not None and other.products is not None:
            products = self.products * np.outer(mine, mine) + other.products * np.outer(theirs, theirs)
            products += between * np.outer(difference, difference)
        return Moments(
            self.weight + other.weight,
            unit,
            self.mean * mine + difference * (other.weight / total),
            self.squares * mine**2 + other.squares * theirs**2 + difference**2 * between,
            self.smallest.merged_with(other.smallest),
            self.largest.merged_with(other.largest),
            products,
        )

    def scaling(self) -> Scaling:
        """Centre and scale, and with products a whitening matrix; a constant column has the scale 1.

        The scale is the standard deviation, but a column that is mostly one value (a rare category, a
        pixel that is lit in a few images, a count that is mostly zero) would have rows far away from all
        others, so there the other values are two units away from that one. A column of zeros and ones
        has the scale ½ then, however rare the ones.
        """
        constant = self.smallest.value == -self.largest.value
        # The mean of equal values is not exact, which matters if they are large compared with 1.
        mean = np.where(constant, self.smallest.value, self.mean * self.unit)
        deviation = np.sqrt(self.squares / max(self.weight, 1e-300))
        # Variation that may be rounding errors is not enlarged.
        varies = ~constant & (deviation > 1e-12 * np.abs(self.mean))
        spread = np.maximum(deviation, self._distance_from_most() / FARTHEST)
        least = np.where(varies, np.finfo(float).tiny, 1.0)
        scale = np.where(constant, 1.0, np.maximum(spread * self.unit, least))
        if self.products is None:
            return Scaling(mean, scale)
        # Whitening expects unit variance; columns that are mostly one value have another scale.
        ratio = np.divide(spread, deviation, out=np.ones_like(spread), where=varies)
        matrix = ratio[:, None] * whitening_matrix(self._correlation(varies)) / ratio
        return Scaling(mean, scale, matrix)

    def _correlation(self, varies: NDArray[np.bool_]) -> Array:
        """Correlations [d, d]; those of columns that do not vary are 0."""
        assert self.products is not None
        deviation = np.sqrt(np.where(varies, self.squares, 1.0))
        R = self.products / deviation / deviation[:, None]
        R[~varies], R[:, ~varies] = 0.0, 0.0
        np.fill_diagonal(R, 1.0)
        return R

    def _distance_from_most(self) -> Array:
        """Root mean square distance of the other values from the one that most rows have, or 0 [d]."""
        at_smallest = self.smallest.weight >= self.largest.weight
        value = np.where(at_smallest, self.smallest.value, -self.largest.value) / self.unit
        there = np.maximum(self.smallest.weight, self.largest.weight)
        squares = self.squares + self.weight * (self.mean - value) ** 2
        others = np.maximum(self.weight - there, 1e-9 * self.weight)
        mostly = there > MOSTLY * self.weight
        return np.where(mostly, np.sqrt(squares / np.maximum(others, 1e-300)), 0.0)


def _extremes(X: Array, weight: Array | None) -> tuple[Extreme, Extreme]:
    if weight is not None and not np.all(weight):
        X, weight = X[weight > 0], weight[weight > 0]
    if len(X) == 0:
        none = Extreme(np.full(X.shape[1], np.inf), np.zeros(X.shape[1]))
        return none, none
    return (
        Extreme.of(X, weight, X.min(axis=0)),
        Extreme.of(X, weight, X.max(axis=0), sign=-1.0),
    )


def learn_standard(tiles: Iterable[Moments]) -> Scaling:
    """Centre and scale of all rows, from the moments of tiles."""
    return reduce(Moments.merged_with, tiles).scaling()


def _unit(largest: Array) -> Array:
    _, exponent = np.frexp(largest)
    extreme = (largest > 1e100) | ((largest < 1e-100) & (largest > 0))
    return np.where(extreme, np.ldexp(1.0, np.where(extreme, exponent - 1, 0)), 1.0)


SAMPLED_KINDS = ("robust", "quantile")
"""The scalings that are learned from a sample."""
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
    knots = _knots_of(functions, d) if functions else None
    return Scaling(centre, scale, bend=bend if bend.any() else None, knots=knots)


def _knots_of(functions: dict[int, tuple[Array, Array]], d: int) -> Knots:
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
        """The distribution of a column x [t] with positive weights [t]."""
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
        with np.errstate(over="ignore"):  # the range of a column may be beyond that of numbers
            spread = min(third / IQR_OF_NORMAL - first / IQR_OF_NORMAL, np.finfo(np.float64).max)
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
        """The distribution of the scaled column; values that differ by rounding are joined."""
        values = scaling.apply(self.values[:, None], FLOAT64)[:, 0]
        first = np.diff(values, prepend=-np.inf) > ROUNDING
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
