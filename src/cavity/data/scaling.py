"""How features are scaled before the kernel sees them, and back: column by column, by rising functions.

Every scaling begins with z = (x − centre)/scale. What follows depends on its kind:

* "standard" (mean and standard deviation): nothing.
* "robust" (median and interquartile range): z ↦ asinh(b·z)/b. This is close to z for small z, and grows
  like a logarithm, which never ends, for large z: a row that is far away stays far away.
* "quantile": the same, then a piecewise linear function to the normal quantiles of the column's ranks.
* "whiten": a triangular matrix that decorrelates the columns; see `cavity.data.statistics`.

`cavity.data.statistics` learns scalings from rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
from scipy.linalg import solve_triangular

from cavity.memory import cached_rows
from cavity.typing import Array, Dtype, IntArray

_NEGLIGIBLE = 1e-6
"""Error of a centre that does not matter, in units of the scale."""


@dataclass(frozen=True)
class Knots:
    """Increasing piecewise linear functions, one for each of some columns.

    Before the first knot and after the last one, the first and last lines go on.
    """

    positions: Array
    """[k]: where the knots are, of one column after the other; they increase inside of a column."""
    values: Array
    """[k]: the values of the functions there; they increase inside of a column."""
    starts: IntArray
    """[d + 1]: the knots of column j are starts[j] … starts[j + 1] − 1; with none it stays as it is."""

    def columns(self) -> Iterator[tuple[int, Array, Array]]:
        """Number, positions and values of every column that has knots."""
        for j in np.flatnonzero(np.diff(self.starts)):
            part = slice(self.starts[j], self.starts[j + 1])
            yield int(j), self.positions[part], self.values[part]

    def apply(self, Z: Array) -> None:
        """Replace the columns of Z [t, d] by their functions' values."""
        for j, positions, values in self.columns():
            Z[:, j] = _on_lines(Z[:, j], positions, values)

    def invert(self, Z: Array) -> None:
        """Replace values in the columns of Z [t, d] by the places where the functions have them."""
        for j, positions, values in self.columns():
            Z[:, j] = _on_lines(Z[:, j], values, positions)


def _on_lines(t: Array, positions: Array, values: Array) -> Array:
    """The piecewise linear function through some points, at t [n]; the outer lines go on."""
    result = np.interp(t, positions, values)
    for outside, end, next_to_end in ((t < positions[0], 0, 1), (t > positions[-1], -1, -2)):
        if outside.any():
            slope = (values[end] - values[next_to_end]) / (positions[end] - positions[next_to_end])
            result[outside] = values[end] + slope * (t[outside] - positions[end])
    return result


