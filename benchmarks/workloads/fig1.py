"""The paper's Figure 1 (left): log Z_q when hyper-parameters move inside or outside the loop of EP."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.context import Context
from benchmarks.data import splits
from benchmarks.drawing import BLUE, COLUMN, GREEN, ORANGE, VERMILION, figure, labelled, time_axis
from benchmarks.methods import Contender
from benchmarks.records import Repetition
from benchmarks.registry import benchmark
from benchmarks.tables import failures, markdown

INDUCING_POINTS = 300
ITERATIONS = 250
_EXACT = {"parameters": {"exact_gradient": True}}

CONTENDERS = (
    Contender("inner, approximate (SEP)", "paper-sep"),
    Contender("inner, exact", "paper-sep", _EXACT),
    Contender("outer, approximate", "paper-outer"),
    Contender("outer, exact", "paper-outer-exact"),
)
STYLES = dict(
    zip(
        (c.label for c in CONTENDERS),
        ((BLUE, "-"), (ORANGE, "--"), (GREEN, "-"), (VERMILION, "--")),
        strict=True,
    )
)


def table(repetitions: Sequence[Repetition]) -> str:
    """Final log Z_q, seconds in all, and seconds to come within 1 of the best of all."""
    done = [r for r in repetitions if r.failure is None]
    best = max(r.extra["objective"][-1]["objective"] for r in done) if done else 0.0
    rows = []
    for r in done:
        trace = r.extra["objective"]
        near = [p["seconds"] for p in trace if p["objective"] >= best - 1.0]
        rows.append(
            [
                r.label,
                f"{trace[-1]['objective']:.2f}",
                f"{trace[-1]['seconds']:.1f}",
                f"{min(near):.1f}" if near else "–",
                f"{r.metrics['nll']:.3f}",
            ]
        )
    header = ["updates", "log Z_q", "seconds", "seconds to best − 1", "test NLL"]
    return markdown(header, rows) + failures(repetitions)


def draw(repetitions: Sequence[Repetition], stem: Path) -> list[Path]:
    """log Z_q against updates of the hyper-parameters and against seconds."""
    done = [r for r in repetitions if r.failure is None]
    with figure(stem, COLUMN, 4.0, nrows=2) as (axes, files):
        for r in done:
            trace = r.extra["objective"]
            colour, dashes = STYLES[r.label]
            for axis, x in ((axes[0, 0], "step"), (axes[1, 0], "seconds")):
                values = [p["objective"] for p in trace]
                axis.plot([p[x] for p in trace], values, color=colour, linestyle=dashes, label=r.label)
        labelled(axes[0, 0], "updates of the hyper-parameters", "log Z$_q$")
        if done:
            # The first sweeps start from empty factors, far below everything of interest.
            settled = min(p["objective"] for r in done for p in r.extra["objective"][2:])
            best = max(p["objective"] for r in done for p in r.extra["objective"])
            for axis in axes[:, 0]:
                axis.set_ylim(settled - 0.1 * (best - settled), best + 0.05 * (best - settled))
        labelled(axes[1, 0], "training time (s)", "log Z$_q$")
        time_axis(axes[1, 0])
        axes[0, 0].legend(loc="lower right")
    return files


@benchmark(
    "fig1-inner-outer",
    "the paper's Figure 1: log Z_q on Pima, m = 300, inner and outer updates, exact gradient or not",
    table=table,
    minutes=1,
    draw=draw,
)
def run(context: Context) -> None:
    """Four runs from the same start with the same rule for the rates."""
    (split,) = splits("pima", 1)
    n = len(split.train.y) + len(split.test.y)
    settings = {
        "scheme": "paper",
        "m": min(40 if context.quick else INDUCING_POINTS, n // 2),
        "seed": 0,
        "threads": 1,
        "iterations": 60 if context.quick else ITERATIONS,
        "objective": True,
    }
    context.expect(len(CONTENDERS))
    for contender in CONTENDERS:
        context.measure(contender, split, settings, context.budget)
