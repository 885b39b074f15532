"""From an estimator's settings to a fitted q: train, then polish.

Where a fit begins: fresh, where the last fit ended, or where inducing points have grown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from cavity.data.sampling import EVERY_ROW, RowSampler
from cavity.data.scaling import Standardizer
from cavity.data.source import Source
from cavity.engines.threads import Threads
from cavity.estimators.validation import validated_inducing_points
from cavity.gp.parameters import ParameterSpace
from cavity.gp.posterior import Posterior
from cavity.gp.prior import Prior
from cavity.inference.calibration import calibrated
from cavity.inference.checkpoint import Checkpointer
from cavity.inference.converge import (
    POLISHING_TOL,
    FixedPoint,
    converge,
    record_sweep,
    score_fixed_posterior,
)
from cavity.inference.history import Progress
from cavity.inference.inducing_search import STREAM_POINTS, grown_start, halfway_kernel
from cavity.inference.loop import WARM_UP, StochasticSchedule, train_batch
from cavity.inference.optimizers import Optimizer
from cavity.inference.rule import Rule
from cavity.inference.schedule import Budget, Monitor
from cavity.inference.sweep import EXACT_LEVERAGE, LAGGING_LEVERAGE, SweepOptions
from cavity.inference.trainer import Problem, Trained, Trainer, TrainingState, starting_point
from cavity.inference.updates import NaturalUpdate, PosteriorUpdate
from cavity.memory import return_freed_memory
from cavity.typing import Array

_MOST_SWEEPS = 100
_GRACE_SECONDS = 2.0
"""Seconds that an interrupted fit may still take to make its q exact."""
_ROWS_TO_REBUILD = 10_000
"""Rows up to which batch training rebuilds q before each pass: it is cheap, and exact."""


class Outcome(NamedTuple):
    """What a plan made of a problem."""

    point: FixedPoint
    n_iter: int
    converged: bool
    interrupted: bool
    stuck: bool = False
    """Whether it ended on a slope, no way up being found."""


def stopped_before_training(problem: Problem, progress: Progress) -> Outcome:
    """What a problem comes to if the user has stopped it before training: q at its start."""
    deadline = progress.seconds + _GRACE_SECONDS
    point = converge(
        problem.engine,
        problem.prior(problem.space.start),
        problem.rule,
        tol=POLISHING_TOL,
        has_time=lambda taken: progress.seconds + taken <= deadline,
    )
    return Outcome(point, 0, converged=False, interrupted=True)


@dataclass(frozen=True)
class Plan:
    """How to fit: the optimiser (None: parameters stay), the schedule, the polishing."""

    optimizer: Optimizer | None
    options: SweepOptions
    budget: Budget
    max_iter: int
    """Sweeps at most when parameters stay."""
    tol: float
    stochastic: StochasticSchedule | None
    """None trains on all rows at every step."""
    monitor: Monitor
    checkpointer: Checkpointer
    update: PosteriorUpdate = field(default_factory=NaturalUpdate)
    sampler: RowSampler = EVERY_ROW
    """Which rows of a minibatch take part."""
    enough: float = np.inf
    """Steps on all rows after which training is done, whether it stands still or not."""
    calibration_seed: int | None = None
    """Of the rows that decide how bold predictions are; None leaves them as they are."""

    def run(self, problem: Problem, progress: Progress) -> Outcome:
        """Fit a problem."""
        if self.optimizer is None:
            return self._keep_parameters(problem, progress)
        natural = isinstance(self.update, NaturalUpdate)
        rebuild = natural and self.stochastic is None and self._rebuilds(problem)
        leverage = EXACT_LEVERAGE if rebuild else LAGGING_LEVERAGE
        rough = problem if self.stochastic is None else problem.for_minibatches()
        options = replace(self.options, max_leverage=leverage)
        trainer = Trainer(rough, self.optimizer, options, self.update, rebuild, self.sampler)
        state, position = self.checkpointer.resume(trainer, progress, self.monitor)
        context = (trainer, state, progress, self.monitor, self.checkpointer, position)
        if self.stochastic is None:
            warm_up = 0 if problem.pretrained else WARM_UP
            trained = train_batch(*context, budget=self.budget, tol=self.tol, warm_up=warm_up)
        else:
            trained = self.stochastic.run(*context)
        arrived = partial(self._arrived, problem, trainer, trained.state)
        try:
            prior, posterior = arrived()
        except KeyboardInterrupt:  # what has been learned is worth another moment
            trained = replace(trained, interrupted=True)
            prior, posterior = arrived()
        deadline = self.budget.max_seconds
        if trained.interrupted:
            deadline = min(deadline, progress.seconds + _GRACE_SECONDS)
        point = self._polish(problem, prior, posterior, trained, progress, deadline)
        point = self._calibrate(problem, point, progress, deadline)
        interrupted = trained.interrupted or point.interrupted
        if not interrupted:
            self.checkpointer.finish(problem.engine)
        converged = trained.converged or trained.n_steps >= self.enough
        return Outcome(point, trained.n_steps, converged, interrupted)

    def _rebuilds(self, problem: Problem) -> bool:
        return self.options.exact or problem.engine.n_rows <= _ROWS_TO_REBUILD

    def _keep_parameters(self, problem: Problem, progress: Progress) -> Outcome:
        point = converge(
            problem.engine,
            problem.prior(problem.space.start),
            problem.rule,
            options=self.options,
            tol=self.tol,
            max_sweeps=self.max_iter,
            callback=partial(record_sweep, progress),
            has_time=self._time_until(self.budget.max_seconds, progress),
        )
        point = self._calibrate(problem, point, progress, self.budget.max_seconds)
        return Outcome(point, point.n_sweeps, point.converged, point.interrupted)

    def _arrived(
        self, problem: Problem, trainer: Trainer, state: TrainingState
    ) -> tuple[Prior, Posterior]:
        """The prior and q that training has come to, in the precision of what is to follow."""
        if self.stochastic is not None:
            return_freed_memory()  # of shuffled rows: the sweeps to come read in order
            problem = replace(problem, dtype=np.dtype(np.float64))
        # The same jitter gives the same whitened coordinates, in which q was trained.
        prior = problem.prior(state.x, trainer.problem.prior(state.x).jitter)
        return prior, self.update.posterior(state.q, prior)

    def _polish(
        self,
        problem: Problem,
        prior: Prior,
        posterior: Posterior,
        trained: Trained,
        progress: Progress,
        deadline: float,
    ) -> FixedPoint:
        """Exact sweeps at the final parameters, as far as time allows: the true q of all rows."""
        # Without a single step, there are at least the sites of one sweep.
        pace = trained.seconds_per_epoch
        if progress.history and pace is not None and deadline - progress.seconds < pace:
            score = progress.history[-1].leave_one_out
            return FixedPoint(prior, posterior, np.nan, score, 0, np.nan, converged=False)
        if not isinstance(self.update, NaturalUpdate):
            return score_fixed_posterior(
                problem.engine, prior, posterior, problem.rule, lambda: deadline - progress.seconds
            )
        return converge(
            problem.engine,
            prior,
            problem.rule,
            tol=POLISHING_TOL,
            options=replace(self.options, damping=1.0),
            start=posterior.naturals,
            max_sweeps=_MOST_SWEEPS,
            callback=lambda point: progress.swept(point.n_sweeps, point.change),
            has_time=self._time_until(deadline, progress),
        )

    def _time_until(self, deadline: float, progress: Progress) -> Callable[[float], bool]:
        """Whether there is time for a sweep, given the seconds it takes, and for what comes after."""
        # The calibration is worth some sweeps, and one more scores the rows.
        after = 0.0 if self.calibration_seed is None else self.budget.epochs_after + 1.0
        return lambda taken: progress.seconds + (1.0 + after) * taken <= deadline

    def _calibrate(
        self, problem: Problem, point: FixedPoint, progress: Progress, deadline: float
    ) -> FixedPoint:
        """The factor on the means of predictions, if one is wanted."""
        try:
            if self.stochastic is not None:
                return_freed_memory()  # of all rows' refined sites: calibration draws few rows
        except KeyboardInterrupt:
            return point._replace(interrupted=True)
        if self.calibration_seed is None or point.interrupted:
            return point
        seconds = deadline - progress.seconds
        hold_out = self.sampler.hold_out
        return calibrated(problem.engine, point, problem.rule, self.calibration_seed, hold_out, seconds)


class Start(NamedTuple):
    """Parameters to begin with, and what is known of q there."""

    space: ParameterSpace
    centre: Array | None = None
    """Of the hyper-prior; None is the start itself."""
    posterior: Posterior | None = None
    """None is the prior."""
    earlier: Any = None
    """An engine whose rows have sites to go on with."""
    pretrained: bool = False
    """See `Problem.pretrained`."""
    interrupted: bool = False
    """See `Problem.interrupted`."""


def continued_start(estimator: Any, standardizer: Standardizer, rule: Rule) -> Start:
    """Where the estimator's last fit ended; q too, if it had as many latent functions."""
    before, now = estimator.inducing_points_.shape[1], standardizer.mean.shape[0]
    if before != now:
        raise ValueError(
            f"X has {now} features, but with warm_start=True this {type(estimator).__name__} goes on "
            f"from a fit with {before}; pass as many, or set warm_start=False to begin anew"
        )
    Z = standardizer.apply(estimator.inducing_points_, np.dtype(np.float64))
    space = _space(estimator, estimator.kernel_, Z)
    if estimator.model_.rule.n_latents != rule.n_latents:
        return Start(space, _centre(estimator, space))
    earlier = getattr(estimator, "_training", None)
    return Start(space, _centre(estimator, space), estimator.model_.posterior, earlier)


