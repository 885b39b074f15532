"""Running an experiment in a tiny form: stand-in data, everything in this process."""

from __future__ import annotations

import numpy as np
from benchmarks.context import Context
from benchmarks.here import Here
from benchmarks.methods import OURS, Result, methods
from benchmarks.records import RecordFile
from benchmarks.registry import benchmarks
from scipy.special import log_expit
from sklearn.linear_model import LogisticRegression

from benchmarks import stand_ins

TINY_BUDGET = 0.15


def linear(train, test, settings, budget):
    """A yardstick without an environment of its own."""
    score = LogisticRegression().fit(train.X, train.y).decision_function(test.X)
    log_p = np.column_stack([log_expit(-score), log_expit(score)])
    return Result.from_log_probabilities(log_p, test.y, seconds=0.01)


def run(name, folder, quick=True, budget=None, own=None, **options):
    """Run one experiment on stand-ins and return (benchmark, path of its record file).

    own: methods that take the place of those of the same name.
    """
    item = benchmarks()[name]
    path = folder / f"{name}.jsonl"
    here = {f"paper-{mode}": Here(mode) for mode in OURS}
    here |= {"cavity-sep": Here("sep"), "logistic": linear, "sklearn-gpc": linear}
    context = Context(
        name,
        RecordFile(path, lambda: {"cpu": "a test", "cores": 1}),
        methods() | here | (own or {}),
        quick=quick,
        budget=budget,
        **options,
    )
    with stand_ins.instead():
        item.run(context)
    return item, path
