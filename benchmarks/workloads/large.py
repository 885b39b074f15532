"""What the large workloads share: the contenders with minibatches, and the race against a clock."""

from benchmarks import tables
from benchmarks.context import Context
from benchmarks.data import Split
from benchmarks.methods import Contender

INDUCING_POINTS = 200

CONTENDERS = (
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
    """Train every contender for `budget` seconds and print its scores and curve."""
    settings = {"m": INDUCING_POINTS, "seed": 0}
    for contender in CONTENDERS:
        context.measure(contender, split, settings, budget)
    recorded = [r for r in context.recorded() if r.budget == budget]
    print()
    print(tables.by_method(recorded))
    print()
    print(tables.curves(recorded, [t for t in (2, 5, 10, 20, 30, 60, 90, 120) if t <= budget]))
