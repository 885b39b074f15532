"""Centre, scale and whitening of features, learned in one streaming pass.

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
from dataclasses import dataclass, fields
from functools import cached_property, reduce

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from cavity.memory import cached_rows
from cavity.typing import Array, Dtype

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


_NEGLIGIBLE = 1e-6
"""Error of a mean that does not matter, in units of the scale."""


@dataclass(frozen=True)
class Standardizer:
    """Standardises features: x ↦ (x − mean)/scale, then times `whitening_matrix` if there is one."""

    mean: Array
    """[d]"""
    scale: Array
    """[d], never zero."""
    whitening_matrix: Array | None = None
    """[d, d], upper triangular: decorrelates the features."""

    def __getstate__(self) -> dict[str, object]:
        return {field.name: vars(self)[field.name] for field in fields(self)}  # no caches

    @classmethod
    def identity(cls, n_features: int) -> Standardizer:
        """A standardizer that leaves the inputs as they are."""
        return cls(np.zeros(n_features), np.ones(n_features))

    def apply(self, X: Array, dtype: Dtype) -> Array:
        """Standardised X [t, d], C-contiguous in the given precision; not to be written to."""
        if self.is_identity:
            return np.ascontiguousarray(X, dtype=dtype)
        out = np.empty(X.shape, dtype=dtype)
        # Subtract in the wider of the two precisions: float64 inputs with a large offset would lose
        # their digits if they were rounded to float32 first. If the mean is large compared with the
        # scale, its own rounding error is subtracted, too.
        wide = np.result_type(X.dtype, dtype)
        ends = np.finfo(wide)
        large = np.maximum(np.abs(self.mean), self.scale) > 0.25 * ends.max
        if wide == np.float32 and (large.any() or (self.scale < ends.tiny).any()):
            wide = np.dtype(np.float64)
        elif large.any():  # a difference from the mean may be out of range, but an eighth of it is not
            part = np.where(large, 0.125, 1.0)
            smaller = Standardizer(part * self.mean, part * self.scale, self.whitening_matrix)
            return smaller.apply(part * X, dtype)
        mean, rate = self.mean.astype(wide), (1.0 / self.scale).astype(wide)
        left_over = (self.mean - mean).astype(wide)
        if not (np.abs(left_over) > _NEGLIGIBLE * self.scale).any():
            left_over = None
        matrix = None if self.whitening_matrix is None else self.whitening_matrix.astype(wide)
        farthest = np.sqrt(np.finfo(wide).max)
        for rows in cached_rows(len(X), out.itemsize * X.shape[1]):
            if wide == dtype and matrix is None:
                np.subtract(X[rows], mean, out=out[rows])
                if left_over is not None:
                    out[rows] -= left_over
                out[rows] *= rate
            else:
                scaled = X[rows] - mean
                if left_over is not None:
                    scaled -= left_over
                scaled *= rate
                if matrix is not None:  # in which differences of infinite values would be NaN
                    scaled = np.clip(scaled, -farthest, farthest) @ matrix
                out[rows] = scaled
        return out

    @cached_property
    def is_identity(self) -> bool:
        """Whether the inputs stay as they are."""
        return self.whitening_matrix is None and not self.mean.any() and bool((self.scale == 1.0).all())

    def invert(self, X: Array) -> Array:
        """Standardised X [t, d] back in the units of the inputs."""
        if self.whitening_matrix is not None:
            X = solve_triangular(self.whitening_matrix, np.asarray(X, dtype=np.float64).T, trans="T").T
        most = np.finfo(float).max
        with np.errstate(over="ignore"):
            return np.clip(X * self.scale + self.mean, -most, most)


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

    def standardizer(self) -> Standardizer:
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
            return Standardizer(mean, scale)
        # Whitening expects unit variance; columns that are mostly one value have another scale.
        ratio = np.divide(spread, deviation, out=np.ones_like(spread), where=varies)
        matrix = ratio[:, None] * whitening_matrix(self._correlation(varies)) / ratio
        return Standardizer(mean, scale, matrix)

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


def learn_standardizer(tiles: Iterable[Moments]) -> Standardizer:
    """Centre and scale of all rows, from the moments of tiles."""
    return reduce(Moments.merged_with, tiles).standardizer()


def _unit(largest: Array) -> Array:
    _, exponent = np.frexp(largest)
    extreme = (largest > 1e100) | ((largest < 1e-100) & (largest > 0))
    return np.where(extreme, np.ldexp(1.0, np.where(extreme, exponent - 1, 0)), 1.0)
