"""Optimisers: Adam, ADADELTA and the paper's sign-based rates.

An optimiser is a pure function from its state and a gradient to a step uphill and a new state.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from cavity.typing import Array

OptimizerState: TypeAlias = Any
"""A frozen dataclass of numbers and arrays; only the optimiser that made it reads its fields."""


@runtime_checkable
class Optimizer(Protocol):
    """Turns gradients into steps uphill. States are values: a step returns a new one."""

    def initial(self, n_parameters: int) -> OptimizerState:
        """The state before the first step."""
        ...

    def step(
        self, state: OptimizerState, gradient: Array, rate: float = 1.0
    ) -> tuple[Array, OptimizerState]:
        """The step to add to the parameters, and the next state.

        `rate` scales this step: schedules lower it towards the end of a budget.
        """
        ...

    def shrunk(self, state: OptimizerState) -> OptimizerState:
        """The state with its step sizes halved, after a step that failed."""
        ...


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

    def __post_init__(self) -> None:
        rate = np.asarray(self.learning_rate)
        if rate.dtype.kind not in "iuf" or not (rate > 0).all():
            raise ValueError(
                f"learning_rate={self.learning_rate!r} is not possible; it must be a positive number"
            )

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
