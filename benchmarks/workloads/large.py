"""What the large workloads share: the contenders with minibatches, and the race against a clock."""

from benchmarks import tables
from benchmarks.context import Context
from benchmarks.data import Split
from benchmarks.methods import Contender

INDUCING_POINTS = 200
SHORT = (3.0, 6.0, 12.0, 30.0)
"""Budgets, in seconds, at which our own fits are scored besides the full one."""

OURS = (
    Contender("cavity SEP", "cavity-sep"),
    Contender("cavity SVI", "cavity-svi"),
)
PEERS = (
    Contender("GPflow Adam, 200", "gpflow-adam", {"minibatch": 200}),
    Contender("GPflow Adam, 1000", "gpflow-adam", {"minibatch": 1000}),
    Contender("GPflow NatGrad, 200", "gpflow-natgrad", {"minibatch": 200, "gamma": 0.02}),
    Contender("GPflow NatGrad, 1000", "gpflow-natgrad", {"minibatch": 1000, "gamma": 0.02}),
    Contender("GPyTorch Adam, 200", "gpytorch-adam", {"minibatch": 200}),
    Contender("GPyTorch Adam, 1000", "gpytorch-adam", {"minibatch": 1000}),
    Contender("GPyTorch NGD, 200", "gpytorch-ngd", {"minibatch": 200, "gamma": 0.02}),
    Contender("GPyTorch NGD, 1000", "gpytorch-ngd", {"minibatch": 1000, "gamma": 0.02}),
    Contender("logistic regression", "logistic"),
    Contender("LightGBM", "lightgbm"),
)


def race(context: Context, split: Split, budget: float) -> None:
    """Train every contender for `budget` seconds, ours for shorter budgets too, and print all.

    A peer's curve is one run, evaluated on the way. Our steps and gains shrink towards the end of
    whatever budget is given, so each point of our curve is a fit of its own.
    """
    settings = {"m": INDUCING_POINTS, "seed": 0}
    for seconds in [t for t in SHORT if t < budget] + [budget]:
        for contender in OURS:
            context.measure(contender, split, settings, seconds)
    for contender in PEERS:
        context.measure(contender, split, settings, budget)
    recorded = context.recorded()
    print()
    print(tables.by_method([r for r in recorded if r.budget == budget]))
    print()
    print(tables.budgets([r for r in recorded if r.method.startswith("cavity")]))
    print()
    peers = [r for r in recorded if r.budget == budget and not r.method.startswith("cavity")]
    print(tables.curves(peers, [t for t in (2, 5, 10, 20, 30, 60, 90, 120) if t <= budget]))
