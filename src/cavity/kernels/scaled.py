"""A constant times a stationary kernel, at the price of the stationary kernel alone."""

from __future__ import annotations

import numpy as np

from cavity.kernels.constant import BoundConstant
from cavity.kernels.protocol import Array64, Tape
from cavity.kernels.shallow import shallow_copy
from cavity.kernels.stationary import Stationary
from cavity.typing import Array, Dtype


class Scaled:
    """c·k, the common amplitude: c is folded into k's own scale.

    ∂F/∂log c = Σ G∘K comes out of sums that k's pull-back makes anyway, so neither an array of
    constants nor a second product with G is ever formed.
    """

    def __init__(self, constant: BoundConstant, stationary: Stationary, *, constant_first: bool) -> None:
        """Join two kernels bound to the same points; their order is that of theta."""
        self._constant = constant
        self._scaled = stationary.scaled(constant.value)
        self._order = slice(None) if constant_first else slice(None, None, -1)

    def in_precision(self, dtype: Dtype) -> Scaled:
        """The same kernel and points, rounded."""
        other = shallow_copy(self)
        other._scaled = self._scaled.in_precision(dtype)
        return other

    def cross(self, X: Array) -> tuple[Array, Tape]:
        """K: [n, m]."""
        return self._scaled.cross(X)

    def pull_back(self, tape: Tape, G: Array) -> tuple[Array64, Array64]:
        """dtheta: [p], dZ: [m, d]."""
        dlog_c, dtheta, dZ = self._scaled.pull_back_with_total(tape, G)
        return self._join(self._constant.gradient(dlog_c), dtheta), dZ

    def diagonal(self, X: Array) -> tuple[Array, Tape]:
        """k(x, x) = c: [n]."""
        return self._scaled.diagonal(X)

    def pull_back_diagonal(self, tape: Tape, g: Array) -> Array64:
        """dtheta: [p]."""
        dlog_c = self._constant.pull_back_diagonal(tape, g)
        return self._join(dlog_c, self._scaled.pull_back_diagonal(tape, g))

    def _join(self, dlog_c: Array64, dtheta: Array64) -> Array64:
        return np.concatenate([dlog_c, dtheta][self._order])
