"""What the large workloads have in common: contenders with minibatches, and equal training seconds."""

from collections.abc import Sequence

from benchmarks import tables
from benchmarks.context import Context
from benchmarks.data import Split
from benchmarks.methods import Contender
from benchmarks.records import Repetition

INDUCING_POINTS = 200
SHORT = (3.0, 6.0, 12.0, 30.0)
"""Budgets, in seconds, at which our own fits are scored besides the full one."""

OURS = (
    Contender("cavity SEP", "cavity-sep"),
    Contender("cavity SVI", "cavity-svi"),
)
WHITENED = Contender("cavity SEP, whitened", "cavity-sep", {"parameters": {"scaling": "whiten"}})
"""For correlated features; one of the best peers gets whitened inputs too."""
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
    # These two have neither minibatches nor a budget; they are stopped after this many seconds.
    Contender("GPBoost, FITC", "gpboost-fitc", {"timeout": 600}),
    Contender("scikit-learn GPC", "sklearn-gpc", {"timeout": 600, "memory_gb": 12}),
)

BEST_PEERS = (PEERS[1], PEERS[3], PEERS[7])
"""GPflow's Adam, and natural gradients of both libraries, at the best minibatches of `airline`."""
WHITENED_PEER = Contender(
    "GPflow NatGrad, 1000, whitened",
    "gpflow-natgrad",
    {"minibatch": 1000, "gamma": 0.02, "inputs": "whitened"},
)
QUICK = (PEERS[0], PEERS[2], PEERS[4], PEERS[6], PEERS[9])
"""One of each kind for a smoke test."""


def race(
    context: Context,
    split: Split,
    budget: float,
    quick: Sequence[Contender] = QUICK,
    ours: Sequence[Contender] = OURS,
) -> None:
    """Train every contender for `budget` seconds, and ours for shorter budgets too.

    In a quick run the peers are `quick`.

    A peer's curve is one run, evaluated on the way. Our steps and gains shrink towards the end of
    whatever budget is given, so each point of our curve is a fit of its own.
    """
    settings = {"m": INDUCING_POINTS, "seed": 0}
    budgets = [t for t in SHORT if t < budget] + [budget]
    peers = quick if context.quick else PEERS
    context.expect(len(budgets) * len(ours) + len(peers))
    for seconds in budgets:
        for contender in ours:
            context.measure(contender, split, settings, seconds)
    for contender in peers:
        context.measure(contender, split, settings, budget)


def race_table(repetitions: Sequence[Repetition], targets: Sequence[float]) -> str:
    """Scores and costs at the longest budget, seconds to stated NLLs, and NLL by seconds."""
    budget = max(r.budget for r in repetitions if r.budget is not None)
    moments = [t for t in (2, 5, 10, 20, 30, 60, 90, 120) if t <= budget]
    ours = [r for r in repetitions if r.method.startswith("cavity")]
    peers = [r for r in repetitions if not r.method.startswith("cavity")]
    at_budget = [r for r in repetitions if r.budget == budget]
    parts = [tables.by_method(at_budget), tables.seconds_to_reach(repetitions, targets)]
    parts += [tables.budgets(ours)] if ours else []
    parts += [tables.curves(peers, moments)] if peers else []
    return "\n\n".join(parts)
