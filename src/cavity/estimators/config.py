"""From an estimator's parameters to a plan: where "auto" is decided."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from cavity.data.sampling import EVERY_ROW, RowSampler
from cavity.data.source import RawRows
from cavity.gp.likelihoods import Likelihood, Logit, Probit
from cavity.gp.model import Model
from cavity.inference.calibration import epochs_needed
from cavity.inference.checkpoint import Checkpointer
from cavity.inference.ep import ExpectationPropagation, ManyClassPropagation, ManyClassVariational
from cavity.inference.fingerprint import fingerprint
from cavity.inference.loop import StochasticSchedule
from cavity.inference.optimizers import Adadelta, Adam, Optimizer, SignRates
from cavity.inference.rule import Rule
from cavity.inference.schedule import Budget, Monitor
from cavity.inference.sweep import SweepOptions, site_gamma
from cavity.inference.train import Plan
from cavity.inference.trainer import Problem, TrainingState
from cavity.inference.updates import FactorUpdate, NaturalUpdate, PosteriorUpdate
from cavity.inference.vi import Variational

LARGEST_BATCH_PROBLEM = 10_000
"""Rows up to which batch_size="auto" trains on all of them at every step."""
BATCH_PER_POINT = 5
"""Rows a minibatch has for each inducing point: enough to be worth the m×m algebra of a step."""
LEAST_BATCH = 1_000
"""Rows it has all the same, if the points are few: a step's own price is that of some hundred rows."""
BATCHES_PER_EPOCH = 1_000
"""Minibatches of many rows are larger: with so many steps less noise is worth more than more steps."""
LARGEST_PER_POINT = 20
BATCH_RATE = 0.1
STOCHASTIC_RATE = 0.02
PRETRAINED_RATE = 0.03
"""Of steps on all rows from a start that has been trained on them: longer ones would lead away first."""
PRETRAINED_STEPS = 75
PRETRAINED_SHARE = 0.375
"""Steps on all rows that are enough from a start that has been trained on them: so many, or this share
of max_iter if that is more."""
LEAST_KEPT = 0.1
"""Smallest probability with which a row takes part in its minibatch: one of no doubt …"""
SMALLEST_THINNED = 128
"""… if the minibatch has so many rows: of fewer there is little to save, and much to lose."""
SPARED = 0.05
"""Share of the rows that minibatches never have, if they are to judge the probabilities in the end …"""
LEAST_TO_SPARE = 25_000
"""… and there are more rows than this: of fewer, a twentieth is too few to judge by."""
ROWS_TO_SUM_UP = 2
"""Rows of a minibatch, for each point and latent function, from which the gradient through K_mm is made
of the summed sites instead of the rows: with fewer there is nothing to gain."""
DEFAULT_STEPS = 3_000
GAIN_WINDOW = 100
"""q averages over about this many rows for each inducing point."""
MONITOR_WINDOWS = 40
"""Windows of the score over a budget of epochs."""
PATIENCE = 5
"""Windows without improvement that end training, with early_stopping."""

LIKELIHOODS: dict[str, Likelihood] = {"probit": Probit(), "logit": Logit()}


def propagation_rule(likelihood: str, n_classes: int) -> Rule:
    """EP's rule: one latent function for two classes, one a class for more."""
    if n_classes == 2:
        return ExpectationPropagation(LIKELIHOODS[likelihood])
    _require_probit(likelihood, n_classes)
    return ManyClassPropagation(n_classes)


def variational_rule(likelihood: str, n_classes: int, *, natural: bool = True) -> Rule:
    """VI's rule: one latent function for two classes, one a class for more.

    natural: whether q takes natural-gradient steps, by sites, or plain ones.
    """
    if n_classes == 2:
        return Variational(LIKELIHOODS[likelihood])
    _require_probit(likelihood, n_classes)
    return ManyClassVariational(n_classes, centred=natural)


def _require_probit(likelihood: str, n_classes: int) -> None:
    if likelihood != "probit":
        raise ValueError(
            f"likelihood={likelihood!r} is for two classes and y has {n_classes}; use "
            'likelihood="probit", or sklearn.multiclass.OneVsRestClassifier around this estimator'
        )


