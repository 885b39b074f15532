"""Scores for several values of `residual_scale`, the scale of the unexplained variance in training."""

from collections.abc import Sequence

from benchmarks.context import Context
from benchmarks.data import Split, fixed, holdout
from benchmarks.methods import Contender
from benchmarks.records import Repetition
from benchmarks.registry import benchmark
from benchmarks.tables import failures, markdown
from benchmarks.workloads.classes import digits, for_choices

POINTS, STEPS = 100, 600
SHARES = (1.0, 0.3, 0.1, 0.0)
LABEL = "share "


def _table(repetitions: Sequence[Repetition]) -> str:
    """One row per set and scale: NLL, error and calibration error of held-out rows, and the factor."""
    rows = [
        [
            r.dataset,
            r.label.removeprefix(LABEL),
            f"{r.metrics['nll']:.4f}",
            f"{100 * r.metrics['error']:.2f}",
            f"{r.metrics['ece']:.4f}",
            f"{r.extra['inverse_temperature']:.2f}",
        ]
        for r in repetitions
        if r.failure is None
    ]
    return markdown(["set", "share", "NLL", "error %", "ECE", "factor"], rows) + failures(repetitions)


def _sets(context: Context) -> list[tuple[Split, dict[str, object]]]:
    """Splits, and the parameters that every fit on them has; of the large sets, training rows only."""
    if context.quick:
        return [(digits(), {"scaling": None, "batch_size": 5 * POINTS, "max_epochs": 3})]
    large: list[tuple[Split, str | None]] = [(digits(), None)]
    large += [
        (for_choices(holdout("covtype", 10_000), 50_000, many=many), "standard")
        for many in (True, False)
    ]
    large += [(for_choices(fixed("mnist"), 60_000, many=many), None) for many in (True, False)]
    large += [(for_choices(holdout("adult", 5_000), 50_000, many=False), "standard")]
    return [
        (
            split,
            {
                "scaling": scaling,
                "batch_size": 5 * POINTS,
                "max_epochs": STEPS * 5 * POINTS / len(split.train.y),
            },
        )
        for split, scaling in large
    ]


@benchmark(
    "residual-share",
    "residual_scale from 1, FITC, to 0: the same steps, scores of held-out training rows",
    table=_table,
    timed=False,
)
def run(context: Context) -> None:
    """The same calibrated fit with several scales, scored on training rows that were held out."""
    jobs = _sets(context)
    shares = SHARES[:3:2] if context.quick else SHARES
    context.expect(len(jobs) * len(shares))
    for split, parameters in jobs:
        for share in shares:
            contender = Contender(f"{LABEL}{share:g}", "cavity-sep")
            given = {**parameters, "config": {"residual_scale": share}}
            context.measure(contender, split, {"m": POINTS, "seed": 0, "parameters": given})
