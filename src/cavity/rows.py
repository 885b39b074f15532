"""The rows of one tile, and the sites that belong to them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.typing import Array, Dtype, IntArray


def countable(weight: Array) -> NDArray[np.bool_]:
    """Which weights [n] can be a number of copies of a row: those that are finite and not negative.

    >>> countable(np.array([2.0, 0.0, 0.5, -1.0, np.nan]))
    array([ True,  True,  True, False, False])
    """
    return np.isfinite(weight) & (weight >= 0.0)


class Rows(NamedTuple):
    """Some rows, ready for the pass."""

    X: Array
    """[t, d], standardised, C-contiguous, in the tile's precision."""
    labels: IntArray
    """[t]: class codes."""
    weight: Array | None
    """[t]: a weight w counts the row w times; None counts every row once."""
    stands_for: Array | None = None
    """[t]: how many rows each stands for in the sums, if others like it were left out. They are no
    copies: what is taken out of q for the row's cavity is its own site alone."""

    @property
    def weights(self) -> Array:
        """The weights [t], ones if there are none."""
        return np.ones(len(self.labels)) if self.weight is None else self.weight


class Sites(NamedTuple):
    """Gaussian factors, one a row and latent function: exp(μ̃ f − ½ ν̃ f²) with f = υᵀf̄."""

    precision: Array
    """ν̃ [C, n] ≥ 0."""
    shift: Array
    """μ̃ [C, n]."""
    directions: Array | None = None
    """υ [n, m] as it was when the factor was refined, for the paper's scheme, which stores it; None
    means that every factor acts along today's υ = K⁻¹k."""

    @classmethod
    def zeros(cls, n_latents: int, n_rows: int, dtype: type = np.float64, m: int = 0) -> Sites:
        """Sites that say nothing yet; with m, they have directions."""
        directions = np.zeros((n_rows, m), np.float32) if m else None
        return cls(
            np.zeros((n_latents, n_rows), dtype), np.zeros((n_latents, n_rows), dtype), directions
        )

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
        """Of the precisions, and of the directions if there are any."""
        return self.precision.shape, None if self.directions is None else self.directions.shape

    def astype(self, dtype: Dtype) -> Sites:
        """The same in another precision; directions stay as they are."""
        return Sites(self.precision.astype(dtype), self.shift.astype(dtype), self.directions)

    def take(self, index: slice | IntArray) -> Sites:
        """Those of some rows."""
        directions = None if self.directions is None else self.directions[index]
        return Sites(self.precision[:, index], self.shift[:, index], directions)

    def put(self, index: slice | IntArray, sites: Sites) -> None:
        """Replace those of some rows."""
        self.precision[:, index] = sites.precision
        self.shift[:, index] = sites.shift
        if self.directions is not None and sites.directions is not None:
            self.directions[index] = sites.directions
