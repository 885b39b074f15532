"""Adam (Kingma & Ba, 2015)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from cavity.typing import Array


@dataclass(frozen=True)
class AdamState:
    """Running moments of the gradient."""

    count: int
    first: Array
    second: Array
    scale: float
    """Halved after each failed step."""


@dataclass(frozen=True)
class Adam:
    """Steps of about `learning_rate` in every coordinate, whatever the gradient's scale."""

    learning_rate: float | Array = 0.05
    decay_first: float = 0.9
    decay_second: float = 0.999
    epsilon: float = 1e-8

    def initial(self, n_parameters: int) -> AdamState:
        """The state before the first step."""
        return AdamState(0, np.zeros(n_parameters), np.zeros(n_parameters), 1.0)

    def step(self, state: AdamState, gradient: Array, rate: float = 1.0) -> tuple[Array, AdamState]:
        """One bias-corrected step."""
        count = state.count + 1
        # In place where possible: the parameters may include all of q's covariance.
        first = self.decay_first * state.first
        first += (1 - self.decay_first) * gradient
        second = self.decay_second * state.second
        square = np.square(gradient)
        square *= 1 - self.decay_second
        second += square
        # With the corrections for the moments' start at zero taken out of the square root.
        root = math.sqrt(1 - self.decay_second**count)
        spread = np.sqrt(second, out=square)
        spread += root * self.epsilon
        step = (rate * state.scale * root / (1 - self.decay_first**count)) * self.learning_rate * first
        step /= spread
        return step, AdamState(count, first, second, state.scale)

    def shrunk(self, state: AdamState) -> AdamState:
        """Half the steps from now on."""
        return replace(state, scale=0.5 * state.scale)
