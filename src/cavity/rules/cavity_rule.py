"""What every rule here does first: take the row's own site out of q."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

from cavity.rules.cavity_moments import Cavity, leave_out
from cavity.rules.protocol import RowTerms
from cavity.typing import Array, IntArray


class LatentMarginals(NamedTuple):
    """What q and the prior say of t rows."""

    mean: Array
    """e [C, t], of Aᵀu under q."""
    variance: Array
    """v [C, t], of Aᵀu under q."""
    residual: Array
    """s [t]: variance of f given u."""


class CavityRule(ABC):
    """The `Rule` of those that start from the cavity; a subclass says what follows from it."""

    site_gamma: ClassVar[float | None] = None

    def __call__(
        self,
        labels: IntArray,
        mean: Array,
        variance: Array,
        residual: Array,
        precision: Array,
        shift: Array,
        max_leverage: float,
    ) -> RowTerms:
        """Terms of t rows; see `Rule`."""
        cavity = leave_out(mean, variance, precision, shift, max_leverage)
        return self.terms(labels, LatentMarginals(mean, variance, residual), cavity)

    @abstractmethod
    def terms(self, labels: IntArray, at: LatentMarginals, cavity: Cavity) -> RowTerms:
        """Terms of t rows from labels [t], marginals under q, and the cavities."""
