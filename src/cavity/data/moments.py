"""Mean, variance and covariance of columns, summed tile by tile, and the scaling that follows from them.

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

from cavity.data.scaling import Scaling
from cavity.typing import Array

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