@dataclass(frozen=True)
class Scaling:
    """Scales features: x ↦ (x − centre)/scale, then bent, interpolated or decorrelated if asked for."""

    centre: Array
    """[d]"""
    scale: Array
    """[d], never zero."""
    whitening_matrix: Array | None = None
    """[d, d], upper triangular: decorrelates the features."""
    bend: Array | None = None
    """[d]: how soon large values are drawn in, b in z ↦ asinh(b·z)/b; 0 leaves a column straight."""
    knots: Knots | None = None
    """Piecewise linear functions, which come after the bend."""

    def __getstate__(self) -> dict[str, object]:
        return {field.name: vars(self)[field.name] for field in fields(self)}  # no caches

    def arrays(self) -> dict[str, Array]:
        """All numbers by name; parts that it does not have are left out."""
        parts: dict[str, Array | IntArray | None] = {
            "centre": self.centre,
            "scale": self.scale,
            "whitening_matrix": self.whitening_matrix,
            "bend": self.bend,
        }
        if self.knots is not None:
            parts["knots.positions"] = self.knots.positions
            parts["knots.values"] = self.knots.values
            parts["knots.starts"] = self.knots.starts
        return {name: np.asarray(part, np.float64) for name, part in parts.items() if part is not None}

    @classmethod
    def identity(cls, n_features: int) -> Scaling:
        """A scaling that leaves the inputs as they are."""
        return cls(np.zeros(n_features), np.ones(n_features))

    def apply(self, X: Array, dtype: Dtype) -> Array:
        """Scaled X [t, d], C-contiguous in the given precision; not to be written to."""
        if self.is_identity:
            return np.ascontiguousarray(X, dtype=dtype)
        out = np.empty(X.shape, dtype=dtype)
        # Subtract in the wider of the two precisions: float64 inputs with a large offset would lose
        # their digits if they were rounded to float32 first. If the centre is large compared with the
        # scale, its own rounding error is subtracted, too.
        wide = np.result_type(X.dtype, dtype)
        ends = np.finfo(wide)
        large = np.maximum(np.abs(self.centre), self.scale) > 0.25 * ends.max
        if wide == np.float32 and (large.any() or (self.scale < ends.tiny).any()):
            wide = np.dtype(np.float64)
        elif large.any():  # a difference from the centre may be out of range, an eighth of it is not
            part = np.where(large, 0.125, 1.0)
            smaller = replace(self, centre=part * self.centre, scale=part * self.scale)
            return smaller.apply(np.asarray(part * X), dtype)
        centre, rate = self.centre.astype(wide), self.rate.astype(wide)
        left_over = (self.centre - centre).astype(wide)
        if not (np.abs(left_over) > _NEGLIGIBLE * self.scale).any():
            left_over = None
        matrix = None if self.whitening_matrix is None else self.whitening_matrix.astype(wide)
        in_place, farthest = wide == dtype and matrix is None, np.sqrt(np.finfo(wide).max)
        for rows in cached_rows(len(X), out.itemsize * X.shape[1]):
            scaled = np.subtract(X[rows], centre, out=out[rows] if in_place else None)
            if left_over is not None:
                scaled -= left_over
            scaled *= rate
            if self.bend is not None:
                self._bend(scaled)
            if self.knots is not None:
                self.knots.apply(scaled)
            if not in_place:
                if matrix is not None:  # in which differences of infinite values would be NaN
                    scaled = np.clip(scaled, -farthest, farthest) @ matrix
                out[rows] = scaled
        return out

    @cached_property
    def rate(self) -> Array:
        """[d]: what the distance from the centre is multiplied by; that of a bent column has b in it."""
        rate = 1.0 / self.scale
        return rate if self.bend is None else rate * np.where(self.bend > 0, self.bend, 1.0)

    @cached_property
    def _bent(self) -> IntArray | slice:
        """The columns that are bent."""
        assert self.bend is not None
        return slice(None) if self.bend.all() else np.flatnonzero(self.bend)

    def _bend(self, scaled: Array) -> None:
        """Bend columns of b·z [t, d] in place."""
        assert self.bend is not None
        bent = scaled[:, self._bent]
        largest = np.finfo(bent.dtype).max  # an input may be so far away that b·z is infinite
        np.arcsinh(np.clip(bent, -largest, largest, out=bent), out=bent)
        bent /= self.bend[self._bent].astype(bent.dtype)
        if not isinstance(self._bent, slice):
            scaled[:, self._bent] = bent

    @cached_property
    def is_identity(self) -> bool:
        """Whether the inputs stay as they are."""
        parts = (self.whitening_matrix, self.bend, self.knots)
        return (
            all(part is None for part in parts)
            and not self.centre.any()
            and bool((self.scale == 1.0).all())
        )

    def invert(self, X: Array) -> Array:
        """Scaled X [t, d] back in the units of the inputs."""
        if self.whitening_matrix is not None:
            X = solve_triangular(self.whitening_matrix, np.asarray(X, dtype=np.float64).T, trans="T").T
        X = np.array(X, dtype=np.float64)
        if self.knots is not None:
            self.knots.invert(X)
        largest = np.finfo(np.float64).max
        with np.errstate(over="ignore"):
            if self.bend is not None:
                b = self.bend[self._bent]
                X[:, self._bent] = np.sinh(b * X[:, self._bent]) / b
            return np.asarray(np.clip(X * self.scale + self.centre, -largest, largest))

    @cached_property
    def unit(self) -> Array:
        """[d]: the length, in the units of the inputs, of one unit of a scaled column, in its middle."""
        if self.knots is None:
            return self.scale
        half = np.full((1, len(self.scale)), 0.5)
        return np.asarray((self.invert(half) - self.invert(-half))[0])
