"""MNIST, odd against even, m = 200: test NLL and error by training seconds."""

from functools import partial

from benchmarks.context import Context
from benchmarks.data import fixed
from benchmarks.registry import benchmark
from benchmarks.workloads.large import race, race_table


@benchmark(
    "mnist",
    "MNIST odd/even, m = 200, 120 s of training a method: test NLL by seconds",
    table=partial(race_table, targets=(0.08, 0.065, 0.055)),
    minutes=55,
)
def run(context: Context) -> None:
    """The common race on MNIST's own split; a quick `airline` has tried the peers."""
    race(context, fixed("mnist"), context.seconds(120.0, quick=3.0), quick=())
