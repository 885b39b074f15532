"""One step of training: a pass over a batch of rows, then an update of posterior and parameters.

A `Trainer` does not change; its steps turn one small frozen `TrainingState` into the next. Only the
sites of the rows are kept elsewhere, in the engine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from cavity.data.sampling import EVERY_ROW, RowSampler
from cavity.data.source import Block
from cavity.engines.protocol import Engine
from cavity.errors import NumericalError
from cavity.gp.arrowhead import LocalNaturalParameters
from cavity.gp.calibration import Calibration
from cavity.gp.leaves import Leaves, LocalPrior
from cavity.gp.linalg import WORTH_A_THREAD
from cavity.gp.mean_function import MeanFunction
from cavity.gp.model import Model
from cavity.gp.parameters import Hyperprior, ParameterSpace
from cavity.gp.posterior import NaturalParameters, Posterior
from cavity.gp.prior import Prior
from cavity.gp.tiles import Sums
from cavity.inference.history import StepInfo
from cavity.inference.optimizers import Optimizer, OptimizerState
from cavity.inference.rule import Rule
from cavity.inference.sweep import SiteSum, Sweep, SweepOptions
from cavity.inference.updates import Evaluation, NaturalUpdate, PosteriorForm, PosteriorUpdate, objective
from cavity.typing import FLOAT64, Array, Dtype


@dataclass(frozen=True)
class Problem:
    """What is fitted: rows, rule and parameters, with the start of the fit."""

    engine: Engine
    rule: Rule
    space: ParameterSpace
    hyperprior: Hyperprior
    dtype: Dtype
    """Precision of the passes: that of the data, or float32 for minibatches."""
    posterior: Posterior
    """The q to start from: the prior, unless an earlier fit is continued."""
    jitter: float | None = None
    """Relative jitter of K; None chooses it by the precision."""
    leaves: Leaves | None = None
    """The leaves with their inducing points at the start, if there are local ones. Then the kernel is
    the sum of that of all rows and that of the leaves."""
    leaf_jitter: float | None = None
    """The same as `jitter` for the kernel matrices of the leaves."""

    def prior(self, x: Array) -> Prior:
        """The prior at a parameter vector; the leaves' points are those of the start."""
        kernel, Z = self.space.unpack(x)
        if self.leaves is None:
            return Prior(kernel, Z, self.dtype, self.jitter)
        return LocalPrior(kernel, Z, self.dtype, self.leaves, self.jitter, self.leaf_jitter)

    def at_points_of(self, prior: Prior) -> Problem:
        """The problem with the inducing points of a prior, those of leaves included."""
        leaves = prior.leaves if isinstance(prior, LocalPrior) else None
        return replace(self, space=replace(self.space, Z=prior.Z), leaves=leaves)

    def model(
        self,
        prior: Prior,
        posterior: Posterior,
        calibration: Calibration,
        mean_function: MeanFunction | None = None,
    ) -> Model:
        """The model of a posterior of this problem: all that predictions need.

        mean_function: what the offsets of the rows come from, if not from the user.
        """
        return Model.from_prior(
            prior,
            posterior,
            self.engine.scaling,
            self.rule.likelihood,
            inverse_temperature=calibration.inverse_temperature,
            residual_variance_scale=calibration.residual_variance_scale,
            mean_function=mean_function,
            needs_offset=mean_function is None and self.engine.source.offset is not None,
        )

    def for_minibatches(self) -> Problem:
        """The problem in float32, whose rounding is smaller than the noise of minibatches.

        float32 needs a larger jitter, and the whitened coordinates of q depend on the jitter.
        """
        return replace(self, dtype=np.dtype(np.float32))


