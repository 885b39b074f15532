"""How near to the machine's matrix product rate a batch iteration runs."""

import time
from functools import partial

import numpy as np

from benchmarks import tables
from benchmarks.context import Context
from benchmarks.machine import gemm_rate
from benchmarks.registry import benchmark
from cavity.data import ArraySource
from cavity.data.scaling import Scaling
from cavity.engines.local import LocalEngine
from cavity.engines.threads import Threads, one_blas_thread, thread_count
from cavity.gp.inducing import default_kernel
from cavity.gp.parameters import ParameterSpace
from cavity.inference.optimizers import Adam
from cavity.inference.rule import ExpectationPropagation
from cavity.inference.sweep import SweepOptions
from cavity.inference.trainer import Trainer, make_problem

SHAPES = ((60_000, 784, 200), (100_000, 8, 500))


def iteration_seconds(n: int, d: int, m: int, dtype: type, n_threads: int, repeats: int) -> float:
    """Best of some batch iterations: sweep, gradient and step on random rows [n, d]."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d)).astype(dtype)
    labels = (X[:, 0] + 0.5 * rng.standard_normal(n) > 0).astype(np.int8)
    threads = Threads(n_threads)
    engine = LocalEngine(ArraySource(X, labels), Scaling.identity(d), 1, threads)
    space = ParameterSpace(default_kernel(d, np.sqrt(2.0 * d)), X[:m].astype(np.float64))
    options = SweepOptions(damping=0.5, max_leverage=0.5, trace_penalty=1.0)
    trainer = Trainer(make_problem(engine, ExpectationPropagation(), space, 1.0), Adam(0.1), options)
    state, best = trainer.init(), np.inf
    with one_blas_thread, np.errstate(all="ignore"):
        for _ in range(repeats + 1):
            begin = time.perf_counter()
            state, _ = trainer.step(state)
            best = min(best, time.perf_counter() - begin)
    threads.close()
    return best


@benchmark(
    "iteration",
    "one batch iteration against the GEMM rate: 60,000×784 m=200, 100,000×8 m=500",
    table=tables.notes,
    minutes=2,
)
def run(context: Context) -> None:
    """Count every product as a plain GEMM: 12m² + 4md flops a row, as a share of the GEMM rate."""
    repeats = 2 if context.quick else 5
    context.expect(2 * len(SHAPES))
    for shape in SHAPES:
        for dtype in (np.float32, np.float64):
            n, d, m = shape
            name = f"{n}x{d} m={m} {np.dtype(dtype).name}"
            context.note(name, partial(_share, *shape, dtype, repeats))


def _share(n: int, d: int, m: int, dtype: type, repeats: int) -> dict[str, float]:
    rate = gemm_rate(dtype, None)
    seconds = iteration_seconds(n, d, m, dtype, thread_count(None), repeats)
    rate = max(rate, gemm_rate(dtype, None))
    share = n * (12 * m**2 + 4 * m * d) / seconds / 1e9 / rate
    return {"seconds": seconds, "gemm_gflops": rate, "share": share}
