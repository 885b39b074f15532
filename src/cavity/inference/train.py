"""A whole training run: steps, exact sweeps at the final parameters, calibration."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from cavity.data.sampling import RowSampler
from cavity.engines.protocol import Engine
from cavity.gp.calibration import LOO_PASSES, Calibration, leave_one_out_temperature
from cavity.gp.likelihoods import Likelihood, Logit, NoisyArgmax, Probit
from cavity.gp.model import Model
from cavity.gp.posterior import Posterior
from cavity.gp.prior import Prior
from cavity.gp.tiles import Sums
from cavity.inference.checkpoint import Checkpointer
from cavity.inference.config import TrainingConfig
from cavity.inference.converge import (
    EXACT_SWEEPS_TOL,
    FitResult,
    FixedPoint,
    HeldOutMoments,
    HeldOutScore,
    MorePoints,
    chosen_points,
    converge,
    least_work,
    record_sweep,
    score_fixed_posterior,
    with_points,
)
from cavity.inference.history import Progress
from cavity.inference.lbfgs import fit_bound_by_lbfgs, fit_evidence_by_lbfgs
from cavity.inference.leaves import LocalUpdate
from cavity.inference.loop import LoopResult, run
from cavity.inference.optimizers import Adadelta, Optimizer
from cavity.inference.rule import ExpectationPropagation, Rule, Variational
from cavity.inference.schedule import Budget, Monitor
from cavity.inference.sweep import (
    EXACT_LEVERAGE,
    LAGGING_LEVERAGE,
    Sweep,
    SweepOptions,
    site_gamma,
)
from cavity.inference.trainer import Problem, Trainer, TrainingState
from cavity.inference.updates import (
    FactorUpdate,
    GaussianSpace,
    GradientUpdate,
    NaturalUpdate,
    PosteriorUpdate,
)
from cavity.memory import return_freed_memory

_MOST_SWEEPS = 100
_SWEEPS_WITH_HELD_OUT_ROWS = 2
"""Sweeps that let the held-out rows take part: few rows are new, and none of the parameters move."""
_PASSES_WITH_HELD_OUT_ROWS = _SWEEPS_WITH_HELD_OUT_ROWS + 1
"""These sweeps, and one that scores the rows."""
_MONITORED_ROWS = 5_000
"""Held-out rows that score a state during training; with C latent functions, a C-th of them."""
_FEWEST_MONITORED = 500
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
    """The trainer of a configuration: `init` makes the first state, and `step` the next ones."""
    minibatches = config.batch_size is not None
    options = sweep_options(config)
    leverage = EXACT_LEVERAGE if config.rebuild_posterior else LAGGING_LEVERAGE
    # Without an optimiser, nothing is learned or L-BFGS learns it: this one then has nothing to move.
    optimizer = config.optimizer or Adadelta()
    return Trainer(
        problem.for_minibatches() if minibatches else problem,
        optimizer,
        replace(options, max_leverage=leverage),
        _update(problem, config, options, optimizer),
        config.rebuild_posterior,
        RowSampler(subsample=config.subsample),
    )


def sweep_options(config: TrainingConfig) -> SweepOptions:
    """The options of the passes of training."""
    return SweepOptions(
        damping=config.damping,
        exact=config.exact_gradient,
        residual_scale=config.residual_scale,
        trace_penalty=config.trace_penalty,
    )


def _update(
    problem: Problem, config: TrainingConfig, options: SweepOptions, optimizer: Optimizer
) -> PosteriorUpdate:
    if config.posterior_update == "gradient":
        return GradientUpdate(GaussianSpace(config.n_latents, len(problem.space.Z)))
    map_latents = problem.engine.threads.map
    if config.site_storage == "factors":
        return FactorUpdate(map_latents)
    gamma = site_gamma(problem.rule, options) if config.summed_site_gradient else None
    if problem.leaves is not None:
        return LocalUpdate(map_latents, gamma, optimizer, config.learn_inducing)
    return NaturalUpdate(map_latents, gamma)


def train(
    problem: Problem,
    config: TrainingConfig,
    progress: Progress,
    checkpointer: Checkpointer,
    *,
    chooses_predicting: bool = False,
) -> FitResult:
    """Fit a problem as the configuration says.

    chooses_predicting: whether the held-out rows decide on more inducing points for predictions.
    """
    progress.deadline = config.max_seconds
    if config.schedule == "converge":
        result = _converge_only(problem, config, progress)
    elif config.schedule == "lbfgs":
        result = _train_by_lbfgs(problem, config, progress)
    else:
        with checkpointer.explaining_failures():
            result = _train_by_steps(problem, config, progress, checkpointer, chooses_predicting)
    return result._replace(interrupted=progress.interrupted)


def stopped_in_race(
    problem: Problem, config: TrainingConfig, progress: Progress, n_steps: int
) -> FitResult:
    """The result of a fit whose race the user has stopped: exact sweeps where the problem starts.

    That is where the best trial has ended, after `n_steps` steps.
    """
    progress.deadline = config.max_seconds
    progress.stop()
    trainer = make_trainer(problem, config)
    prior, posterior = _final_prior_and_posterior(problem, trainer, trainer.init(), config)
    point = _exact_sweeps(problem, config, prior, posterior, None, progress)
    result = FitResult(point, n_steps, converged=False, interrupted=True)
    return _calibrated(problem, config, result, progress)


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
        clock=progress,
    )
    return FitResult(point, point.n_sweeps, point.converged)


def _train_by_lbfgs(problem: Problem, config: TrainingConfig, progress: Progress) -> FitResult:
    """L-BFGS over all rows: EP converges at every evaluation, or the posterior is part of the vector."""
    steps = max(1, int(config.max_epochs))
    if config.posterior_update == "gradient":
        trainer = make_trainer(problem, config)
        return fit_bound_by_lbfgs(trainer, progress, max_iter=steps, tol=config.tol)
    return fit_evidence_by_lbfgs(problem, progress, max_iter=steps, tol=config.tol)


def train_steps(
    problem: Problem,
    config: TrainingConfig,
    progress: Progress,
    checkpointer: Checkpointer,
    budget: Budget | None = None,
) -> tuple[Trainer, LoopResult]:
    """Steps on batches of rows until the budget is used up; the best state counts, not the last.

    budget: None is that of the configuration, all of it for the steps.
    """
    trainer = make_trainer(problem, config)
    held_out = trainer.engine.held_out is not None
    score = (lambda state: -_monitored_loss(trainer, state)) if held_out else None
    monitor = Monitor.of(config, trainer.engine.n_rows, score)
    begun = checkpointer.resume(trainer, progress, monitor)
    return begun.trainer, run(begun, config, budget or Budget.of(config), checkpointer)


def _train_by_steps(
    problem: Problem,
    config: TrainingConfig,
    progress: Progress,
    checkpointer: Checkpointer,
    chooses_predicting: bool,
) -> FitResult:
    """Steps on batches of rows, then exact sweeps at the final parameters, then calibration."""
    chooses_predicting = chooses_predicting and _can_predict_with_more(config)
    more = chooses_predicting or config.n_predicting is not None
    later = least_work(len(problem.space.Z), config.n_predicting) if more else 0.0
    passes = _passes_of_calibration(problem, config)
    calibration = 1.0 + passes if passes else 0.0  # the choice of the numbers takes time, too
    budget = replace(Budget.of(config), sweeps=True, calibration=calibration, later=later)
    trainer, trained = train_steps(problem, config, progress, checkpointer, budget)
    started = trainer.problem
    problem = replace(problem, space=started.space, hyperprior=started.hyperprior)
    with progress.until_interrupted() as block:
        prior, posterior = _final_prior_and_posterior(problem, trainer, trained.state, config)
    if block.interrupted:  # Ctrl-C has ended it, but they are needed
        prior, posterior = _final_prior_and_posterior(problem, trainer, trained.state, config)
    point = _exact_sweeps(problem, config, prior, posterior, trained.seconds_per_epoch, progress)
    result = FitResult(point, trained.n_steps, trained.converged)
    if chooses_predicting and problem.engine.held_out is not None:
        epochs = trained.n_steps * (config.batch_size or problem.engine.n_rows) / problem.engine.n_rows
        result = _with_chosen_points(problem, config, result, progress, epochs)
    elif config.n_predicting is not None:
        result = _with_more_points(problem, config, result, progress)
    result = _calibrated(problem, config, result, progress)
    if not progress.interrupted:
        checkpointer.finish(problem.engine)
    return result


def finish(trainer: Trainer, state: TrainingState, config: TrainingConfig) -> Model:
    """The model of a state after exact sweeps over all rows at its parameters, calibrated if wanted."""
    problem, progress = trainer.problem, Progress()
    prior, posterior = _final_prior_and_posterior(problem, trainer, state, config)
    point = _exact_sweeps(problem, config, prior, posterior, None, progress)
    result = FitResult(point, 0, converged=True)
    if config.n_predicting is not None:
        result = _with_more_points(problem, config, result, progress)
    point = _calibrated(problem, config, result, progress).point
    return problem.model(point.prior, point.posterior, point.calibration)


def _final_prior_and_posterior(
    problem: Problem, trainer: Trainer, state: TrainingState, config: TrainingConfig
) -> tuple[Prior, Posterior]:
    """Prior and posterior at the end of training, in the precision of the sweeps that follow."""
    if config.batch_size is not None:
        return_freed_memory()  # shuffled rows took it; the sweeps that follow read in order
        problem = replace(problem, dtype=np.dtype(np.float64))
    # The same jitter gives the same whitened coordinates, in which q was trained.
    prior = trainer.update.located(trainer.problem.prior(state.x), state.q).in_precision(problem.dtype)
    return prior, trainer.update.posterior(state.q, prior)


def _exact_sweeps(
    problem: Problem,
    config: TrainingConfig,
    prior: Prior,
    posterior: Posterior,
    pace: float | None,
    progress: Progress,
) -> FixedPoint:
    """Exact sweeps at the final parameters, as far as time allows: the posterior of all rows.

    pace: seconds of an epoch, if there was one.
    """
    # Without a single step, one sweep at least gives the rows their sites.
    if progress.history and pace is not None and progress.seconds_left < pace:
        score = progress.history[-1].leave_one_out
        return FixedPoint(prior, posterior, np.nan, score, 0, np.nan, converged=False)
    if config.posterior_update == "gradient":
        return score_fixed_posterior(problem.engine, prior, posterior, problem.rule, progress)
    return converge(
        problem.engine,
        prior,
        problem.rule,
        tol=EXACT_SWEEPS_TOL,
        options=replace(sweep_options(config), damping=1.0),
        start=posterior.naturals,
        max_sweeps=_MOST_SWEEPS,
        callback=lambda point: progress.swept(point.n_sweeps, point.change),
        clock=progress,
        # Few rows have nothing to join: for them an exact posterior comes before the calibration.
        passes_after=0 if config.loo_calibration else _passes_of_calibration(problem, config),
    )


def _passes_of_calibration(problem: Problem, config: TrainingConfig) -> int:
    """Passes over all rows after the exact sweeps: to calibrate, and for held-out rows to take part."""
    held_out = problem.engine.held_out
    if held_out is None:
        return LOO_PASSES + 1 if config.loo_calibration else 0
    return _PASSES_WITH_HELD_OUT_ROWS if len(held_out.numbers) else 0


def _can_predict_with_more(config: TrainingConfig) -> bool:
    """Whether a posterior can be computed with more points: it must be the sum of the rows' sites."""
    sites = config.posterior_update == "natural" and config.site_storage == "sites"
    return sites and config.n_leaves is None


