"""What the calibration, a factor on the latent means, changes on held-out rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.context import Context
from benchmarks.data import UCI, Split, fixed, holdout, splits
from benchmarks.methods import Contender
from benchmarks.records import Repetition
from benchmarks.registry import benchmark
from benchmarks.tables import failures, markdown
from benchmarks.workloads.classes import digits, for_choices

SPLITS, POINTS, STEPS = 5, 100, 300
WITHOUT, WITH = "without", "with"


def _table(repetitions: Sequence[Repetition]) -> str:
    """One row per set: NLL and calibration error without and with calibration, and the factor."""
    rows = []
    for dataset in dict.fromkeys(r.dataset for r in repetitions):
        here = [r for r in repetitions if r.dataset == dataset and r.failure is None]
        groups = [[r for r in here if r.label == label] for label in (WITHOUT, WITH)]
        if not all(groups):
            continue
        means = [
            {name: float(np.mean([r.metrics[name] for r in group])) for name in ("nll", "ece")}
            for group in groups
        ]
        before, after = means
        factors = sorted(r.extra["inverse_temperature"] for r in groups[1])
        rows.append(
            [
                dataset,
                str(len(groups[0])),
                f"{before['nll']:.4f}",
                f"{after['nll']:.4f}",
                f"{100 * (after['nll'] / before['nll'] - 1):+.1f} %",
                f"{before['ece']:.4f}",
                f"{after['ece']:.4f}",
                f"{factors[len(factors) // 2]:.2f}",
            ]
        )
    header = ["set", "splits", "NLL without", "with", "change", "ECE without", "with", "factor"]
    return markdown(header, rows) + failures(repetitions)


def _sets(context: Context) -> list[tuple[Split, dict[str, Any]]]:
    """Splits, and the parameters that every fit on them has; of the large sets, training rows only."""
    small = ("sonar",) if context.quick else UCI
    n_splits = context.repetitions(SPLITS, quick=1)
    sets: list[tuple[Split, dict[str, Any]]] = []
    for name in small:
        sets += [(split, {}) for split in splits(name, n_splits)]
    sets.append((digits(), {"scaling": None, "max_epochs": 10 if context.quick else 100}))
    if context.quick:
        return sets
    large: list[tuple[Split, str | None]] = []
    large += [(for_choices(fixed("mnist"), 60_000, many=many), None) for many in (False, True)]
    covtype = holdout("covtype", 10_000)  # the test rows of `covtype-classes` take no part
    large += [(for_choices(covtype, 50_000, many=many), "standard") for many in (False, True)]
    large += [(for_choices(holdout("adult", 5_000), 50_000, many=False), "standard")]
    for split, scaling in large:
        epochs = STEPS * 5 * POINTS / len(split.train.y)
        # An automatic residual_scale depends on the calibration; both fits must have the same.
        config = {"residual_scale": 1.0}
        sets.append((split, {"scaling": scaling, "max_epochs": epochs, "config": config}))
    return sets


@benchmark(
    "calibration",
    'calibration=None against "temperature": NLL and calibration error of held-out rows, thirteen sets',
    table=_table,
    timed=False,
)
def run(context: Context) -> None:
    """Two fits that differ by the factor, and on minibatches by the rows that are left out for it."""
    jobs = _sets(context)
    context.expect(2 * len(jobs))
    for split, parameters in jobs:
        for label, how in ((WITHOUT, None), (WITH, "temperature")):
            config = {**parameters.get("config", {}), "calibration": how}
            settings = {
                "m": POINTS,
                "seed": split.index,
                "parameters": {**parameters, "config": config},
            }
            context.measure(Contender(label, "cavity-sep"), split, settings)
