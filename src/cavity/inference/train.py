"""A whole training run: steps, exact sweeps at the final parameters, calibration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from cavity.data.sampling import RowSampler
from cavity.gp.likelihoods import Likelihood, Logit, NoisyArgmax, Probit
from cavity.gp.model import Model
from cavity.gp.posterior import Posterior
from cavity.gp.prior import Prior
from cavity.inference.calibration import calibrated
from cavity.inference.checkpoint import Checkpointer
from cavity.inference.config import TrainingConfig
from cavity.inference.converge import (
    POLISHING_TOL,
    FitResult,
    FixedPoint,
    converge,
    record_sweep,
    score_fixed_posterior,
)
from cavity.inference.ep import ExpectationPropagation
from cavity.inference.history import Progress
from cavity.inference.lbfgs import fit_bound_by_lbfgs, fit_evidence_by_lbfgs
from cavity.inference.loop import LoopResult, run
from cavity.inference.optimizers import Adadelta
from cavity.inference.rule import Rule
from cavity.inference.schedule import Budget, Monitor
from cavity.inference.sweep import EXACT_LEVERAGE, LAGGING_LEVERAGE, SweepOptions, site_gamma
from cavity.inference.trainer import Problem, Trainer, TrainingState
from cavity.inference.updates import (
    FactorUpdate,
    GaussianSpace,
    GradientUpdate,
    NaturalUpdate,
    PosteriorUpdate,
)
from cavity.inference.vi import Variational
from cavity.memory import return_freed_memory

_MOST_SWEEPS = 100
GRACE_SECONDS = 2.0
"""Seconds that an interrupted fit may still take to make its posterior exact."""
LIKELIHOODS: dict[str, Likelihood] = {"probit": Probit(), "logit": Logit()}


def make_rule(config: TrainingConfig, *, sites: bool = False) -> Rule:
    """The rule that says what one row contributes.

    sites: whether the posterior is a sum of sites, even where the configuration moves it by gradients.
    """
    likelihood: Likelihood = LIKELIHOODS[config.likelihood]
    if config.n_classes > 2:
        likelihood = NoisyArgmax(config.n_classes)
    if config.method == "ep":
        return ExpectationPropagation(likelihood)
    return Variational(likelihood, sites or config.posterior_update == "natural")


def make_trainer(problem: Problem, config: TrainingConfig) -> Trainer:
    """The trainer that a configuration means: its `init` and `step` are one training step."""
    minibatches = config.batch_size is not None
    options = sweep_options(config)
    leverage = EXACT_LEVERAGE if config.rebuild_posterior else LAGGING_LEVERAGE
    return Trainer(
        problem.for_minibatches() if minibatches else problem,
        config.optimizer or Adadelta(),
        replace(options, max_leverage=leverage),
        _update(problem, config, options),
        config.rebuild_posterior,
        RowSampler(subsample=config.subsample, calibration_share=config.calibration_fraction),
    )


def sweep_options(config: TrainingConfig) -> SweepOptions:
    """The options of the passes of training."""
    return SweepOptions(
        damping=config.damping,
        exact=config.exact_gradient,
        residual_scale=config.residual_scale,
        trace_penalty=config.trace_penalty,
    )


def _update(problem: Problem, config: TrainingConfig, options: SweepOptions) -> PosteriorUpdate:
    if config.posterior_update == "gradient":
        return GradientUpdate(GaussianSpace(config.n_latents, len(problem.space.Z)))
    map_latents = problem.engine.threads.map
    if config.site_storage == "factors":
        return FactorUpdate(map_latents)
    gamma = site_gamma(problem.rule, options) if config.summed_site_gradient else None
    return NaturalUpdate(map_latents, gamma)


def train(
    problem: Problem, config: TrainingConfig, progress: Progress, checkpointer: Checkpointer
) -> FitResult:
    """Fit a problem as the configuration says."""
    if config.schedule == "converge":
        result = _converge_only(problem, config, progress)
    elif config.schedule == "lbfgs":
        result = _train_by_lbfgs(problem, config, progress)
    else:
        with checkpointer.explaining_failures():
            return _train_by_steps(problem, config, progress, checkpointer)
    point = _calibrate(problem, config, result.point, progress, config.max_seconds)
    return result._replace(point=point, interrupted=result.interrupted or point.interrupted)


def stopped_before_training(problem: Problem, progress: Progress) -> FitResult:
    """The result of a fit that the user has stopped before its first step."""
    deadline = progress.seconds + GRACE_SECONDS
    point = converge(
        problem.engine,
        problem.prior(problem.space.start),
        problem.rule,
        tol=POLISHING_TOL,
        has_time=lambda taken: progress.seconds + taken <= deadline,
    )
    return FitResult(point, 0, converged=False, interrupted=True)


def _converge_only(problem: Problem, config: TrainingConfig, progress: Progress) -> FitResult:
    """The posterior at the starting parameters, which stay."""
    point = converge(
        problem.engine,
        problem.prior(problem.space.start),
        problem.rule,
        options=sweep_options(config),
        tol=config.tol,
        max_sweeps=max(1, int(config.max_epochs)),
        callback=partial(record_sweep, progress),
        has_time=_time_until(config, problem.engine.n_rows, config.max_seconds, progress),
    )
    return FitResult(point, point.n_sweeps, point.converged, point.interrupted)


def _train_by_lbfgs(problem: Problem, config: TrainingConfig, progress: Progress) -> FitResult:
    """L-BFGS over all rows: EP converges at every evaluation, or the posterior is part of the vector."""
    steps, tol, seconds = max(1, int(config.max_epochs)), config.tol, config.max_seconds
    if config.posterior_update == "gradient":
        trainer = make_trainer(problem, config)
        return fit_bound_by_lbfgs(trainer, progress, max_iter=steps, tol=tol, max_seconds=seconds)
    return fit_evidence_by_lbfgs(problem, progress, max_iter=steps, tol=tol, max_seconds=seconds)


def _train_by_steps(
    problem: Problem, config: TrainingConfig, progress: Progress, checkpointer: Checkpointer
) -> FitResult:
    """Steps on batches of rows, then exact sweeps at the final parameters, then calibration."""
    trainer = make_trainer(problem, config)
    engine = problem.engine
    score = None if engine.held_out is None else lambda state: -validation_log_loss(trainer, state)
    monitor = Monitor.of(config, engine.n_rows, score)
    budget = Budget.of(config, engine.n_rows)
    trainer, state, position = checkpointer.resume(trainer, progress, monitor)
    started = trainer.problem
    problem = replace(problem, space=started.space, hyperprior=started.hyperprior)
    trained = run(trainer, config, budget, state, progress, monitor, checkpointer, position)
    try:
        prior, posterior = _final_prior_and_posterior(problem, trainer, trained.state, config)
    except KeyboardInterrupt:  # the state is kept, and its posterior still computed
        trained = replace(trained, interrupted=True)
        prior, posterior = _final_prior_and_posterior(problem, trainer, trained.state, config)
    deadline = config.max_seconds
    if trained.interrupted:
        deadline = min(deadline, progress.seconds + GRACE_SECONDS)
    point = _polish(problem, config, prior, posterior, trained, progress, deadline)
    point = _calibrate(problem, config, point, progress, deadline)
    interrupted = trained.interrupted or point.interrupted
    if not interrupted:
        checkpointer.finish(engine)
    converged = trained.converged or trained.n_steps >= config.max_useful_steps
    return FitResult(point, trained.n_steps, converged, interrupted)


def finish(trainer: Trainer, state: TrainingState, config: TrainingConfig) -> Model:
    """The model of a state after exact sweeps over all rows at its parameters, calibrated if wanted."""
    problem, progress = trainer.problem, Progress()
    prior, posterior = _final_prior_and_posterior(problem, trainer, state, config)
    arrived = LoopResult(state, 0, converged=True, interrupted=False)
    point = _polish(problem, config, prior, posterior, arrived, progress, np.inf)
    point = _calibrate(problem, config, point, progress, np.inf)
    return Model.from_prior(
        point.prior,
        point.posterior,
        problem.engine.scaling,
        problem.rule.likelihood,
        inverse_temperature=point.inverse_temperature,
    )


def _final_prior_and_posterior(
    problem: Problem, trainer: Trainer, state: TrainingState, config: TrainingConfig
) -> tuple[Prior, Posterior]:
    """Prior and posterior at the end of training, in the precision of the sweeps that follow."""
    if config.batch_size is not None:
        return_freed_memory()  # shuffled rows took it; the sweeps that follow read in order
        problem = replace(problem, dtype=np.dtype(np.float64))
    # The same jitter gives the same whitened coordinates, in which q was trained.
    prior = problem.prior(state.x, trainer.problem.prior(state.x).jitter)
    return prior, trainer.update.posterior(state.q, prior)


def _polish(
    problem: Problem,
    config: TrainingConfig,
    prior: Prior,
    posterior: Posterior,
    trained: LoopResult,
    progress: Progress,
    deadline: float,
) -> FixedPoint:
    """Exact sweeps at the final parameters, as far as time allows: the posterior of all rows."""
    # Without a single step, one sweep at least gives the rows their sites.
    pace = trained.seconds_per_epoch
    if progress.history and pace is not None and deadline - progress.seconds < pace:
        score = progress.history[-1].leave_one_out
        return FixedPoint(prior, posterior, np.nan, score, 0, np.nan, converged=False)
    if config.posterior_update == "gradient":
        return score_fixed_posterior(
            problem.engine, prior, posterior, problem.rule, lambda: deadline - progress.seconds
        )
    return converge(
        problem.engine,
        prior,
        problem.rule,
        tol=POLISHING_TOL,
        options=replace(sweep_options(config), damping=1.0),
        start=posterior.naturals,
        max_sweeps=_MOST_SWEEPS,
        callback=lambda point: progress.swept(point.n_sweeps, point.change),
        has_time=_time_until(config, problem.engine.n_rows, deadline, progress),
    )


def _time_until(
    config: TrainingConfig, n_rows: int, deadline: float, progress: Progress
) -> Callable[[float], bool]:
    """Whether there is time for a sweep, given its seconds, and for the calibration after it."""
    # One more sweep scores the rows after the calibration.
    after = 0.0 if config.calibration is None else Budget.of(config, n_rows).epochs_after + 1.0
    return lambda taken: progress.seconds + (1.0 + after) * taken <= deadline


def _calibrate(
    problem: Problem, config: TrainingConfig, point: FixedPoint, progress: Progress, deadline: float
) -> FixedPoint:
    """Fit the inverse temperature, if the configuration has a calibration."""
    try:
        if config.batch_size is not None:
            return_freed_memory()  # the sites of all rows took it; calibration needs few rows
    except KeyboardInterrupt:
        return point._replace(interrupted=True)
    if config.calibration is None or point.interrupted:
        return point
    seconds = deadline - progress.seconds
    calibration_share = config.calibration_fraction
    return calibrated(problem.engine, point, problem.rule, config.seed, calibration_share, seconds)


def validation_log_loss(trainer: Trainer, state: TrainingState) -> float:
    """Mean negative log probability of the held-out labels under a state.

    It needs a trainer with held-out rows, by ``early_stopping="validation"`` in the configuration.
    """
    problem = trainer.problem
    engine, prior, likelihood = problem.engine, problem.prior(state.x), problem.rule.likelihood
    if engine.held_out is None:
        raise ValueError(
            'this trainer holds no rows out; resolve(..., early_stopping="validation") does'
        )
    rows = engine.held_out.rows
    posterior = trainer.update.posterior(state.q, prior)
    model = Model.from_prior(prior, posterior, engine.scaling, likelihood, dtype=engine.dtype)
    log_proba = likelihood.predict_log_proba(*model.latent_moments(rows.X, engine.threads.map))
    scores = log_proba[np.arange(len(log_proba)), rows.labels]
    return -float(np.average(scores, weights=rows.weight))
