"""Local inducing points beside as many points for all rows: NLL at equal seconds, and steps a second."""

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from statistics import median

import numpy as np

from benchmarks import tables
from benchmarks.context import Context
from benchmarks.data import holdout, many_classes, one_split
from benchmarks.methods import Contender
from benchmarks.records import Repetition
from benchmarks.registry import benchmark
from benchmarks.workloads.large import GP_PEERS, LIGHTGBM
from benchmarks.workloads.sixty_seconds import (
    CHOICE_SECONDS,
    DEFAULT,
    QUICK,
    QUICK_SECONDS,
    SETS,
    choice_of_race,
)
from benchmarks.workloads.step_rate import smooth_labels
from cavity.inference import batches, open_rows, prepare_trainer, resolve

TEST_ROWS = 50_000
SHARP = {"kernel_name": "matern32", "residual_scale": 0.0, "trace_penalty": 0.0}
"""One model for all contenders: what differs is the inducing points alone."""
SAME = {"scaling": "robust"}
ROWS, IN_VIEW, BESIDE, MINIBATCH = 200_000, 200, 50, 1_000
"""Of the rate of steps: rows, inducing points that a row meets, those of them that all rows share, and
rows of a step."""


def contender(leaves: int | None, m: int, n_local: int = 0) -> Contender:
    """SEP with m points for all rows, and some in each leaf."""
    label = f"m = {m}" if leaves is None else f"{m} + {leaves} × {n_local}"
    config = SHARP if leaves is None else {**SHARP, "n_local": n_local}
    parameters = {**SAME, "n_inducing": m, "leaves": leaves, "config": config}
    return Contender(label, "cavity-sep", {"scheme": "default", "parameters": parameters})


CONTENDERS = (
    contender(None, 200),
    contender(None, 500),
    contender(128, 50, 150),
    Contender(
        "the race decides on leaves",
        "cavity-sep",
        {"scheme": "default", "parameters": {"leaves": "auto"}},
    ),
)
LONGER = replace(CONTENDERS[-1], label=f"{CONTENDERS[-1].label}, 600 s")
WITHOUT = Contender("without leaves", "cavity-sep", {"parameters": {"leaves": None}})
MOST_HARM = 1.01
"""Largest NLL of the automatic choice, in units of that without leaves."""


@benchmark(
    "leaves",
    "covertype (two and seven classes) and flights: local inducing points at the same 120 s",
    table=tables.by_dataset,
    minutes=65,
)
def run(context: Context) -> None:
    """The goals are .16 on covertype with two classes (.12 after 600 s), and .605 on flights.

    GPflow has m = 200 and its best settings, LightGBM the better of 31 and 255 leaves.
    """
    covertype = holdout("covtype", TEST_ROWS)
    splits = (covertype, holdout("airline", TEST_ROWS), many_classes(covertype))
    contenders = CONTENDERS[::2] if context.quick else CONTENDERS
    peers = () if context.quick else (GP_PEERS[0], LIGHTGBM)
    context.expect(len(splits) * (len(contenders) + len(peers)) + 1)
    for split in splits:
        n_classes = len(np.unique(split.train.y))
        for one in (*contenders, *peers):
            settings = {"m": IN_VIEW, "classes": n_classes} if one in peers else {}
            context.measure(one, split, {**settings, "seed": 0}, context.seconds(120.0, quick=4.0))
    context.measure(LONGER, covertype, {"seed": 0}, context.seconds(600.0, quick=6.0))


