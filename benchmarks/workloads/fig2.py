"""The paper's Figure 2: decision boundaries and inducing points on the banana set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.context import Context
from benchmarks.data import DataNotFoundError, Split, splits
from benchmarks.drawing import BLACK, ORANGE, PAGE, SKY, figure
from benchmarks.methods import Contender
from benchmarks.records import Repetition
from benchmarks.registry import benchmark
from benchmarks.tables import failures, markdown

SIZES = (4, 8, 16, 32, 64, 128)
GRID = {"low": -3.2, "high": 3.2, "k": 41}
SHOWN = 400  # training rows in a panel

CONTENDERS = (
    Contender("GFITC", "paper-gfitc"),
    Contender("SEP", "paper-sep"),
    Contender("SVI", "paper-svi"),
)


def table(repetitions: Sequence[Repetition]) -> str:
    """Test NLL and error by method and m."""
    done = {(r.label, r.settings["m"]): r for r in repetitions if r.failure is None}
    sizes = sorted({m for _, m in done})
    rows = []
    for contender in CONTENDERS:
        cells = []
        for m in sizes:
            r = done.get((contender.label, m))
            cells.append(
                "–" if r is None else f"{r.metrics['nll']:.3f} / {100 * r.metrics['error']:.1f} %"
            )
        rows.append([contender.label, *cells])
    header = ["NLL / error", *(f"m = {m}" for m in sizes)]
    return markdown(header, rows) + failures(repetitions)


def draw(repetitions: Sequence[Repetition], stem: Path) -> list[Path]:
    """A panel for each method and m; the rows are drawn if the data are there."""
    done = {(r.label, r.settings["m"]): r for r in repetitions if r.failure is None}
    sizes = sorted({m for _, m in done})
    rows = _rows()
    side = PAGE / max(4, len(sizes))
    with figure(
        stem,
        side * len(sizes) + 0.2,
        3 * side + 0.2,
        dpi=250,
        nrows=3,
        ncols=len(sizes),
        sharex=True,
        sharey=True,
    ) as (axes, files):
        for i, contender in enumerate(CONTENDERS):
            for j, m in enumerate(sizes):
                axis = axes[i, j]
                _panel(axis, done.get((contender.label, m)), rows)
                if i == 0:
                    axis.set_title(f"m = {m}")
                if j == 0:
                    axis.set_ylabel(f"{contender.label}\n$x_2$ (sd)")
                if i == 2:
                    axis.set_xlabel("$x_1$ (sd)")
    return files


def _panel(axis: Any, r: Repetition | None, rows: Split | None) -> None:
    axis.grid(False)
    axis.set_aspect("equal")
    axis.set_xticks((-2, 0, 2))
    axis.set_yticks((-2, 0, 2))
    if rows is not None:
        X, y = rows.train.X[:SHOWN], rows.train.y[:SHOWN]
        for label, colour in ((1, ORANGE), (-1, SKY)):
            here = X[y == label]
            axis.plot(here[:, 0], here[:, 1], ".", color=colour, markersize=1.0, rasterized=True)
    if r is None:
        return
    grid = r.settings["grid"]
    side = np.linspace(grid["low"], grid["high"], grid["k"])
    log_odds = np.reshape(r.extra["log_odds"], (grid["k"], grid["k"]))
    if log_odds.min() < 0 < log_odds.max():
        axis.contour(side, side, log_odds, levels=[0.0], colors=BLACK, linewidths=1.0)
    Z = np.array(r.extra["inducing_points"])
    size = 2.4 if len(Z) <= 32 else 1.6
    axis.plot(Z[:, 0], Z[:, 1], "o", color=BLACK, markersize=size, rasterized=True)
    axis.set_xlim(grid["low"], grid["high"])
    axis.set_ylim(grid["low"], grid["high"])


def _rows() -> Split | None:
    """The split that was trained on; records hold none of its rows."""
    try:
        return next(splits("banana", 1))
    except DataNotFoundError:
        return None


@benchmark(
    "fig2-banana",
    "the paper's Figure 2: boundaries and inducing points on banana, m = 4 … 128, three systems",
    table=table,
    minutes=15,
    draw=draw,
    timed=False,
)
def run(context: Context) -> None:
    """One split, every m, the three systems from the same inducing points."""
    (split,) = splits("banana", 1)
    sizes = (4, 16) if context.quick else SIZES
    context.expect(len(sizes) * len(CONTENDERS))
    for m in sizes:
        settings = {"scheme": "paper", "m": m, "seed": 0, "threads": None, "grid": GRID}
        if context.quick:
            settings["iterations"] = 50
        for contender in CONTENDERS:
            context.measure(contender, split, settings, context.budget)