def _with_chosen_points(
    problem: Problem,
    config: TrainingConfig,
    result: FitResult,
    progress: Progress,
    epochs: float,
) -> FitResult:
    """The result with as many inducing points for predictions as the held-out rows choose.

    Without a budget in seconds, that is at most as much work as the training was.
    """
    point, found = result.point, None
    sweep_seconds = point.seconds_per_sweep
    if progress.interrupted or sweep_seconds is None:
        return result
    passes = min(epochs, progress.seconds_left / sweep_seconds)
    with progress.until_interrupted():
        found = chosen_points(
            problem.engine,
            problem.rule,
            point,
            sweep_options(config),
            config.seed,
            progress,
            passes,
        )
    return result if found is None else _with_points_of(result, found)


def _with_more_points(
    problem: Problem, config: TrainingConfig, result: FitResult, progress: Progress
) -> FitResult:
    """The result with as many inducing points for predictions as the configuration says."""
    found = None
    assert config.n_predicting is not None
    if progress.interrupted:
        return result
    with progress.until_interrupted():
        found = with_points(
            problem.engine,
            problem.rule,
            result.point,
            sweep_options(config),
            config.n_predicting,
            config.seed,
            progress,
        )
    return result if found is None or found.point.interrupted else _with_points_of(result, found)


