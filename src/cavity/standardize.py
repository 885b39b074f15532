"""Centre and scale of each feature, learned in one streaming pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from cavity.typing import Array, Dtype


@dataclass(frozen=True)
class Standardizer:
    """x ↦ (x − mean)/scale."""

    mean: Array
    """[d]"""
    scale: Array
    """[d], never zero."""

    @classmethod
    def identity(cls, n_features: int) -> Standardizer:
        """Leaves the inputs as they are."""
        return cls(np.zeros(n_features), np.ones(n_features))

    def apply(self, X: Array, dtype: Dtype) -> Array:
        """Standardised X [t, d], a new C-contiguous array in the given precision."""
        # Subtract in the wider of the two precisions: float64 inputs with a large offset would lose
        # their digits if they were rounded to float32 first.
        wide = np.result_type(X.dtype, dtype)
        centred = np.subtract(X, self.mean, dtype=wide, casting="same_kind")
        if wide == dtype:
            centred *= (1.0 / self.scale).astype(dtype)
            return np.ascontiguousarray(centred)
        return np.asarray(centred / self.scale, dtype=dtype)

    def invert(self, X: Array) -> Array:
        """Standardised X [t, d] back in the units of the inputs."""
        return np.asarray(X * self.scale + self.mean)


def learn_standardizer(tiles: Iterable[tuple[Array, Array | None]], n_features: int) -> Standardizer:
    """Mean and standard deviation over tiles (X [t, d], weight [t] or None), by Chan's merging.

    Each column is divided by its largest power of two first, so that neither 1e150 nor 1e-150 over-
    or underflows when squared. A column that does not vary keeps the scale 1.
    """
    total = 0.0
    unit = np.zeros(n_features)
    mean = np.zeros(n_features)
    squares = np.zeros(n_features)
    for X, weight in tiles:
        X = np.asarray(X, dtype=np.float64)
        w = np.ones(len(X)) if weight is None else np.asarray(weight, dtype=np.float64)
        count = float(w.sum())
        if count == 0.0:
            continue
        larger = np.maximum(unit, _power_of_two(np.abs(X).max(axis=0)))
        shrink = np.divide(unit, larger, out=np.ones(n_features), where=larger > 0)
        mean, squares, unit = mean * shrink, squares * shrink**2, larger
        scaled = X / np.where(unit > 0, unit, 1.0)
        tile_mean = w @ scaled / count
        tile_squares = w @ (scaled - tile_mean) ** 2
        difference = tile_mean - mean
        merged = total + count
        mean = mean + difference * (count / merged)
        squares = squares + tile_squares + difference**2 * (total * count / merged)
        total = merged
    deviation = np.sqrt(squares / max(total, 1.0))
    # What rounding alone produces from a constant column is not variation.
    varies = deviation > 1e-12 * np.maximum(np.abs(mean), 1e-300)
    unit = np.where(unit > 0, unit, 1.0)
    return Standardizer(mean * unit, np.where(varies, deviation * unit, 1.0))


def _power_of_two(x: Array) -> Array:
    _, exponent = np.frexp(x)
    return np.where(x > 0, np.ldexp(1.0, exponent - 1), 0.0)
