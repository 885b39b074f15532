"""Where a minibatch step spends its time: `python -m benchmarks.micro.step_parts`.

Every product and factorisation of a SEP step at m = |minibatch| = 200 and d = 8 on float32 tiles, alone
and with warm caches, in one thread; then the whole step of each method. Times are the processor's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from benchmarks.micro.test_micro import step_of
from cavity.engines.threads import one_blas_thread
from cavity.gp.kernels import bind
from cavity.gp.linalg import (
    cholesky_in_place,
    gram_of_lower,
    inverse_lower,
    times_lower,
    times_transposed_lower,
)

M, D = 200, 8
METHODS = ("sep", "svi", "svi-gradient")


class Part(NamedTuple):
    """One operation of a step."""

    name: str
    count: int
    cubes: float
    """Flops of one, in units of m³."""
    dtype: str
    work: Callable[[], Any]


def parts() -> list[Part]:
    """The operations of a SEP step."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((M, D))
    wide = bind(step_of("sep", M, M, D)[0].problem.space.kernel, X)
    narrow = bind(step_of("sep", M, M, D)[0].problem.space.kernel, X.astype(np.float32))
    K, tape = wide.cross(X)
    A, tile_tape = narrow.cross(X.astype(np.float32))
    B = K + np.eye(M)
    L = cholesky_in_place(B.copy()).astype(np.float32)
    W = inverse_lower(L)
    return [
        Part("K_mm of the kernel", 1, 0.0, "float64", lambda: wide.cross(X)),
        Part("Cholesky factor (K_mm, B)", 2, 1 / 3, "float64", lambda: cholesky_in_place(B.copy())),
        Part("inverse of a factor", 2, 1 / 3, "float32", lambda: inverse_lower(L)),
        Part("B⁻¹, a triangle's Gram", 1, 1 / 3, "float32", lambda: gram_of_lower(W)),
        Part("K_mn of the kernel", 1, 0.0, "float32", lambda: narrow.cross(X.astype(np.float32))),
        Part("A = K_nm L⁻ᵀ", 1, 1.0, "float32", lambda: times_transposed_lower(A, W)),
        Part("Q = A B⁻¹, whitened gradient PᵀA", 2, 2.0, "float32", lambda: A @ L),
        Part("Λ = Σ ν̃ AAᵀ, a Gram", 1, 1.0, "float32", lambda: A.T @ A),
        Part("G L⁻¹; L⁻ᵀ · PᵀA · L⁻¹", 3, 1.0, "float32", lambda: times_lower(A, W)),
        Part("pull-back through K_mn", 1, 0.0, "float32", lambda: narrow.pull_back(tile_tape, A)),
        Part("pull-back through K_mm", 1, 0.0, "float64", lambda: wide.pull_back(tape, K)),
    ]


def milliseconds(work: Callable[[], Any], repeats: int = 50, rounds: int = 9) -> float:
    """The best of several rounds."""
    best = np.inf
    for _ in range(rounds):
        start = time.process_time()
        for _ in range(repeats):
            work()
        best = min(best, (time.process_time() - start) / repeats)
    return 1e3 * best


def main() -> None:
    """Print the table."""
    with one_blas_thread, np.errstate(all="ignore"):
        print(
            f"{'operation':30s} {'count':>5s} {'Mflop':>6s} {'precision':>9s} {'ms':>6s} {'Gflop/s':>8s}"
        )
        total = 0.0
        for part in parts():
            taken, flops = milliseconds(part.work), part.cubes * M**3 / 1e6
            total += part.count * taken
            rate = f"{flops / taken:8.0f}" if flops else f"{'':8s}"
            print(
                f"{part.name:30s} {part.count:5d} {part.count * flops:6.1f} {part.dtype:>9s} "
                f"{part.count * taken:6.2f} {rate}"
            )
        print(f"{'all of these':53s} {total:6.2f}")
        for method in METHODS:
            trainer, state, batch = step_of(method, M, M, D)
            taken = milliseconds(partial(trainer.step, state, batch))
            print(f"{'a step of ' + method:53s} {taken:6.2f}  {1e3 / taken:.0f} a second")


if __name__ == "__main__":
    main()
