"""Micro-benchmarks: kernels, pass, step, prediction, and the engine against GEMM.

One thread and float64 unless the name says otherwise, so that other work on the machine matters less.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from benchmarks.machine import gemm_rate
from cavity.data import ArraySource
from cavity.data.scaling import Scaling
from cavity.engines.local import LocalEngine
from cavity.engines.threads import Threads, one_blas_thread
from cavity.gp.inducing import default_kernel
from cavity.gp.kernels import bind
from cavity.gp.model import Model
from cavity.gp.parameters import ParameterSpace
from cavity.gp.posterior import Posterior
from cavity.inference.optimizers import Adam
from cavity.inference.rule import ExpectationPropagation, Variational
from cavity.inference.sweep import Sweep, SweepOptions
from cavity.inference.trainer import Batch, Trainer, TrainingState, make_problem
from cavity.inference.updates import GaussianSpace, GradientUpdate

N, D, M = 4_000, 8, 100
RULES: dict[str, Any] = {"ep": ExpectationPropagation, "vi": Variational}


@pytest.fixture(autouse=True)
def _one_blas_thread() -> Iterator[None]:
    with one_blas_thread, np.errstate(all="ignore"):
        yield


def rows(n: int = N, d: int = D) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    return X, (np.sin(2 * X[:, 0]) + X[:, 1] + rng.standard_normal(n) > 0).astype(np.int8)


def trainer_of(rule: str, n: int = N, d: int = D, m: int = M, dtype: str = "float64") -> Trainer:
    X, labels = rows(n, d)
    X = X.astype(dtype)
    engine = LocalEngine(ArraySource(X, labels), Scaling.identity(d), 1, Threads(1))
    kernel = default_kernel(d, np.sqrt(2.0 * d), "rbf")  # by name: another default is no other speed
    space = ParameterSpace(kernel, X[:m].astype(np.float64))
    options = SweepOptions(damping=0.5, max_leverage=0.5)
    return Trainer(make_problem(engine, RULES[rule](), space, 1.0), Adam(0.05), options)


def step_of(method: str, m: int, size: int, d: int) -> tuple[Trainer, TrainingState, Batch]:
    """Trainer, state and batch of a minibatch step on float32 tiles."""
    trainer = trainer_of("ep" if method == "sep" else "vi", N, d, m, "float32")
    if method == "svi-gradient":
        update = GradientUpdate(GaussianSpace(1, m))
        trainer = replace(trainer, update=update, options=SweepOptions(max_leverage=0.5))
    rows = next(iter(trainer.engine.source.batches(size, np.random.default_rng(0))))
    batch = Batch(rows, gain=0.1)
    state, _ = trainer.step(trainer.init(), batch)
    return trainer, state, batch


@pytest.mark.parametrize("kernel", [RBF([1.0] * D), Matern([1.0] * D, nu=1.5)], ids=["rbf", "matern32"])
def test_kernel_and_gradient(benchmark: Any, kernel: Any) -> None:
    X, _ = rows()
    bound = bind(ConstantKernel(1.0) * kernel, X[:M])

    def work() -> None:
        K, tape = bound.cross(X)
        bound.pull_back(tape, K)

    benchmark(work)


@pytest.mark.parametrize("rule", RULES)
def test_full_pass(benchmark: Any, rule: str) -> None:
    trainer = trainer_of(rule)
    state, _ = trainer.step(trainer.init())
    prior = trainer.problem.prior(state.x)
    posterior = Posterior.from_naturals(state.q)
    benchmark(trainer.engine.run, Sweep(prior, posterior, trainer.problem.rule, trainer.options))


SHAPES = [(200, 200, 8), (500, 2500, 8), (200, 1000, 784)]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "m{}_M{}_d{}".format(*shape))
@pytest.mark.parametrize("method", ["sep", "svi", "svi-gradient"])
def test_minibatch_step_float32(benchmark: Any, method: str, shape: tuple[int, int, int]) -> None:
    trainer, state, batch = step_of(method, *shape)
    benchmark(trainer.step, state, batch)


def test_prediction(benchmark: Any) -> None:
    trainer = trainer_of("ep")
    state, _ = trainer.step(trainer.init())
    prior, engine = trainer.problem.prior(state.x), trainer.engine
    q = Posterior.from_naturals(state.q)
    model = Model.from_prior(prior, q, engine.scaling, trainer.problem.rule.likelihood)
    X, _ = rows()
    benchmark(model.latent_moments, X, engine.threads.map)


def test_engine_against_gemm(benchmark: Any) -> None:
    """A pass with gradient counts 12m² + 4md flops a row; `share_of_gemm` is in the saved record."""
    n, d, m = 6_000, 8, 300
    trainer = trainer_of("ep", n, d, m)
    state, _ = trainer.step(trainer.init())
    rate = gemm_rate(np.float64, 1, size=1024)
    benchmark.pedantic(trainer.step, args=(state,), rounds=5, warmup_rounds=1)
    seconds = benchmark.stats.stats.min
    share = n * (12 * m**2 + 4 * m * d) / seconds / 1e9 / rate
    benchmark.extra_info["share_of_gemm"] = share
    assert share > 0.05
