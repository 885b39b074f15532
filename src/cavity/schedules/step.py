"""One step of training: a pass at the current q, then q and parameters move together."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cavity.engines.protocol import Engine
from cavity.errors import NumericalError
from cavity.linalg import WORTH_A_THREAD
from cavity.optimizers import Optimizer
from cavity.posterior import Posterior
from cavity.prior import Prior
from cavity.problem import Problem
from cavity.schedules.evaluation import Evaluation, objective
from cavity.schedules.posterior_update import NaturalUpdate, PosteriorUpdate
from cavity.schedules.progress import StepInfo
from cavity.sources.protocol import Block
from cavity.sums import Sums
from cavity.sweep import SweepOptions
from cavity.typing import FLOAT64, Array, Dtype

_MAX_RETRIES = 12


@dataclass(frozen=True)
class TrainingState:
    """Everything a training run carries from step to step, besides the sites."""

    x: Array
    """Kernel theta and inducing points, see `ParameterSpace`."""
    q: Any
    """The posterior, in the form of the trainer's `PosteriorUpdate`."""
    optimizer_state: Any
    damping: float
    previous: tuple[Array, Any]
    """x and q before the last step: what a failed step falls back to."""


@dataclass(frozen=True)
class Trained:
    """Where a training run ended."""

    state: TrainingState
    n_steps: int
    converged: bool
    interrupted: bool
    seconds_per_epoch: float | None = None
    """What a look at every row takes, if a step has been timed."""


@dataclass(frozen=True)
class Trainer:
    """What stays the same from step to step."""

    problem: Problem
    optimizer: Optimizer
    options: SweepOptions
    update: PosteriorUpdate = field(default_factory=NaturalUpdate)
    rebuild: bool = False
    """Whether q is rebuilt from the rows' sites under today's kernel before each pass (batch only).

    Then the objective is exact and so is every row's share in q; otherwise q keeps its whitened
    coordinates while kernel and inducing points move, which costs nothing and a lag of one step.
    """
    population: float | None = None
    """Weight of the rows that a minibatch stands for; None: of all rows of the source."""

    @property
    def engine(self) -> Engine:
        """Where the passes run."""
        return self.problem.engine

    def start(self) -> TrainingState:
        """Parameters and q where the problem starts."""
        x = self.problem.space.start
        q = self.update.start(self.problem.posterior, self.problem.prior(x))
        n_moved = len(x) + (q.size if isinstance(q, np.ndarray) else 0)
        return TrainingState(
            x=x,
            q=q,
            optimizer_state=self.optimizer.initial(n_moved),
            damping=self.options.damping,
            previous=(x, q),
        )

    def step(
        self,
        state: TrainingState,
        batch: Block | None = None,
        *,
        gain: float = 1.0,
        rate: float = 1.0,
    ) -> tuple[TrainingState, StepInfo | None]:
        """One pass over the batch (None: all rows), then one step for q and one for the parameters.

        A batch without any weight moves nothing and has no info. A pass that fails numerically is
        repeated half-way back to the last good parameters, with the optimiser's steps and the damping
        halved; the damping comes back with the steps that succeed.
        """
        for _ in range(_MAX_RETRIES):
            try:
                evaluation = self.evaluate(state.x, state.q, state.damping, batch)
            except (np.linalg.LinAlgError, NumericalError):
                last_x, last_q = state.previous
                state = replace(
                    state,
                    x=0.5 * (state.x + last_x),
                    q=self.update.retreated(state.q, last_q),
                    optimizer_state=self.optimizer.shrunk(state.optimizer_state),
                    damping=0.5 * state.damping,
                )
            else:
                self.engine.commit()
                if evaluation is None:
                    return state, None
                return self._moved(state, evaluation, gain, rate), evaluation.info
        raise NumericalError(
            f"training failed {_MAX_RETRIES} times in a row in spite of smaller steps; try tighter "
            "kernel bounds, fewer inducing points, a smaller learning_rate or standardize=True"
        )

    def evaluate(
        self, x: Array, q: Any, damping: float, batch: Block | None = None
    ) -> Evaluation | None:
        """Objective and slope at a point, None if the batch has no weight.

        The refined sites wait for the engine's `commit`.
        """
        # Beside all rows float64 costs nothing, and line searches go by the last digits.
        dtype = FLOAT64 if batch is None else self.problem.dtype
        prior, q, posterior = self._prior_and_posterior(x, q, dtype)
        options = self.update.options(self.options, damping)
        with np.errstate(all="ignore"):  # non-finite values are caught below
            sums = self.engine.sweep(prior, posterior, options, batch)
            if sums.weight == 0.0:
                return None
            share = self._share(sums, batch)
            if share != 1.0:
                sums *= 1.0 / share
            value = objective(sums, posterior, self.engine.rule)
            by_parameters, by_q = self.update.gradients(q, sums, prior, posterior)
            space, hyperprior = self.problem.space, self.problem.hyperprior
            slope = space.pack_gradient(by_parameters) + hyperprior.gradient(x)
            square = float(slope @ slope)
            # Of a sum of squares the diagonal shows whatever is not finite, and so does a total.
            diagonals = np.trace(sums.precision, axis1=1, axis2=2)
            total = value + square + by_q.sum() + diagonals.sum() + sums.shift.sum()
        if not math.isfinite(total):
            raise NumericalError("the objective or its gradient is not finite")
        info = StepInfo(
            objective=value + hyperprior.log_density(x),
            mean_log_predictive=sums.log_predictive / sums.weight,
            gradient_norm=math.sqrt(square),
            site_change=math.sqrt(sums.site_change / sums.weight),
            visited=sums.n_visited / sums.n_rows,
        )
        return Evaluation(sums, share, prior, np.concatenate([slope, by_q]), info)

    def _prior_and_posterior(self, x: Array, q: Any, dtype: Dtype) -> tuple[Prior, Any, Posterior]:
        """Of q at x, with q itself; its covariance in `dtype`."""
        if self.update.is_whitened and not self.rebuild and len(self.problem.space.Z) >= WORTH_A_THREAD:
            # The posteriors of many classes go over the threads one by one: theirs is this call.
            posterior, prior = self.engine.overlap(
                lambda: self.update.moments(q, dtype), lambda: self.problem.prior(x)
            )
            return prior, q, posterior
        prior = self.problem.prior(x)
        if self.rebuild:
            q = self.engine.summed_sites(prior)
        return prior, q, self.update.moments(q, dtype, prior)

    def _moved(
        self, state: TrainingState, evaluation: Evaluation, gain: float, rate: float
    ) -> TrainingState:
        move, optimizer_state = self.optimizer.step(state.optimizer_state, evaluation.slope, rate)
        split = len(state.x)
        return TrainingState(
            x=self.problem.space.project(state.x + move[:split]),
            q=self.update.moved(state.q, evaluation, gain, move[split:]),
            optimizer_state=optimizer_state,
            # Damped for good, a q of minibatches would be made of halves of sites.
            damping=min(self.options.damping, 2.0 * state.damping),
            previous=(state.x, state.q),
        )

    def _share(self, sums: Sums, batch: Block | None) -> float:
        """What the rows of a pass are of those that they stand for.

        A minibatch is drawn from rows, whatever they weigh: only with its share of the rows is its
        scaled sum that of all rows on average.
        """
        if self.population is not None:
            return sums.weight / self.population
        if batch is None:
            return 1.0
        return sums.n_rows / self.engine.n_rows
