"""The scaling study as a figure: speed-up as in the paper's Figure 3 (right), and the projection."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks.scaling_model import Costs, iteration

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#666666"  # Okabe and Ito


def draw(
    path: Path,
    mnist: tuple[int, Costs],
    measured: Mapping[int, float],
    large: tuple[int, Costs],
    workers: tuple[int, ...],
    many: tuple[int, ...],
) -> None:
    """Write the figure; `measured` are seconds an iteration by workers."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    n_rows, costs = mnist
    one = iteration(n_rows, 1, costs).seconds
    left.plot(workers, workers, color=GREY, linestyle=":", label="ideal")
    left.plot(
        workers,
        [one / iteration(n_rows, k, costs).seconds for k in workers],
        color=BLUE,
        marker="o",
        label="simulated from measured costs",
    )
    left.plot(
        list(measured),
        [measured[1] / seconds for seconds in measured.values()],
        color=ORANGE,
        marker="s",
        linestyle="none",
        label="measured",
    )
    left.set(xlabel="workers (one core each)", ylabel="speed-up over one worker")
    left.set_title("MNIST odd/even, m = 200, batch")
    left.legend()
    rows, costs = large
    parts = [iteration(rows, k, costs) for k in many]
    for values, colour, marker, name in (
        ([p.seconds for p in parts], BLUE, "o", "iteration"),
        ([p.compute for p in parts], GREEN, "^", "sweep of the rows"),
        ([p.communication for p in parts], ORANGE, "s", "broadcast, reduction, scheduler"),
    ):
        right.loglog(many, values, color=colour, marker=marker, label=name)
    right.set(xlabel="workers (one core each)", ylabel="seconds an iteration")
    right.set_title(f"projected: {rows:,} rows, m = 200".replace(",", "\N{THIN SPACE}"))
    right.legend()
    figure.savefig(path, dpi=150)
    plt.close(figure)
