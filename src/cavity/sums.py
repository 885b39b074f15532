"""What one pass over some rows adds up to."""

from __future__ import annotations

from dataclasses import dataclass
from operator import iadd, imul

from cavity.posterior import Naturals
from cavity.typing import Array


@dataclass
class Sums:
    """Additive results of a pass; the sum over tiles is the sum field by field.

    In float64, but for the bracket: it is only ever used in the precision of the tiles.
    """

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
    """[m, m]: the rows' part of the gradient through K_mm, before symmetrisation; see `cavity.sweep`."""
    pull: Array | None = None
    """Σ w α A [C, m]: with the summed sites, what makes the bracket where the rows have not."""
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
        for name, value in vars(self).items():
            if value is not None:
                setattr(self, name, iadd(value, getattr(other, name)))  # arrays where they are
        return self

    def __imul__(self, factor: float) -> Sums:
        """As if every row stood for `factor` rows (a minibatch standing for all rows)."""
        for name, value in vars(self).items():
            if value is not None:
                setattr(self, name, imul(value, factor))
        return self
