"""What the large workloads have in common: contenders with minibatches, and equal training seconds.

GPflow and GPyTorch are shown at their best: optimiser, schedule, rate and minibatch are searched on rows
held out of training, `SEARCH_SECONDS` for each candidate. These are not counted in the seconds of a fit.
"""

from collections.abc import Sequence
from itertools import product
from typing import Any

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
SEARCH_SECONDS, QUICK_SEARCH_SECONDS = 20.0, 1.0
SCHEDULES = ("constant", "cosine")
MINIBATCHES = (200, 1000)
ADAM_RATES, GAMMAS = (0.01, 0.03), (0.02, 0.1)


def candidates(library: str, natural: str, **common: Any) -> list[dict[str, Any]]:
    """Adam by minibatch, schedule and rate; natural gradients by schedule and gamma."""
    adam = [
        {
            "method": f"{library}-adam",
            "minibatch": rows,
            "schedule": schedule,
            "learning_rate": rate,
            **common,
        }
        for rows, schedule, rate in product(MINIBATCHES, SCHEDULES, ADAM_RATES)
    ]
    steps = [
        {
            "method": f"{library}-{natural}",
            "minibatch": MINIBATCHES[-1],
            "schedule": schedule,
            "gamma": gamma,
            **common,
        }
        for schedule, gamma in product(SCHEDULES, GAMMAS)
    ]
    return adam + steps


def searched(
    label: str,
    library: str,
    options: Sequence[dict[str, Any]],
    seconds: float = SEARCH_SECONDS,
    **settings: Any,
) -> Contender:
    """A peer whose settings are the best of some options."""
    search = {"seconds": seconds, "candidates": list(options)}
    return Contender(label, f"{library}-searched", {"search": search, **settings})


OPTIONS = {"gpflow": candidates("gpflow", "natgrad"), "gpytorch": candidates("gpytorch", "ngd")}
LIGHTGBM = Contender("LightGBM", "lightgbm", {"timeout": 7200})
"""It takes the time that it needs, so that it is at its best."""
GP_PEERS = (
    searched("GPflow, searched", "gpflow", OPTIONS["gpflow"]),
    searched("GPyTorch, searched", "gpytorch", OPTIONS["gpytorch"]),
)
PEERS = (
    *GP_PEERS,
    Contender("logistic regression", "logistic"),
    LIGHTGBM,
    # These two have neither minibatches nor a budget; they are stopped after this many seconds.
    Contender("GPBoost, FITC", "gpboost-fitc", {"timeout": 600}),
    Contender("scikit-learn GPC", "sklearn-gpc", {"timeout": 600, "memory_gb": 12}),
)
WHITENED_PEER = searched("GPflow, searched, whitened", "gpflow", OPTIONS["gpflow"], inputs="whitened")
QUICK = (
    searched("GPflow, searched", "gpflow", OPTIONS["gpflow"][::6], QUICK_SEARCH_SECONDS),
    searched("GPyTorch, searched", "gpytorch", OPTIONS["gpytorch"][::6], QUICK_SEARCH_SECONDS),
    LIGHTGBM,
)
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
    parts += [words] if (words := tables.choices(repetitions)) else []
    return "\n\n".join(parts)
