"""The paper's schemes as loops over the steps of `cavity.inference`, watched on the way.

All of them have the paper's setting: amplitude × ARD squared exponential + noise as the kernel, started
at the inducing points, lengthscale and amplitude that every method is given; a flat hyper-prior; no
trace penalty, scaling or calibration; rates that do not shrink. The schemes are

* sep: SEP on all rows with sign-based rates and damping .5, or on minibatches with ADADELTA and a stored
  factor for each row;
* svi: mean and covariance of q move by gradients, with L-BFGS-B on all rows or ADADELTA on minibatches;
* gfitc: L-BFGS-B around converged EP;
* outer, outer-exact: converged EP, then one step of kernel and inducing points by sign-based rates.
  Figure 1 compares this with `sep`, whose parameters move inside the loop of EP.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from benchmarks.paper.outer import evidence, model_at
from benchmarks.start import Start
from benchmarks.watch import Watch
from cavity.gp.model import Model
from cavity.gp.posterior import Posterior
from cavity.inference import (
    Adadelta,
    Iteration,
    SignRates,
    Trainer,
    TrainingConfig,
    TrainingState,
    batches,
    open_rows,
    prepare_trainer,
    reporting,
    resolve,
)
from cavity.inference.converge import EXACT_SWEEPS_TOL, converge
from cavity.inference.history import Progress
from cavity.inference.lbfgs import Evaluated, maximize
from cavity.inference.sweep import SiteSum
from cavity.typing import Array

ITERATIONS = 250
"""Iterations of training on all rows, as in the paper."""
FIRST_NOISE = 0.1
"""Start of the noise variance, which the paper does not give."""
LBFGS_TOL = 2.2e-9
"""Relative change at which L-BFGS-B stops before its 250 iterations: the default of R's `optim`."""
SVI_WINDOW = 10
"""Iterations of L-BFGS-B that together must raise the bound: q in the vector makes each of them slow."""
_ENDLESS = 10**6
"""Epochs: the watch or the number of iterations ends a run, and until then no rate shrinks."""


class OutOfTimeError(Exception):
    """The budget of a run of L-BFGS-B is used up; raised between two of its iterations."""


def paper_kernel(start: Start) -> Any:
    """The paper's covariance function at the common start."""
    lengthscales = np.full(start.Z.shape[1], start.lengthscale)
    return ConstantKernel(start.amplitude) * RBF(lengthscales) + WhiteKernel(FIRST_NOISE)


def paper_config(mode: str, n_rows: int, m: int, settings: Mapping[str, Any]) -> TrainingConfig:
    """The configuration of a scheme; `settings["parameters"]` may set further fields."""
    minibatch = settings.get("minibatch")
    all_rows = minibatch is None
    own: dict[str, Any] = {"residual_scale": 1.0, "trace_penalty": 0.0}
    if mode == "svi":
        optimizer = "lbfgs" if all_rows else Adadelta()
        own = {"method": "vi", "posterior_update": "gradient", "optimizer": optimizer}
    elif mode == "gfitc":
        own |= {"optimizer": "lbfgs"}
    elif all_rows:
        exact = mode == "outer-exact"
        own |= {"optimizer": SignRates(), "damping": 0.5, "exact_gradient": exact}
    else:
        own |= {"optimizer": Adadelta(), "site_storage": "factors"}
    return resolve(
        n_rows,
        n_inducing=m,
        scaling=None,
        batch_size=minibatch,
        max_epochs=_ENDLESS,
        hyperprior_scale=None,
        validation_fraction=None,
        seed=settings.get("seed", 0),
        **(own | settings.get("parameters", {})),
    )


def run(
    mode: str,
    X: NDArray[np.floating],
    y: NDArray[np.integer],
    start: Start,
    settings: Mapping[str, Any],
    watch: Watch,
) -> str:
    """Train a scheme on X [n, d], y [n] under a watch; returns the digest of its start."""
    iterations = settings.get("iterations", ITERATIONS)
    watch.begin()
    with open_rows(X, y, n_jobs=settings.get("threads")) as rows:
        config = paper_config(mode, rows.n_rows, len(start.Z), settings)
        trainer = prepare_trainer(rows, config, kernel=paper_kernel(start), inducing_points=start.Z)
        if mode in ("outer", "outer-exact"):
            run_outer(trainer, config, watch, iterations)
        elif mode == "gfitc":
            run_gfitc(trainer, watch, iterations)
        elif config.schedule == "lbfgs":
            run_gradient_svi(trainer, watch, iterations)
        else:
            run_steps(trainer, config, watch, iterations if config.batch_size is None else None)
    return digest_of_start(trainer)


def digest_of_start(trainer: Trainer) -> str:
    """A short fingerprint of the kernel parameters and inducing points that training began with."""
    first = np.ascontiguousarray(trainer.problem.space.start, dtype=np.float64)
    return hashlib.sha256(first.tobytes()).hexdigest()[:16]


