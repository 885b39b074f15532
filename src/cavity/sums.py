"""What one pass over some rows adds up to."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from cavity.posterior import Naturals
from cavity.typing import Array


@dataclass
class Sums:
    """Additive results of a pass; the sum over tiles is the sum field by field, in float64."""

    n_rows: float
    """Number of the rows, whatever they weigh."""
    n_visited: float
    """Number of those that were looked at: some may have stood for others."""
    weight: float
    """Total weight of the rows (their number, if unweighted)."""
    precision: Array
    """Σ w ν̃ AAᵀ [C, m, m] of the refined, damped sites."""
    shift: Array
    """Σ w μ̃ A [C, m] of the same."""
    objective: float
    """Σ w log Z̃ (EP) or Σ w E[log p] (VI) at the q that the pass was given."""
    log_predictive: float
    """Σ w log p(y | the other rows)."""
    site_change: float
    """Σ w of squared changes of the sites, on the scale of the marginals."""
    bracket: Array | None = None
    """[m, m]: the rows' part of the gradient through K_mm, before symmetrisation."""
    theta: Array | None = None
    """[p]: the rows' part of the gradient through K_mn and k(x, x)."""
    Z: Array | None = None
    """[m, d]: the same, for the inducing points."""

    replaced_precision: Array | None = None
    """Σ w ν̃ AAᵀ [C, m, m] of the stored factors that the refined ones replace (paper's scheme)."""
    replaced_shift: Array | None = None
    """Σ w μ̃ A [C, m] of the same."""

    @property
    def naturals(self) -> Naturals:
        """The summed sites."""
        return Naturals(self.precision, self.shift)

    def __iadd__(self, other: Sums) -> Sums:
        for field in fields(self):
            mine, theirs = getattr(self, field.name), getattr(other, field.name)
            if mine is not None:
                setattr(self, field.name, mine + theirs if np.isscalar(mine) else _add(mine, theirs))
        return self

    def scaled(self, factor: float) -> Sums:
        """Sums as if every row stood for `factor` rows (a minibatch standing for all rows)."""
        values: dict[str, Any] = {
            field.name: None if (value := getattr(self, field.name)) is None else factor * value
            for field in fields(self)
        }
        return Sums(**values)


def _add(mine: Array, theirs: Array) -> Array:
    mine += theirs
    return mine
