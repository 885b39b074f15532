"""ADADELTA (Zeiler, 2012), the paper's choice for minibatches."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cavity.typing import Array


@dataclass(frozen=True)
class AdadeltaState:
    """Running squares of gradients and of steps."""

    gradients: Array
    steps: Array
    scale: float
    """Halved after each failed step."""


@dataclass(frozen=True)
class Adadelta:
    """Steps scaled by the ratio of past steps to past gradients: no learning rate to choose."""

    decay: float = 0.9
    epsilon: float = 1e-5

    def initial(self, n_parameters: int) -> AdadeltaState:
        """The state before the first step."""
        return AdadeltaState(np.zeros(n_parameters), np.zeros(n_parameters), 1.0)

    def step(
        self, state: AdadeltaState, gradient: Array, rate: float = 1.0
    ) -> tuple[Array, AdadeltaState]:
        """One step; `rate` scales what is applied, not what is remembered."""
        gradients = self.decay * state.gradients + (1 - self.decay) * gradient**2
        step = gradient * np.sqrt((state.steps + self.epsilon) / (gradients + self.epsilon))
        steps = self.decay * state.steps + (1 - self.decay) * step**2
        return rate * state.scale * step, AdadeltaState(gradients, steps, state.scale)

    def shrunk(self, state: AdadeltaState) -> AdadeltaState:
        """Half the steps from now on."""
        return replace(state, scale=0.5 * state.scale)
