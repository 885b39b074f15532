"""The paper's Figure 3 (left): NLL and error on Image against training time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.context import Context
from benchmarks.data import splits
from benchmarks.drawing import (
    METHOD_COLOURS,
    PAGE,
    figure,
    labelled,
    mean_curve,
    plain_ticks,
    time_axis,
)
from benchmarks.methods import Contender
from benchmarks.records import Repetition
from benchmarks.registry import benchmark
from benchmarks.tables import failures, markdown

SIZES = (4, 50, 200)
DASHES = {0: ":", 1: "--", 2: "-"}
SPLITS = 5

CONTENDERS = (
    Contender("SEP", "paper-sep"),
    Contender("SVI", "paper-svi"),
    Contender("GFITC", "paper-gfitc"),
)


def _groups(repetitions: Sequence[Repetition]) -> dict[tuple[int, str], list[Repetition]]:
    groups: dict[tuple[int, str], list[Repetition]] = {}
    for r in repetitions:
        if r.failure is None:
            groups.setdefault((r.settings["m"], r.label), []).append(r)
    return dict(sorted(groups.items()))


def table(repetitions: Sequence[Repetition]) -> str:
    """Final NLL and error, seconds in all, and seconds until the mean NLL is near its own end."""
    rows = []
    for (m, label), group in _groups(repetitions).items():
        seconds, nll, _ = mean_curve(group, "nll")
        final = float(np.mean([r.metrics["nll"] for r in group]))
        near = seconds[nll <= 1.05 * final]
        rows.append(
            [
                str(m),
                label,
                f"{final:.4f}",
                f"{100 * np.mean([r.metrics['error'] for r in group]):.2f}",
                f"{np.mean([r.seconds for r in group]):.2f}",
                f"{near[0]:.2f}" if len(near) else "–",
                str(len(group)),
            ]
        )
    header = ["m", "method", "NLL", "error %", "seconds", "seconds to NLL + 5 %", "splits"]
    return markdown(header, rows) + failures(repetitions)


def draw(repetitions: Sequence[Repetition], stem: Path) -> list[Path]:
    """Mean curves and one standard error, NLL beside error."""
    groups = _groups(repetitions)
    sizes = sorted({m for m, _ in groups})
    with figure(stem, PAGE, 2.8, ncols=2) as (axes, files):
        for axis, measure, factor in ((axes[0, 0], "nll", 1.0), (axes[0, 1], "error", 100.0)):
            for (m, label), group in groups.items():
                seconds, mean, spread = mean_curve(group, measure)
                style = {"color": METHOD_COLOURS[label], "linestyle": DASHES[sizes.index(m) % 3]}
                axis.plot(seconds, factor * mean, label=f"{label}, m = {m}", **style)
                low, high = factor * np.maximum(mean - spread, 0.5 * mean), factor * (mean + spread)
                axis.fill_between(seconds, low, high, color=style["color"], alpha=0.12, linewidth=0)
            time_axis(axis)
            axis.set_yscale("log")
            plain_ticks(axis.yaxis, decades=1.0)
        labelled(axes[0, 0], "training time (s)", "test NLL (nats a row)")
        labelled(axes[0, 1], "training time (s)", "test error (%)")
        axes[0, 1].legend(ncols=len(sizes), fontsize=6, columnspacing=1.0, handlelength=2.2)
    return files


@benchmark(
    "fig3-time-image",
    "the paper's Figure 3: NLL and error on Image against training time, m = 4, 50, 200, five splits",
    table=table,
    minutes=11,
    draw=draw,
)
def run(context: Context) -> None:
    """Split by split, all three systems at every m."""
    n_splits = context.repetitions(SPLITS, quick=1)
    sizes = SIZES[:2] if context.quick else SIZES
    context.expect(n_splits * len(sizes) * len(CONTENDERS))
    for split in splits("image", n_splits):
        for m in sizes:
            settings = {"scheme": "paper", "m": m, "seed": split.index, "threads": 1, "curve": True}
            if context.quick:
                settings["iterations"] = 60
            for contender in CONTENDERS:
                context.measure(contender, split, settings, context.budget)