def model_of(trainer: Trainer, state: TrainingState) -> Model:
    """The model of a state between two steps, without any further pass that refines the sites."""
    problem, engine = trainer.problem, trainer.engine
    prior = problem.prior(state.x)
    if trainer.rebuild:
        posterior = Posterior.from_naturals(engine.run(SiteSum(prior)).naturals)
    else:
        posterior = trainer.update.posterior(state.q, prior)
    return Model.from_prior(prior, posterior, engine.scaling, problem.rule.likelihood)


def run_steps(trainer: Trainer, config: TrainingConfig, watch: Watch, iterations: int | None) -> None:
    """Step until the iterations are done or the budget of the watch is used up."""
    state = trainer.init()
    for batch in batches(trainer, config):
        if watch.steps == iterations or watch.is_over:
            break
        watch.look(partial(model_of, trainer, state))
        state, info = trainer.step(state, batch)
        watch.steps += 1
        if info is not None:
            watch.record(info.objective)
    watch.end(partial(model_of, trainer, state))


def run_outer(trainer: Trainer, config: TrainingConfig, watch: Watch, iterations: int) -> None:
    """EP to convergence before each step of kernel and inducing points."""
    problem, space, optimizer = trainer.problem, trainer.problem.space, trainer.optimizer
    x, rates = space.start, optimizer.initial(len(space.start))
    for _ in range(iterations):
        found = evidence(problem, x, exact=config.exact_gradient)
        watch.steps += 1
        watch.record(found.info.objective)
        watch.look(partial(model_at, problem, found.point))
        if watch.is_over:
            break
        move, rates = optimizer.step(rates, found.slope)
        x = space.project(x + move)
    point = converge(problem.engine, problem.prior(x), problem.rule)
    watch.end(partial(model_at, problem, point))


def run_gfitc(trainer: Trainer, watch: Watch, iterations: int) -> None:
    """L-BFGS-B over kernel and inducing points, with EP converged at every evaluation."""
    problem, latest = trainer.problem, _Latest(watch)

    def evaluate(x: Array) -> Evaluated:
        found = evidence(problem, x)
        latest.model = partial(model_at, problem, found.point)
        watch.steps += 1
        return Evaluated(found.slope, found.info, found.passes)

    space = problem.space
    x = _climb(evaluate, space.start, space.bounds, latest, iterations)
    if x is not None:
        point = converge(problem.engine, problem.prior(x), problem.rule, tol=EXACT_SWEEPS_TOL)
        latest.model = partial(model_at, problem, point)
    watch.end(latest.model)


def run_gradient_svi(trainer: Trainer, watch: Watch, iterations: int) -> None:
    """L-BFGS-B over kernel, inducing points, and mean and covariance of q, as one vector."""
    problem, state, latest = trainer.problem, trainer.init(), _Latest(watch)
    split = len(state.x)

    def model(vector: Array) -> Model:
        prior = problem.prior(vector[:split])
        posterior = trainer.update.posterior(vector[split:], prior)
        return Model.from_prior(prior, posterior, problem.engine.scaling, problem.rule.likelihood)

    def evaluate(vector: Array) -> Evaluated:
        found = trainer.evaluate(vector[:split], vector[split:], damping=1.0)
        assert found is not None
        problem.engine.commit()  # as after a step of the trainer
        latest.model = partial(model, vector.copy())
        watch.steps += 1
        return Evaluated(found.slope, found.info)

    free = np.tile([-np.inf, np.inf], (len(state.q), 1))
    vector = _climb(
        evaluate,
        np.concatenate([state.x, state.q]),
        np.vstack([problem.space.bounds, free]),
        latest,
        iterations,
        window=SVI_WINDOW,
    )
    if vector is not None:
        latest.model = partial(model, vector)
    watch.end(latest.model)


class _Latest:
    """The latest model that L-BFGS-B has evaluated; lets the watch look at it after an iteration."""

    model: Callable[[], Model]

    def __init__(self, watch: Watch) -> None:
        self.watch = watch

    def update(self, iteration: Iteration, share: float | None) -> None:
        """An iteration was recorded (see `cavity.inference.reporting`)."""
        self.watch.record(iteration.objective)
        self.watch.look(self.model)
        if self.watch.is_over:
            raise OutOfTimeError


def _climb(
    evaluate: Callable[[Array], Evaluated],
    start: Array,
    bounds: Array,
    latest: _Latest,
    iterations: int,
    window: int = 1,
) -> Array | None:
    """The best point of L-BFGS-B; None if the budget was used up before it was found."""
    with reporting(latest), suppress(OutOfTimeError):
        progress = Progress()
        return maximize(
            evaluate, start, bounds, progress, max_iter=iterations, tol=LBFGS_TOL, window=window
        ).x
    return None
