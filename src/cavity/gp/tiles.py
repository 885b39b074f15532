"""Records that a pass and an engine exchange: rows of a tile, their sites, and the sums of a pass."""

from __future__ import annotations

from dataclasses import dataclass
from operator import iadd, imul
from typing import NamedTuple

import numpy as np

from cavity.gp.kernels.base import Tape
from cavity.gp.posterior import NaturalParameters
from cavity.gp.prior import Prior, RowPrior
from cavity.typing import Array, Dtype, IntArray


class KernelRows(NamedTuple):
    """What the prior says of rows, and the tapes of the gradient by the kernel."""

    A: Array
    """[t, m] whitened kernel rows."""
    residual: Array
    """[t] variances that the inducing points leave."""
    cross_tape: Tape
    diagonal_tape: Tape


@dataclass
class KernelRowCache:
    """Kernel rows that a pass leaves for the next one over the same rows, if that has the same prior."""

    prior: Prior | RowPrior | None = None
    kernel_rows: KernelRows | None = None


class Rows(NamedTuple):
    """Rows of one tile, ready for the pass."""

    X: Array
    """[t, d], standardised, C-contiguous, in the tile's precision."""
    labels: IntArray
    """[t]: class codes."""
    weight: Array | None
    """[t]: a weight w counts the row w times; None counts every row once."""
    importance_weight: Array | None = None
    """[t]: how many rows each stands for in the sums, if others like it were left out. Unlike a weight,
    it does not change the row's cavity, for which one site is divided out of q."""
    offset: Array | None = None
    """[C, t]: o, known parts of the latent values f = o + g. Sites and q are those of g. None is 0."""
    cache: KernelRowCache | None = None
    """Where a pass leaves its kernel rows, if the same rows are passed over again; else None."""

    @property
    def weights(self) -> Array:
        """The weights [t], ones if there are none."""
        return np.ones(len(self.labels)) if self.weight is None else self.weight


class Sites(NamedTuple):
    """Gaussian factors exp(μ̃ f − ½ ν̃ f²) with f = υᵀf̄, one for each row and latent function."""

    precision: Array
    """ν̃ [C, n] ≥ 0."""
    shift: Array
    """μ̃ [C, n]."""
    directions: Array | None = None
    """υ [n, m] as it was when the factor was refined; the paper's scheme stores it. None means that
    every factor acts along the current υ = K⁻¹k."""

    @classmethod
    def zeros(cls, n_latents: int, n_rows: int, dtype: type = np.float64, m: int = 0) -> Sites:
        """Flat sites; with m > 0, they have directions."""
        directions = np.zeros((n_rows, m), np.float32) if m else None
        return cls(
            np.zeros((n_latents, n_rows), dtype), np.zeros((n_latents, n_rows), dtype), directions
        )

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
        """Shapes of the precisions, and of the directions if there are any."""
        return self.precision.shape, None if self.directions is None else self.directions.shape

    def astype(self, dtype: Dtype) -> Sites:
        """The sites in another precision; directions stay as they are."""
        return Sites(self.precision.astype(dtype), self.shift.astype(dtype), self.directions)

    def take(self, index: slice | IntArray) -> Sites:
        """The sites of some rows."""
        directions = None if self.directions is None else self.directions[index]
        return Sites(self.precision[:, index], self.shift[:, index], directions)

    def put(self, index: slice | IntArray, sites: Sites) -> None:
        """Replace the sites of some rows."""
        self.precision[:, index] = sites.precision
        self.shift[:, index] = sites.shift
        if self.directions is not None and sites.directions is not None:
            self.directions[index] = sites.directions


class RefinedRows(NamedTuple):
    """New sites and scores that a pass computes for rows."""

    sites: Sites | None
    """The refined sites; None if the rows keep their old ones."""
    log_predictive: Array
    """[t]: log probability of each label with its row left out."""

    def no_wider_than(self, dtype: Dtype) -> RefinedRows:
        """These sites and scores in `dtype`, if that takes less memory."""
        if self.log_predictive.dtype.itemsize <= np.dtype(dtype).itemsize:
            return self
        sites = None if self.sites is None else self.sites.astype(dtype)
        return RefinedRows(sites, self.log_predictive.astype(dtype))


@dataclass
class Sums:
    """Additive results of a pass; the sum over tiles is the sum field by field.

    All are in float64, except the whitened gradient, which is only used in the precision of the tiles.
    """

    n_rows: float
    """Number of rows, regardless of their weights."""
    n_visited: float
    """Number of rows that were visited: some may stand for others that were left out."""
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
    whitened_gradient: Array | None = None
    """[m, m]: the rows' part of −Lᵀ(∂/∂K_mm)L, before symmetrisation; see `cavity.inference.sweep`."""
    mean_gradient: Array | None = None
    """Σ w α A [C, m]: the rows' part of the gradient by the means of q. With the summed sites it gives
    the whitened gradient, if the rows have not formed that."""
    theta: Array | None = None
    """[p]: the rows' part of the gradient through K_mn and k(x, x)."""
    Z: Array | None = None
    """[m, d]: the same, for the inducing points."""

    replaced_precision: Array | None = None
    """Σ w ν̃ AAᵀ [C, m, m] of the stored factors that the refined ones replace (paper's scheme)."""
    replaced_shift: Array | None = None
    """Σ w μ̃ A [C, m] of the same."""

    @property
    def naturals(self) -> NaturalParameters:
        """The summed sites."""
        return NaturalParameters(self.precision, self.shift)

    @property
    def checksum(self) -> float:
        """A number that is not finite if an entry of the summed sites is not.

        A non-finite entry of a sum of squares also shows in its diagonal.
        """
        return float(np.trace(self.precision, axis1=1, axis2=2).sum() + self.shift.sum())

    def __iadd__(self, other: Sums) -> Sums:
        others = vars(other)
        for name, value in vars(self).items():
            if value is not None:
                setattr(self, name, iadd(value, others[name]))  # arrays in place
        return self

    def __imul__(self, factor: float) -> Sums:
        """Multiply all sums, so that the rows of a minibatch represent `factor` times as many."""
        for name, value in vars(self).items():
            if value is not None:
                setattr(self, name, imul(value, factor))
        return self