def _with_points_of(result: FitResult, found: MorePoints) -> FitResult:
    """The result with a posterior that has more points."""
    return result._replace(point=found.point, engine=found.engine, n_predicting=found.n_points)


def _calibrated(
    problem: Problem, config: TrainingConfig, result: FitResult, progress: Progress
) -> FitResult:
    """Calibrate on the held-out rows, if there are any; then let these rows take part as well.

    Few rows are calibrated by their leave-one-out scores. Without either, predictions scale the residual
    as training did.
    """
    engine, point, likelihood = result.engine or problem.engine, result.point, problem.rule.likelihood
    own = Calibration(residual_variance_scale=config.residual_scale)
    result = result._replace(engine=engine, point=point._replace(calibration=own))
    with progress.until_interrupted() as block:
        if config.batch_size is not None:
            return_freed_memory()  # the sites of all rows took it
        if engine.held_out is None:
            return _calibrated_by_leaving_out(problem, config, result, progress)
        moments = HeldOutMoments.of(engine, likelihood, point.prior, point.posterior)
        calibration = moments.calibration(config.residual_scale)
        result = result._replace(
            validation=moments.score(config.residual_scale),
            point=point._replace(calibration=calibration),
        )
        return _with_all_rows(problem, config, result, progress)
    if block.interrupted and engine.held_out is None:  # a few passes over few rows
        return _calibrated_by_leaving_out(problem, config, result, progress)
    return result