def _centre(estimator: Any, space: ParameterSpace) -> Array:
    """Of the hyper-prior: that of the last fit, as far as it had one for what is learned now.

    The inducing points, which come last, have none.
    """
    centre = space.start
    before = getattr(estimator, "_centre", centre)  # files of old have none of a stream
    if len(before) >= space.n_theta:
        centre[: space.n_theta] = before[: space.n_theta]
    return centre


def chosen_start(
    estimator: Any,
    source: Source,
    standardizer: Standardizer,
    rule: Rule,
    threads: Threads,
    rng: np.random.RandomState,
    progress: Progress | None,
    holds_out: bool,
) -> Start:
    """Inducing points chosen among the rows; without `progress` it is the beginning of a stream."""
    m, kernel, before, interrupted = estimator.n_inducing, estimator.kernel, None, False
    vars(estimator).pop("inducing_search_", None)  # of an earlier fit
    if m == "auto":
        m = STREAM_POINTS
        if estimator.inducing_points is None and progress is not None:
            grown = grown_start(estimator, source, standardizer, rule, threads, rng, progress)
            m, estimator.inducing_search_, interrupted = len(grown.Z), grown.path, grown.interrupted
            if not holds_out:  # the growth has seen rows that are to be held out
                before = grown.theta
                if grown.on_all_rows:
                    space = _space(estimator, grown.kernel, grown.Z)
                    centre = space.pack(before, grown.Z)
                    return Start(space, centre, None, grown.engine, True, interrupted)
                kernel = halfway_kernel(grown)
    kernel, Z = starting_point(
        source,
        standardizer,
        kernel=kernel,
        inducing_points=validated_inducing_points(estimator.inducing_points, source.n_features),
        n_inducing=min(m, source.n_rows),
        init_inducing=estimator.init_inducing,
        rng=rng,
    )
    space = _space(estimator, kernel, Z)
    return Start(space, None if before is None else space.pack(before, Z), interrupted=interrupted)


def _space(estimator: Any, kernel: Any, Z: Array) -> ParameterSpace:
    learns = estimator._learns
    return ParameterSpace(
        kernel, Z, learn_kernel=learns, learn_inducing=learns and estimator.learn_inducing
    )
