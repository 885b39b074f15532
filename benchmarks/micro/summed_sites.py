"""What the gradient through K_mm from summed sites saves: `python -m benchmarks.micro.summed_sites`.

Minibatch steps with it and without, in turns, in one thread: best times and their ratio.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from benchmarks.micro.test_micro import step_of
from cavity.engines.threads import one_blas_thread
from cavity.inference.sweep import site_gamma
from cavity.inference.updates import NaturalUpdate

SHAPES = ((100, 1000, 8), (200, 1000, 8), (200, 1000, 784), (500, 2500, 8))
ROUNDS, SECONDS = 15, 0.15


def compare(method: str, shape: tuple[int, int, int]) -> list[float]:
    """Milliseconds of a step whose gradient through K_mm is summed over the rows, and over the sites."""
    trainer, state, batch = step_of(method, *shape)
    options = replace(trainer.options, damping=1.0, residual_scale=0.0 if method == "sep" else 1.0)
    gamma = site_gamma(trainer.problem.rule, options)
    trainers = [replace(trainer, options=options, update=NaturalUpdate(gamma=g)) for g in (None, gamma)]
    state = replace(state, damping=1.0)
    best = [np.inf, np.inf]
    for _ in range(ROUNDS):
        for k, each in enumerate(trainers):
            each.step(state, batch)
            n_steps, start = 0, time.perf_counter()
            while time.perf_counter() - start < SECONDS:
                each.step(state, batch)
                n_steps += 1
            best[k] = min(best[k], 1e3 * (time.perf_counter() - start) / n_steps)
    return best


def main() -> None:
    """Print the table."""
    with one_blas_thread, np.errstate(all="ignore"):
        print("step       m  rows    d   by rows  by sites, ms  ratio")
        for method in ("sep", "svi"):
            for m, size, d in SHAPES:
                rows, sites = compare(method, (m, size, d))
                print(
                    f"{method:6s} {m:5d} {size:5d} {d:4d} {rows:9.2f} {sites:13.2f} {sites / rows:6.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