def _calibrated_by_leaving_out(
    problem: Problem, config: TrainingConfig, result: FitResult, progress: Progress
) -> FitResult:
    """Calibrate by the leave-one-out scores of the training rows, if that is wanted and time allows."""
    engine, point = result.engine or problem.engine, result.point
    sweep_seconds = point.seconds_per_sweep
    if not config.loo_calibration or sweep_seconds is None:
        return result
    if not progress.has_time(_passes_of_calibration(problem, config) * sweep_seconds):
        return result

    def score(inverse_temperature: float) -> float:
        calibration = replace(point.calibration, inverse_temperature=inverse_temperature)
        return _leave_one_out_score(engine, problem, point, calibration).log_predictive

    found = replace(point.calibration, inverse_temperature=leave_one_out_temperature(score))
    sums = _leave_one_out_score(engine, problem, point, found)
    score_of_a_row = sums.log_predictive / sums.weight
    return result._replace(point=point._replace(calibration=found, mean_log_predictive=score_of_a_row))


def _leave_one_out_score(
    engine: Engine, problem: Problem, point: FixedPoint, calibration: Calibration
) -> Sums:
    """Sums of a pass that scores rows by their cavities with a calibration, and changes nothing else."""
    options = SweepOptions(
        damping=0.0,
        gradient=False,
        inverse_temperature=calibration.inverse_temperature,
        residual_scale=calibration.residual_variance_scale,
    )
    sums = engine.run(Sweep(point.prior, point.posterior, problem.rule, options))
    engine.commit()
    return sums


def _with_all_rows(
    problem: Problem, config: TrainingConfig, result: FitResult, progress: Progress
) -> FitResult:
    """Sweeps over all rows, the held-out ones included, as far as time allows.

    The last sweep scores the rows by their cavities, with the calibration of the predictions.
    """
    point, sweep_seconds = result.point, result.point.seconds_per_sweep
    if config.posterior_update == "gradient" or sweep_seconds is None:
        return result
    if not progress.has_time((_PASSES_WITH_HELD_OUT_ROWS - 1) * sweep_seconds):
        return result
    engine = (result.engine or problem.engine).with_held_out_rows()
    found = converge(
        engine,
        point.prior,
        problem.rule,
        tol=EXACT_SWEEPS_TOL,
        options=replace(sweep_options(config), damping=1.0),
        start=point.posterior.naturals,
        max_sweeps=_SWEEPS_WITH_HELD_OUT_ROWS,
        clock=progress,
        passes_after=1,
    )
    if found.interrupted:
        return result
    sums = _leave_one_out_score(engine, problem, found, point.calibration)
    score = sums.log_predictive / sums.weight
    found = found._replace(calibration=point.calibration, mean_log_predictive=score)
    return result._replace(point=found, engine=engine)


def _monitored_loss(trainer: Trainer, state: TrainingState) -> float:
    """Log loss of some held-out labels under a state, with the calibration that suits them best."""
    most = _MONITORED_ROWS // trainer.problem.rule.likelihood.n_latents
    moments = held_out_moments(trainer, state, max(most, _FEWEST_MONITORED))
    return moments.log_loss(moments.calibration(trainer.options.residual_scale))


def held_out_moments(trainer: Trainer, state: TrainingState, most: int | None = None) -> HeldOutMoments:
    """Latent moments of a state at the held-out rows, or at the first `most` of them."""
    problem = trainer.problem
    prior = trainer.update.located(problem.prior(state.x), state.q)
    posterior = trainer.update.posterior(state.q, prior)
    return HeldOutMoments.of(trainer.engine, problem.rule.likelihood, prior, posterior, most)


def validation_score(trainer: Trainer, state: TrainingState) -> HeldOutScore:
    """Mean log loss of the held-out labels under a state, with its standard error.

    Each half of the rows is calibrated on the other half. It needs a trainer with held-out rows.
    """
    if trainer.engine.held_out is None:
        raise ValueError("this trainer holds no rows out; resolve(..., validation_fraction=0.1) does")
    return held_out_moments(trainer, state).score(trainer.options.residual_scale)
