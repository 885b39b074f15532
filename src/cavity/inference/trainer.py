"""One step of training: a pass at the current q, then q and the parameters move together.

`Trainer.init` and `Trainer.step` are pure functions of small frozen states, except that the engine keeps
the sites of the rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cavity.data.sampling import EVERY_ROW, RowSampler
from cavity.data.source import Block
from cavity.engines.protocol import Engine
from cavity.errors import NumericalError
from cavity.gp.linalg import WORTH_A_THREAD
from cavity.gp.parameters import Hyperprior, ParameterSpace
from cavity.gp.posterior import Naturals, Posterior
from cavity.gp.prior import Prior
from cavity.gp.tiles import Sums
from cavity.inference.history import StepInfo
from cavity.inference.optimizers import Optimizer
from cavity.inference.rule import Rule
from cavity.inference.sweep import SiteSum, Sweep, SweepOptions
from cavity.inference.updates import Evaluation, NaturalUpdate, PosteriorUpdate, objective
from cavity.typing import FLOAT64, Array, Dtype


@dataclass(frozen=True)
class Problem:
    """What is to be fitted, and where it starts."""

    engine: Engine
    rule: Rule
    space: ParameterSpace
    hyperprior: Hyperprior
    dtype: Dtype
    """Precision of the tiles: that of the data, or float32 for minibatches."""
    posterior: Posterior
    """q to start from: the prior, unless an earlier fit is continued."""
    jitter: float | None = None
    """Relative jitter of K; None is what the precision needs."""

    def prior(self, x: Array, jitter: float | None = None) -> Prior:
        """The prior at a parameter vector."""
        kernel, Z = self.space.unpack(x)
        return Prior(kernel, Z, self.dtype, self.jitter if jitter is None else jitter)

    def for_minibatches(self) -> Problem:
        """The problem in float32: minibatches are noisy beyond its rounding.

        That needs a larger jitter, which belongs to the whitened coordinates of the q that is trained.
        """
        return replace(self, dtype=np.dtype(np.float32))


def make_problem(
    engine: Engine,
    rule: Rule,
    space: ParameterSpace,
    deviation: float | None,
    *,
    centre: Array | None = None,
    posterior: Posterior | None = None,
) -> Problem:
    """A problem whose hyper-prior has the given standard deviation in theta (None: flat).

    The hyper-prior is centred on the start, and q starts at the prior, unless told otherwise.
    """
    start = space.start if centre is None else centre
    spread = np.full(len(start), np.inf)
    if posterior is None:
        posterior = Posterior.from_naturals(Naturals.zeros(rule.n_latents, len(space.Z)))
    if deviation is not None:
        spread[: space.n_theta] = deviation
    dtype = np.dtype(engine.dtype)
    return Problem(engine, rule, space, Hyperprior(start, spread), dtype, posterior)


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
class Batch:
    """The rows of one step, and how far the step goes."""

    rows: Block | None = None
    """None means all rows."""
    gain: float = 1.0
    """Share of q that is replaced by what these rows say."""
    rate: float = 1.0
    """Factor on the optimiser's step."""


ALL_ROWS = Batch()


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
    sampler: RowSampler = EVERY_ROW
    """Which rows of a minibatch take part."""
    population: float | None = None
    """Weight of the rows that a minibatch stands for; None: of all rows of the source."""

    @property
    def engine(self) -> Engine:
        """Where the passes run."""
        return self.problem.engine

    def init(self) -> TrainingState:
        """The state before the first step: parameters and q where the problem starts."""
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
        self, state: TrainingState, batch: Batch = ALL_ROWS
    ) -> tuple[TrainingState, StepInfo | None]:
        """One pass over a batch, then one step for q and one for the parameters.

        A batch without any weight moves nothing and has no info. A pass that fails numerically is
        repeated half-way back to the last good parameters, with the optimiser's steps and the damping
        halved; the damping recovers with the steps that succeed.
        """
        for _ in range(_MAX_RETRIES):
            try:
                evaluation = self.evaluate(state.x, state.q, state.damping, batch.rows)
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
                return self._moved(state, evaluation, batch.gain, batch.rate), evaluation.info
        raise NumericalError(
            f"training failed {_MAX_RETRIES} times in a row in spite of smaller steps; try tighter "
            'kernel bounds, fewer inducing points, optimizer=Adam(0.01) or scaling="standard"'
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
        rule, options = self.problem.rule, self.update.options(self.options, damping)
        with np.errstate(all="ignore"):  # non-finite values are caught below
            sums = self.engine.run(Sweep(prior, posterior, rule, options), batch, self.sampler)
            if sums.weight == 0.0:
                return None
            share = self._share(sums, batch)
            if share != 1.0:
                sums *= 1.0 / share
            value = objective(sums, posterior, rule)
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
            posterior, prior = self.engine.threads.both(
                lambda: self.update.moments(q, dtype), lambda: self.problem.prior(x)
            )
            return prior, q, posterior
        prior = self.problem.prior(x)
        if self.rebuild:
            q = self.engine.run(SiteSum(prior)).naturals
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
