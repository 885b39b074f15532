"""The paper's Figure 4: error and NLL against time on MNIST and Airline, minibatches and all rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import tables
from benchmarks.context import Context
from benchmarks.data import Split, fixed, holdout
from benchmarks.drawing import (
    BLACK,
    BLUE,
    PAGE,
    VERMILION,
    figure,
    labelled,
    plain_ticks,
    time_axis,
)
from benchmarks.methods import Contender
from benchmarks.paper.numbers import MNIST
from benchmarks.records import Repetition
from benchmarks.registry import benchmark

INDUCING_POINTS = MINIBATCH = 200
TEST_ROWS = 10_000
SHORT = (3.0, 10.0, 30.0, 100.0)
"""Budgets, in seconds, of the fits at our defaults."""

_PAPER = {"scheme": "paper", "curve": True}
STOCHASTIC = (
    Contender("SEP, minibatches", "paper-sep", {**_PAPER, "minibatch": MINIBATCH}),
    Contender("SVI, minibatches", "paper-svi", {**_PAPER, "minibatch": MINIBATCH}),
)
BATCH = (
    Contender("SEP, all rows", "paper-sep", _PAPER),
    Contender("SVI, all rows", "paper-svi", _PAPER),
)
DEFAULTS = (
    Contender("SEP, our defaults", "cavity-sep"),
    Contender("SVI, our defaults", "cavity-svi"),
)
LINEAR = Contender("logistic regression", "logistic")
STYLES: dict[str, dict[str, Any]] = {
    STOCHASTIC[0].label: {"color": BLUE},
    STOCHASTIC[1].label: {"color": VERMILION},
    BATCH[0].label: {"color": BLUE, "linestyle": "--"},
    BATCH[1].label: {"color": VERMILION, "linestyle": "--"},
    DEFAULTS[0].label: {"color": BLUE, "linestyle": "-.", "marker": "o", "markersize": 3},
    DEFAULTS[1].label: {"color": VERMILION, "linestyle": "-.", "marker": "s", "markersize": 3},
    LINEAR.label: {"color": BLACK, "linestyle": ":"},
}


def table(repetitions: Sequence[Repetition], targets: Sequence[float]) -> str:
    """Scores and costs at the end, and seconds to stated NLLs."""
    last: dict[str, Repetition] = {}
    for r in repetitions:
        if r.label not in last or (r.budget or 0.0) >= (last[r.label].budget or 0.0):
            last[r.label] = r
    parts = [tables.by_method(list(last.values())), tables.seconds_to_reach(repetitions, targets)]
    if any(r.dataset == "mnist" for r in repetitions):
        printed = ", ".join(
            f"{name} {100 * value['error']:.1f} % and {value['nll']:.4f}"
            for name, value in MNIST.items()
        )
        parts.append(f"The paper, batch training: {printed}.")
    return "\n\n".join(parts)


def draw(repetitions: Sequence[Repetition], stem: Path) -> list[Path]:
    """Error beside NLL, a line a method; the linear model is a level, our defaults a fit a point."""
    done = [r for r in repetitions if r.failure is None]
    with figure(stem, PAGE, 2.8, ncols=2) as (axes, files):
        for axis, measure, factor in ((axes[0, 0], "error", 100.0), (axes[0, 1], "nll", 1.0)):
            for label, style in STYLES.items():
                group = [r for r in done if r.label == label]
                if not group:
                    continue
                if label == LINEAR.label:
                    axis.axhline(factor * group[-1].metrics[measure], label=label, **style)
                    continue
                points = sorted((p["seconds"], factor * p[measure]) for r in group for p in r.curve)
                axis.plot(*zip(*points, strict=True), label=label, **style)
            time_axis(axis)
            axis.set_yscale("log")
            plain_ticks(axis.yaxis, decades=1.0)
        labelled(axes[0, 0], "training time (s)", "test error (%)")
        labelled(axes[0, 1], "training time (s)", "test NLL (nats a row)")
        axes[0, 1].legend(frameon=True, framealpha=1.0, edgecolor="none")
    return files


def _race(context: Context, split: Split, contenders: Sequence[Contender], budget: float) -> None:
    settings = {"m": INDUCING_POINTS, "seed": 0}
    if context.quick:
        settings["m"] = 50
    short = [t for t in SHORT if t <= budget]
    context.expect(1 + len(short) * len(DEFAULTS) + len(contenders))
    context.measure(LINEAR, split, settings, budget)
    for contender in contenders:
        context.measure(contender, split, settings, budget)
    for seconds in short:
        for contender in DEFAULTS:
            context.measure(contender, split, settings, seconds)


@benchmark(
    "fig4-mnist",
    "the paper's Figure 4, top: MNIST odd/even, m = 200, minibatches of 200 and all rows, 200 s each",
    table=partial(table, targets=(0.15, 0.1, 0.0694, 0.0655, 0.055)),
    minutes=20,
    draw=draw,
)
def run_mnist(context: Context) -> None:
    """The paper's schemes on MNIST's own split, until their budget is used up."""
    _race(context, fixed("mnist"), (*STOCHASTIC, *BATCH), context.seconds(200.0, quick=4.0))


@benchmark(
    "fig4-airline",
    "the paper's Figure 4, bottom: 2,127,068 flights, m = 200, minibatches of 200, 200 s each",
    table=partial(table, targets=(0.65, 0.64, 0.63, 0.62)),
    minutes=14,
    draw=draw,
)
def run_airline(context: Context) -> None:
    """The paper's schemes on its own 2,127,068 flights, 10,000 of them held out."""
    _race(context, holdout("airline", TEST_ROWS), STOCHASTIC, context.seconds(200.0, quick=4.0))
