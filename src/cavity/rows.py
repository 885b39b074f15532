"""The rows of one tile, and the sites that belong to them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cavity.typing import Array, IntArray


class Rows(NamedTuple):
    """Some rows, ready for the pass."""

    X: Array
    """[t, d], standardised, C-contiguous, in the tile's precision."""
    labels: IntArray
    """[t]: class codes."""
    weight: Array | None
    """[t]: a weight w counts the row w times; None counts every row once."""

    @property
    def weights(self) -> Array:
        """The weights [t], ones if there are none."""
        return np.ones(len(self.labels)) if self.weight is None else self.weight


class Sites(NamedTuple):
    """Gaussian factors, one a row and latent function: exp(μ̃ f − ½ ν̃ f²) with f = Aᵀu."""

    precision: Array
    """ν̃ [C, n] ≥ 0."""
    shift: Array
    """μ̃ [C, n]."""

    @classmethod
    def zeros(cls, n_latents: int, n_rows: int, dtype: type = np.float64) -> Sites:
        """Sites that say nothing yet."""
        return cls(np.zeros((n_latents, n_rows), dtype), np.zeros((n_latents, n_rows), dtype))
