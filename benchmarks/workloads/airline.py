"""2.1 million flights, m = 200: test NLL by training seconds."""

from functools import partial

from benchmarks.context import Context
from benchmarks.data import holdout
from benchmarks.registry import benchmark
from benchmarks.workloads.large import race, race_table

TEST_ROWS = 10_000


@benchmark(
    "airline",
    "2.1M flights, m = 200, 90 s of training a method: test NLL by seconds",
    table=partial(race_table, targets=(0.64, 0.625, 0.62)),
)
def run(context: Context) -> None:
    """The common race on a random 10,000-row hold-out."""
    race(context, holdout("airline", TEST_ROWS), context.seconds(90.0, quick=3.0))
