"""2.1 million flights, m = 200: test NLL by training seconds."""

from functools import partial

from benchmarks.context import Context
from benchmarks.data import holdout, whitened
from benchmarks.registry import benchmark
from benchmarks.workloads.large import (
    INDUCING_POINTS,
    OURS,
    WHITENED,
    WHITENED_PEER,
    race,
    race_table,
)

TEST_ROWS, QUICK_TEST_ROWS = 100_000, 10_000
"""The NLL of 100,000 rows has a standard error of about .001, that of 10,000 of about .004."""


@benchmark(
    "airline",
    "2.1M flights, m = 200, 90 s of training a method: test NLL by seconds",
    table=partial(race_table, targets=(0.64, 0.625, 0.62)),
    minutes=90,
)
def run(context: Context) -> None:
    """The common race on a random hold-out, also with whitened features."""
    split = holdout("airline", QUICK_TEST_ROWS if context.quick else TEST_ROWS)
    budget = context.seconds(90.0, quick=3.0)
    race(context, split, budget, ours=(*OURS, WHITENED))
    if not context.quick:
        context.expect(1)
        context.measure(WHITENED_PEER, whitened(split), {"m": INDUCING_POINTS, "seed": 0}, budget)