def make_problem(
    engine: Engine,
    rule: Rule,
    space: ParameterSpace,
    hyperprior_scale: float | None,
    *,
    centre: Array | None = None,
    posterior: Posterior | None = None,
    leaves: Leaves | None = None,
) -> Problem:
    """A problem with a hyper-prior on the kernel's theta.

    hyperprior_scale: its standard deviation; None means a flat prior. By default it is centred on the
    start of the parameters, and q starts at the prior.
    """
    start = space.start if centre is None else centre
    scale = np.full(len(start), np.inf)
    if posterior is None:
        sites = NaturalParameters.zeros(rule.n_latents, len(space.Z))
        if leaves is not None:
            sites = LocalNaturalParameters.none(rule.n_latents, len(space.Z), leaves.sizes)
        posterior = sites.posterior()
    if hyperprior_scale is not None:
        scale[: space.n_theta] = hyperprior_scale
    dtype = np.dtype(engine.dtype)
    return Problem(engine, rule, space, Hyperprior(start, scale), dtype, posterior, leaves=leaves)


_MAX_RETRIES = 12
"""Number of attempts at one step before training fails."""


@dataclass(frozen=True)
class TrainingState:
    """Everything a training run carries from step to step, besides the sites."""

    x: Array
    """Kernel theta and inducing points, see `ParameterSpace`."""
    q: PosteriorForm
    """The posterior, in the form of the trainer's `PosteriorUpdate`."""
    optimizer_state: OptimizerState
    damping: float
    previous: tuple[Array, PosteriorForm]
    """x and q before the last step, to which a failed step returns."""


@dataclass(frozen=True)
class Batch:
    """The rows of one step, and the length of the step."""

    rows: Block | None = None
    """The rows; None means all."""
    gain: float = 1.0
    """Share of q that the refined sites of these rows replace."""
    rate: float = 1.0
    """Factor on the optimiser's step."""


ALL_ROWS = Batch()


@dataclass(frozen=True)
class EarlierRows:
    """The summed sites of the rows of a stream that are gone, on the values at the inducing points."""

    naturals: NaturalParameters
    """Their summed sites."""
    prior: Prior
    """The prior in whose whitened coordinates these are."""

    def under(self, prior: Prior) -> NaturalParameters:
        """The same factors under another kernel with the same inducing points."""
        return self.naturals.under(self.prior, prior)


