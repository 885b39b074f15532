"""Centre and scale of each feature, learned in one streaming pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cached_property, reduce
from typing import Any

import numpy as np

from cavity.blocks import cached_rows
from cavity.typing import Array, Dtype


@dataclass(frozen=True)
class Standardizer:
    """x ↦ (x − mean)/scale."""

    mean: Array
    """[d]"""
    scale: Array
    """[d], never zero."""

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # no caches

    @classmethod
    def identity(cls, n_features: int) -> Standardizer:
        """Leaves the inputs as they are."""
        return cls(np.zeros(n_features), np.ones(n_features))

    def apply(self, X: Array, dtype: Dtype) -> Array:
        """Standardised X [t, d], C-contiguous in the given precision; not to be written to."""
        if self.is_identity:
            return np.ascontiguousarray(X, dtype=dtype)
        out = np.empty(X.shape, dtype=dtype)
        # Subtract in the wider of the two precisions: float64 inputs with a large offset would lose
        # their digits if they were rounded to float32 first.
        wide = np.result_type(X.dtype, dtype)
        mean, rate = self.mean.astype(wide), (1.0 / self.scale).astype(wide)
        for rows in cached_rows(len(X), out.itemsize * X.shape[1]):
            if wide == dtype:
                np.subtract(X[rows], mean, out=out[rows])
                out[rows] *= rate
            else:
                out[rows] = (X[rows] - mean) * rate
        return out

    @cached_property
    def is_identity(self) -> bool:
        """Whether the inputs stay as they are."""
        return not self.mean.any() and bool((self.scale == 1.0).all())

    def invert(self, X: Array) -> Array:
        """Standardised X [t, d] back in the units of the inputs."""
        return np.asarray(X * self.scale + self.mean)


@dataclass(frozen=True)
class Moments:
    """Weight, mean and summed squared deviations of some rows, column by column.

    Kept in units of `unit` [d], a power of two that is 1 unless the column is so large or so small
    that its square would leave the range of a float.
    """

    weight: float
    unit: Array
    mean: Array
    squares: Array

    @classmethod
    def of(cls, X: Array, weight: Array | None) -> Moments:
        """Moments of X [t, d] with weights [t]."""
        largest = np.maximum(np.abs(X.max(axis=0).astype(float)), np.abs(X.min(axis=0).astype(float)))
        unit = _unit(largest)
        X = np.asarray(X, dtype=np.float64)
        if (unit != 1.0).any():
            X = X / unit
        w = np.ones(len(X)) if weight is None else np.asarray(weight, dtype=np.float64)
        total = float(w.sum())
        mean = w @ X / max(total, 1e-300)
        deviations = X - mean
        squares = np.einsum("ij,ij->j", deviations, deviations) if weight is None else w @ deviations**2
        return cls(total, unit, mean, squares)

    def merged_with(self, other: Moments) -> Moments:
        """Moments of both sets of rows together (Chan, Golub & LeVeque)."""
        unit = np.maximum(self.unit, other.unit)
        mine, theirs = self.unit / unit, other.unit / unit
        total = max(self.weight + other.weight, 1e-300)
        difference = other.mean * theirs - self.mean * mine
        return Moments(
            self.weight + other.weight,
            unit,
            self.mean * mine + difference * (other.weight / total),
            self.squares * mine**2
            + other.squares * theirs**2
            + difference**2 * (self.weight * other.weight / total),
        )

    def standardizer(self) -> Standardizer:
        """Centre and scale; a column that does not vary keeps the scale 1."""
        deviation = np.sqrt(self.squares / max(self.weight, 1e-300))
        # What rounding alone produces from a constant column is not variation.
        varies = deviation > 1e-12 * np.abs(self.mean)
        return Standardizer(self.mean * self.unit, np.where(varies, deviation * self.unit, 1.0))


def learn_standardizer(tiles: Iterable[Moments]) -> Standardizer:
    """Centre and scale of all rows, from the moments of tiles."""
    return reduce(Moments.merged_with, tiles).standardizer()


def _unit(largest: Array) -> Array:
    _, exponent = np.frexp(largest)
    extreme = (largest > 1e100) | ((largest < 1e-100) & (largest > 0))
    return np.where(extreme, np.ldexp(1.0, np.where(extreme, exponent, 0)), 1.0)