def step_milliseconds(
    leaves: int | None, steps: int, n_jobs: int | None, subsample: float | None
) -> dict[str, float]:
    """The best and the median minibatch step, after the first tenth of the steps.

    subsample: smallest probability with which a row takes part; None is that of a fit.
    """
    data, taken = smooth_labels(ROWS, 0), []
    with open_rows(data.X, data.y, n_jobs=n_jobs) as rows:
        config = resolve(
            rows.n_rows,
            n_inducing=IN_VIEW if leaves is None else BESIDE,
            n_leaves=leaves,
            n_local=None if leaves is None else IN_VIEW - BESIDE,
            batch_size=MINIBATCH,
            max_epochs=steps * MINIBATCH / ROWS,
            validation_fraction=None,
            **SHARP,
        )
        if subsample is not None:
            config = replace(config, subsample=subsample)
        trainer = prepare_trainer(rows, config)
        state = trainer.init()
        for batch in batches(trainer, config):
            begin = time.perf_counter()
            state, _ = trainer.step(state, batch)
            taken.append(1e3 * (time.perf_counter() - begin))
    taken = taken[len(taken) // 10 :]
    return {
        "leaves": leaves or 0,
        "threads": n_jobs or 0,
        "all_rows": subsample == 1.0,
        "best": min(taken),
        "median": median(taken),
    }


def rate_table(repetitions: Sequence[Repetition]) -> str:
    """Milliseconds of a step, and the rate as a share of that without leaves."""
    found = [r.extra for r in repetitions]
    plain = {(f["threads"], f["all_rows"]): f["median"] for f in found if not f["leaves"]}
    rows = [
        [
            f"{BESIDE} + {f['leaves']} × {IN_VIEW - BESIDE}" if f["leaves"] else f"m = {IN_VIEW}",
            f"{f['threads'] or 'all'}",
            "all" if f["all_rows"] else "as in a fit",
            f"{f['best']:.1f}",
            f"{f['median']:.1f}",
            f"{plain.get((f['threads'], f['all_rows']), float('nan')) / f['median']:.2f}",
        ]
        for f in found
    ]
    header = ["points", "threads", "rows", "ms a step, best", "median", "rate against no leaves"]
    return tables.markdown(header, rows)


@benchmark(
    "leaves-step-rate",
    "minibatch steps with 200 points in view: for all rows, and with 16, 64 and 256 leaves",
    table=rate_table,
    minutes=2,
)
def step_rate(context: Context) -> None:
    """The goal is .8 of the rate without leaves, whatever their number is.

    A fit leaves out rows that are almost certain, and how many these are differs between models. So the
    same steps are also measured with all rows of each minibatch.
    """
    numbers = (None, 16, 64, 256)
    context.expect(4 * len(numbers))
    steps = 60 if context.quick else 600
    for subsample in (1.0, None):
        for n_jobs in (None, 1):
            for leaves in numbers:
                rows = "some rows" if subsample is None else "all rows"
                label = f"{leaves or 'no'} leaves, {n_jobs or 'all'} threads, {rows}"
                context.note(label, partial(step_milliseconds, leaves, steps, n_jobs, subsample))


def choice_table(repetitions: Sequence[Repetition]) -> str:
    """NLL of the automatic choice beside that without leaves, set by set."""
    losses: dict[str, dict[str, float]] = {}
    chosen: dict[str, str] = {}
    for r in repetitions:
        if r.failure is None:
            losses.setdefault(r.dataset, {})[r.label] = r.metrics["nll"]
            if r.label == DEFAULT.label:
                chosen[r.dataset] = choice_of_race(r)
    rows, worse = [], []
    for dataset, found in losses.items():
        if {DEFAULT.label, WITHOUT.label} <= found.keys():
            ratio = found[DEFAULT.label] / found[WITHOUT.label]
            worse += [f"{dataset} ({ratio:.3f})"] * (ratio > MOST_HARM)
            scores = [f"{found[c.label]:.4f}" for c in (DEFAULT, WITHOUT)]
            rows.append([dataset, chosen[dataset], *scores, f"{ratio:.3f}"])
    header = ["set", "choice of the race", "NLL of the automatic choice", "NLL without leaves", "ratio"]
    return tables.markdown(header, rows) + (
        f"\n\nAbove {MOST_HARM:g}: {', '.join(worse) or 'none'}." + tables.failures(repetitions)
    )


@benchmark(
    "leaves-choice",
    "ten sets of all sizes: SEPClassifier() beside SEPClassifier(leaves=None) at the same seconds",
    table=choice_table,
    minutes=10,
)
def choice(context: Context) -> None:
    """The goal is that the automatic choice is nowhere more than 1 % worse."""
    names = QUICK if context.quick else SETS
    context.expect(2 * len(names))
    for name in names:
        split = one_split(name)
        for one in (DEFAULT, WITHOUT):
            context.measure(one, split, {"seed": 0}, context.seconds(CHOICE_SECONDS, QUICK_SECONDS))
