"""The paper's batch optimiser: gradient ascent with a rate per parameter, adapted by sign."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cavity.typing import Array


@dataclass(frozen=True)
class SignRatesState:
    """Rate and last sign of each parameter."""

    rates: Array
    signs: Array


@dataclass(frozen=True)
class SignRates:
    """x ← x + rate·gradient; a rate grows by 2 % while its gradient keeps its sign, else halves.

    `largest_step` bounds a single step in each coordinate: without it one steep gradient at the start
    throws the kernel out of any sensible range.
    """

    learning_rate: float = 1e-3
    growth: float = 1.02
    shrinkage: float = 0.5
    largest_step: float = 0.5

    def initial(self, n_parameters: int) -> SignRatesState:
        """The state before the first step."""
        return SignRatesState(np.full(n_parameters, self.learning_rate), np.zeros(n_parameters))

    def step(
        self, state: SignRatesState, gradient: Array, rate: float = 1.0
    ) -> tuple[Array, SignRatesState]:
        """One step with the adapted rates."""
        signs = np.sign(gradient)
        agreement = signs * state.signs
        factor = np.where(agreement > 0, self.growth, np.where(agreement < 0, self.shrinkage, 1.0))
        rates = state.rates * factor
        step = np.clip(rates * gradient, -self.largest_step, self.largest_step)
        return rate * step, SignRatesState(rates, signs)

    def shrunk(self, state: SignRatesState) -> SignRatesState:
        """Half of every rate."""
        return replace(state, rates=0.5 * state.rates)