def resolved_batch_size(batch_size: int | str | None, n_rows: int, m: int) -> int | None:
    """The minibatch's size, or None for all rows.

    >>> [resolved_batch_size("auto", n_rows, m=100) for n_rows in (10_000, 60_000, 1_000_000, 10**8)]
    [None, 1000, 1000, 2000]
    >>> [resolved_batch_size("auto", 60_000, m) for m in (20, 100, 500)]
    [400, 1000, 2500]
    """
    if batch_size == "auto":
        if n_rows <= LARGEST_BATCH_PROBLEM:
            return None
        wanted = max(BATCH_PER_POINT * m, LEAST_BATCH, n_rows // BATCHES_PER_EPOCH)
        batch_size = min(wanted, LARGEST_PER_POINT * m)
    return None if batch_size is None else min(n_rows, int(batch_size))


def calibration_share(estimator: Any, problem: Problem, update: PosteriorUpdate) -> float:
    """Share of the rows that training leaves to calibration, if there is any."""
    if not (estimator._learns and _averages(update) and estimator._calibrates(problem)):
        return 0.0
    return spared_share(estimator._batch_size(problem), problem.engine.n_rows)


def spared_share(batch_size: int | None, n_rows: int) -> float:
    """Share of the rows that minibatches of a size leave to calibration.

    >>> [spared_share(1_000, n_rows) for n_rows in (25_000, 25_001)]
    [0.0, 0.05]
    """
    some = batch_size is not None and batch_size < n_rows
    return SPARED if some and n_rows > LEAST_TO_SPARE else 0.0


def resolved_optimizer(
    name: str | None, learning_rate: float | None, batch_size: int | None, pretrained: bool = False
) -> Optimizer | None:
    """The optimiser that the parameters mean."""
    if name is None:
        return None
    if name == "adadelta":
        return Adadelta()
    if name == "rprop":
        return SignRates() if learning_rate is None else SignRates(learning_rate)
    if learning_rate is None:
        whole = PRETRAINED_RATE if pretrained else BATCH_RATE
        learning_rate = whole if batch_size is None else STOCHASTIC_RATE
    return Adam(learning_rate)


def training_plan(
    estimator: Any,
    problem: Problem,
    options: SweepOptions,
    update: PosteriorUpdate,
    optimizer: str | None,
    seed: int,
    calibration_seed: int | None = None,
) -> Plan:
    """The plan of an estimator with the parameters of `SEPClassifier`."""
    n_rows, m, rule = problem.engine.n_rows, len(problem.space.Z), problem.rule
    batch_size = estimator._batch_size(problem)
    stochastic, enough, spared, sampler = None, np.inf, 0.0, EVERY_ROW
    if problem.pretrained and batch_size is None:
        enough = max(PRETRAINED_STEPS, PRETRAINED_SHARE * estimator.max_iter)
    budget = _budget(estimator, batch_size, n_rows, enough)
    if isinstance(update, FactorUpdate):  # the paper's scheme does not cool
        budget = replace(budget, cooling_starts=1.0)
    if calibration_seed is not None:
        spared = calibration_share(estimator, problem, update)
        budget = replace(budget, epochs_after=epochs_needed(n_rows, spared))
    method = resolved_optimizer(optimizer, estimator.learning_rate, batch_size, problem.pretrained)
    if batch_size is not None:
        if _averages(update):
            thins = batch_size >= SMALLEST_THINNED
            sampler = RowSampler(subsample=LEAST_KEPT if thins else 1.0, hold_out=spared)
            if not options.exact and batch_size >= ROWS_TO_SUM_UP * rule.n_latents * m:
                update = replace(update, gamma=site_gamma(rule, options))
        own_rate = estimator.learning_rate is not None or not isinstance(method, Adam)
        stochastic = StochasticSchedule(
            batch_size,
            budget,
            smallest_gain=min(1.0, batch_size / (GAIN_WINDOW * m)),
            seed=seed,
            steps_at_rate=0.0 if own_rate else DEFAULT_STEPS,
        )
    return Plan(
        optimizer=method,
        options=options,
        budget=budget,
        max_iter=most_iterations(estimator),
        tol=estimator.tol,
        stochastic=stochastic,
        monitor=_monitor(estimator, problem, stochastic, update),
        checkpointer=Checkpointer(
            None if estimator.checkpoint is None else Path(estimator.checkpoint),
            estimator.checkpoint_interval,
            lambda: fingerprint(estimator, problem),
        ),
        update=update,
        sampler=sampler,
        enough=enough,
        calibration_seed=calibration_seed,
    )


def _budget(estimator: Any, batch_size: int | None, n_rows: int, enough: float) -> Budget:
    """max_epochs and max_seconds; where they are silent, max_iter sweeps or a number of steps.

    enough: steps after which training is done.
    """
    epochs, seconds = estimator.max_epochs, estimator.max_seconds
    if batch_size is None:
        most = min(estimator.max_iter, enough)
        epochs = most if epochs is None else min(epochs, most)
    elif epochs is None:
        epochs = np.inf if seconds else max(2.0, DEFAULT_STEPS * batch_size / n_rows)
    return Budget(float(epochs), np.inf if seconds is None else float(seconds))


def most_iterations(estimator: Any) -> int:
    """Where all rows are seen in each, so that it is an epoch, too; one at least."""
    epochs = estimator.max_epochs
    return int(estimator.max_iter if epochs is None else max(1, min(estimator.max_iter, epochs)))


def _averages(update: PosteriorUpdate) -> TypeGuard[NaturalUpdate]:
    """Whether q is an average of minibatches, so that it does without some rows; not in the paper's."""
    return type(update) is NaturalUpdate


def _monitor(
    estimator: Any,
    problem: Problem,
    stochastic: StochasticSchedule | None,
    update: PosteriorUpdate,
) -> Monitor:
    patience = None if estimator.early_stopping is None else PATIENCE
    held_out = problem.engine.held_out
    trained = problem if stochastic is None else problem.for_minibatches()
    score = None if held_out is None else _ValidationScore(trained, update, held_out.rows)
    if stochastic is None:
        return Monitor(window=5, patience=patience, score=score)
    steps = problem.engine.n_rows / stochastic.batch_size * stochastic.budget.max_epochs
    window = 50 if not np.isfinite(steps) else int(np.clip(steps / MONITOR_WINDOWS, 5, 200))
    return Monitor(window=window, patience=patience, score=score)


class _ValidationScore:
    """Mean log probability of held-out labels under a state."""

    def __init__(self, problem: Problem, update: PosteriorUpdate, rows: RawRows) -> None:
        self.problem = problem
        self.update = update
        self.rows = rows

    def __call__(self, state: TrainingState) -> float:
        engine, prior = self.problem.engine, self.problem.prior(state.x)
        posterior = self.update.posterior(state.q, prior)
        model = Model.at(prior, posterior, engine, self.problem.rule, dtype=engine.dtype)
        moments = model.latent_moments(self.rows.X, engine.threads)
        log_proba = self.problem.rule.predict_log_proba(*moments)
        scores = log_proba[np.arange(len(log_proba)), self.rows.labels]
        return float(np.average(scores, weights=self.rows.weight))
