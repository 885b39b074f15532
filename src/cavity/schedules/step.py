"""One step of training: a pass at the current q, then q and parameters move together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cavity.engines.local import LocalEngine
from cavity.errors import NumericalError
from cavity.optimizers import Optimizer
from cavity.posterior import Naturals, Posterior
from cavity.problem import Problem
from cavity.schedules.evaluation import all_finite, gradient, objective
from cavity.schedules.progress import StepInfo
from cavity.sources.protocol import Block
from cavity.sums import Sums
from cavity.sweep import SweepOptions
from cavity.typing import Array

_MAX_RETRIES = 12


@dataclass(frozen=True)
class TrainingState:
    """Everything a training run carries from step to step, besides the sites."""

    x: Array
    """Kernel theta and inducing points, see `ParameterSpace`."""
    naturals: Naturals
    optimizer_state: Any
    damping: float
    previous_x: Array
    """Where x was before the last step: what a failed step falls back to."""


@dataclass(frozen=True)
class Trained:
    """Where a training run ended."""

    state: TrainingState
    converged: bool
    interrupted: bool


@dataclass(frozen=True)
class Trainer:
    """What stays the same from step to step."""

    problem: Problem
    optimizer: Optimizer
    options: SweepOptions
    population: float | None = None
    """Weight of the rows that a minibatch stands for; None: of all rows of the source."""

    @property
    def engine(self) -> LocalEngine:
        """Where the passes run."""
        return self.problem.engine

    def start(self, naturals: Naturals | None = None) -> TrainingState:
        """Parameters at their start, q at the prior or at given naturals."""
        space = self.problem.space
        x = space.start
        return TrainingState(
            x=x,
            naturals=naturals or Naturals.zeros(self.engine.rule.n_latents, len(space.Z)),
            optimizer_state=self.optimizer.initial(len(x)),
            damping=self.options.damping,
            previous_x=x,
        )

    def step(
        self,
        state: TrainingState,
        batch: Block | None = None,
        *,
        gain: float = 1.0,
        rate: float = 1.0,
    ) -> tuple[TrainingState, StepInfo]:
        """One pass over the batch (None: all rows), then one step for q and one for the parameters.

        A pass that fails numerically is repeated half-way back to the last good parameters, with the
        optimiser's steps and the damping halved.
        """
        for _ in range(_MAX_RETRIES):
            try:
                return self._attempt(state, batch, gain, rate)
            except (np.linalg.LinAlgError, NumericalError, FloatingPointError):
                state = replace(
                    state,
                    x=0.5 * (state.x + state.previous_x),
                    optimizer_state=self.optimizer.shrunk(state.optimizer_state),
                    damping=0.5 * state.damping,
                )
        raise NumericalError(
            f"training failed {_MAX_RETRIES} times in a row in spite of smaller steps; try tighter "
            "kernel bounds, fewer inducing points, a smaller learning_rate or standardize=True"
        )

    def _attempt(
        self, state: TrainingState, batch: Block | None, gain: float, rate: float
    ) -> tuple[TrainingState, StepInfo]:
        prior = self.problem.prior(state.x)
        posterior = Posterior.from_naturals(state.naturals)
        options = replace(self.options, damping=state.damping)
        with np.errstate(all="ignore"):  # non-finite values are caught below
            sums = self._all_rows(self.engine.sweep(prior, posterior, options, batch))
            value = objective(sums, posterior, self.engine.rule)
            grad = gradient(sums, prior, posterior)
        if not (all_finite(value, grad) and np.isfinite(sums.precision).all()):
            raise FloatingPointError("non-finite objective or gradient")
        space, hyperprior = self.problem.space, self.problem.hyperprior
        slope = space.pack_gradient(grad) + hyperprior.gradient(state.x)
        move, optimizer_state = self.optimizer.step(state.optimizer_state, slope, rate)
        self.engine.commit()
        info = StepInfo(
            objective=value + hyperprior.log_density(state.x),
            mean_log_predictive=sums.log_predictive / sums.weight,
            gradient_norm=float(np.linalg.norm(slope)),
            site_change=float(np.sqrt(sums.site_change / sums.weight)),
        )
        moved = TrainingState(
            x=space.project(state.x + move),
            naturals=state.naturals.mixed_with(sums.naturals, gain),
            optimizer_state=optimizer_state,
            damping=state.damping,
            previous_x=state.x,
        )
        return moved, info

    def _all_rows(self, sums: Sums) -> Sums:
        """Sums of a minibatch as an estimate of the sums of all rows."""
        total = self.engine.total_weight if self.population is None else self.population
        return sums if sums.weight == total else sums.scaled(total / sums.weight)
