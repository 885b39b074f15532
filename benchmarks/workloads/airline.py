"""2.1 million flights, m = 200: test NLL by training seconds."""

from collections.abc import Sequence
from functools import partial

from benchmarks import tables
from benchmarks.context import Context
from benchmarks.data import holdout, whitened
from benchmarks.records import Repetition
from benchmarks.registry import benchmark
from benchmarks.workloads.large import (
    GP_PEERS,
    INDUCING_POINTS,
    OURS,
    WHITENED,
    WHITENED_PEER,
    race,
    race_table,
)

TEST_ROWS = 10_000
MANY_TEST_ROWS = 100_000


def _table(repetitions: Sequence[Repetition]) -> str:
    """Scores and costs, and what the searches chose."""
    return tables.by_method(repetitions) + "\n\n" + tables.choices(repetitions)


@benchmark(
    "airline",
    "2.1M flights, m = 200, 90 s of training a method: test NLL by seconds",
    table=partial(race_table, targets=(0.64, 0.625, 0.62)),
    minutes=90,
)
def run(context: Context) -> None:
    """The common race on a random 10,000-row hold-out, also with whitened features."""
    split, budget = holdout("airline", TEST_ROWS), context.seconds(90.0, quick=3.0)
    race(context, split, budget, ours=(*OURS, WHITENED))
    if not context.quick:
        context.expect(1)
        context.measure(WHITENED_PEER, whitened(split), {"m": INDUCING_POINTS, "seed": 0}, budget)


@benchmark(
    "airline-100k",
    "2.1M flights, 100,000 of them held out, m = 200, 90 s: the best of `airline`, with less noise",
    table=_table,
    minutes=31,
)
def many_test_rows(context: Context) -> None:
    """The NLL of 10,000 rows has a standard error of about .004, that of 100,000 of about .001."""
    contenders = OURS if context.quick else (*OURS, WHITENED, *GP_PEERS, WHITENED_PEER)
    context.expect(len(contenders))
    split = holdout("airline", TEST_ROWS if context.quick else MANY_TEST_ROWS)
    for contender in contenders:
        rows = whitened(split) if contender is WHITENED_PEER else split
        settings = {"m": INDUCING_POINTS, "seed": 0}
        context.measure(contender, rows, settings, context.seconds(90.0, quick=3.0))
