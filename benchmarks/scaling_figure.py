"""The scaling study as a figure: speed-up as in the paper's Figure 3 (right), and the projection."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.drawing import BLACK, BLUE, GREEN, PAGE, VERMILION, figure, labelled
from benchmarks.scaling_model import Costs, iteration

_WORKERS = "workers (one core each)"


def draw(
    stem: Path,
    mnist: tuple[int, Costs],
    measured: Mapping[int, float],
    large: tuple[int, Costs],
    workers: tuple[int, ...],
    many: tuple[int, ...],
) -> list[Path]:
    """Write the figure; `measured` are seconds an iteration by workers."""
    with figure(stem, PAGE, 2.8, ncols=2) as (axes, files):
        _speed_up(axes[0, 0], *mnist, measured, workers)
        _projection(axes[0, 1], *large, many)
    return files


def _speed_up(
    axis: Any, n_rows: int, costs: Costs, measured: Mapping[int, float], workers: tuple[int, ...]
) -> None:
    one = iteration(n_rows, 1, costs).seconds
    simulated = [one / iteration(n_rows, k, costs).seconds for k in workers]
    seen = [measured[1] / seconds for seconds in measured.values()]
    axis.plot(workers, workers, color=BLACK, linestyle=":", label="ideal")
    axis.plot(
        workers, simulated, color=BLUE, marker="o", markersize=4, label="simulated from measured costs"
    )
    axis.plot(list(measured), seen, "s", color=VERMILION, markersize=4, label="measured")
    labelled(axis, _WORKERS, "speed-up over one worker")
    axis.set_title("MNIST odd/even, m = 200, all rows")
    axis.legend()


def _projection(axis: Any, n_rows: int, costs: Costs, many: tuple[int, ...]) -> None:
    parts = [iteration(n_rows, k, costs) for k in many]
    for values, colour, marker, name in (
        ([p.seconds for p in parts], BLUE, "o", "iteration"),
        ([p.compute for p in parts], GREEN, "^", "sweep of the rows"),
        ([p.communication for p in parts], VERMILION, "s", "broadcast, reduction, scheduler"),
    ):
        axis.loglog(many, values, color=colour, marker=marker, markersize=3, label=name)
    labelled(axis, _WORKERS, "seconds an iteration")
    rows = f"{n_rows:,}".replace(",", "\N{THIN SPACE}")
    axis.set_title(f"projected: {rows} rows, m = 200")
    axis.legend()