@dataclass(frozen=True)
class Trainer:
    """Makes training steps for a problem, by an optimiser and an update of q."""

    problem: Problem
    optimizer: Optimizer
    options: SweepOptions
    update: PosteriorUpdate = field(default_factory=NaturalUpdate)
    rebuild: bool = False
    """Whether q is summed from the sites under the current kernel before each pass.

    Then the objective is exact, and so is the contribution of every row to q. Otherwise q keeps its
    whitened coordinates while kernel and inducing points move, so that it lags by one step.
    """
    sampler: RowSampler = EVERY_ROW
    """Which rows of a minibatch take part."""
    population: float | None = None
    """Weight of the rows that a minibatch represents; None means all rows of the source."""
    earlier: EarlierRows | None = None
    """The rows of a stream that are gone; their factors are a part of a q that is rebuilt."""

    @property
    def engine(self) -> Engine:
        """The engine that runs the passes."""
        return self.problem.engine

    def init(self) -> TrainingState:
        """The state before the first step, with the parameters and the q that the problem starts
        from."""
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
        """Make one pass over a batch, then one step of q and one of the parameters.

        A batch without any weight changes nothing, and its info is None. A pass that fails numerically
        is repeated half-way back to the parameters before the last step, with the optimiser's steps and
        the damping halved. The damping recovers with the steps that succeed.
        """
        cause: ArithmeticError | ValueError | None = None
        for _ in range(_MAX_RETRIES):
            try:
                evaluation = self.evaluate(state.x, state.q, state.damping, batch.rows)
            except (np.linalg.LinAlgError, NumericalError) as error:
                cause = error
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
            f"a training step failed {_MAX_RETRIES} times, each time with a shorter step; try tighter "
            'kernel bounds, fewer inducing points, optimizer=Adam(0.01) or scaling="standard"; the '
            f"cause: {cause}"
        ) from cause

    def evaluate(
        self, x: Array, q: PosteriorForm, damping: float, batch: Block | None = None
    ) -> Evaluation | None:
        """Objective and gradient at a point; None if the batch has no weight.

        The rows keep their refined sites only after the engine's `commit`.
        """
        # On all rows, m×m algebra in float64 takes little time, and line searches need its digits.
        dtype = FLOAT64 if batch is None else self.problem.dtype
        prior, q, posterior = self._prior_and_posterior(x, q, dtype, batch)
        rule, options = self.problem.rule, self.update.options(self.options, damping)
        with np.errstate(all="ignore"):  # non-finite values are caught below
            sums = self.engine.run(Sweep(prior, posterior, rule, options), batch, self.sampler)
            if sums.weight == 0.0:
                return None
            share = self._share(sums, batch)
            if share != 1.0:
                sums *= 1.0 / share
            value = objective(sums, posterior, rule)
            gradients = self.update.gradients(q, sums, prior, posterior)
            space, hyperprior = self.problem.space, self.problem.hyperprior
            slope = space.pack_gradient(gradients.parameters) + hyperprior.gradient(x)
            square = float(slope @ slope)
            # An entry that is not finite shows in the total.
            total = value + square + gradients.q.sum() + sums.checksum
            total += sum(by_points.sum() for by_points in gradients.leaves.values())
        if not math.isfinite(total):
            raise NumericalError("the objective or its gradient is not finite")
        info = StepInfo(
            objective=value + hyperprior.log_density(x),
            mean_log_predictive=sums.log_predictive / sums.weight,
            gradient_norm=math.sqrt(square),
            site_change=math.sqrt(sums.site_change / sums.weight),
            visited=sums.n_visited / sums.n_rows,
        )
        slope = np.concatenate([slope, gradients.q])
        return Evaluation(sums, share, prior, slope, info, gradients.leaves)

    def _prior_and_posterior(
        self, x: Array, q: PosteriorForm, dtype: Dtype, batch: Block | None
    ) -> tuple[Prior, PosteriorForm, Posterior]:
        """Prior at x, q (rebuilt from the sites if wanted) and its moments, the covariance in
        `dtype`."""
        if self.update.is_whitened and not self.rebuild and len(self.problem.space.Z) >= WORTH_A_THREAD:
            # With many classes, `moments` itself spreads the latent functions over the threads.
            posterior, prior = self.engine.threads.both(
                lambda: self.update.moments(q, dtype), lambda: self.problem.prior(x)
            )
            return prior, q, posterior
        prior = self.update.located(self.problem.prior(x), q)
        if self.rebuild:
            q = self.update.with_sites(q, self.rebuilt(prior, batch))
        return prior, q, self.update.moments(q, dtype, prior)

    def rebuilt(self, prior: Prior, batch: Block | None = None) -> NaturalParameters:
        """The sum of the sites of a batch under a prior, and of those of earlier rows."""
        q = self.engine.run(SiteSum(prior), batch).naturals
        return q if self.earlier is None else q + self.earlier.under(prior)

    def _moved(
        self, state: TrainingState, evaluation: Evaluation, gain: float, rate: float
    ) -> TrainingState:
        move, optimizer_state = self.optimizer.step(state.optimizer_state, evaluation.slope, rate)
        split = len(state.x)
        return TrainingState(
            x=self.problem.space.project(state.x + move[:split]),
            q=self.update.moved(state.q, evaluation, gain, move[split:], rate),
            optimizer_state=optimizer_state,
            # Without recovery, minibatches would make a q of sites that are only half refined.
            damping=min(self.options.damping, 2.0 * state.damping),
            previous=(state.x, state.q),
        )

    def _share(self, sums: Sums, batch: Block | None) -> float:
        """Share of the rows of a pass among the rows that they represent.

        Minibatches are drawn by number of rows, not by weight. So their sums must be scaled by their
        share of the rows in order to equal the sums over all rows on average.
        """
        if self.population is not None:
            return sums.weight / self.population
        if batch is None:
            return 1.0
        return sums.n_rows / self.engine.n_rows
