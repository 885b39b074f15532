"""Size, colours and fonts of all figures, and how they are saved.

Colours are those of Okabe and Ito, which stay apart for colour-blind readers; a method has the same
colour in every figure. Sizes are those of a printed page: 3.3 in is a column, 7 in both of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.records import Repetition

COLUMN, PAGE = 3.3, 7.0
SVG_DPI = 72  # of the few parts that are pictures
COLOURS = 128
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILION = "#F0E442", "#0072B2", "#D55E00"
METHOD_COLOURS = {"SEP": BLUE, "SVI": VERMILION, "GFITC": GREEN}

_STYLE: dict[str, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "lines.linewidth": 1.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "svg.hashsalt": "cavity",
    "svg.fonttype": "none",
}


@contextmanager
def figure(
    stem: Path, width: float, height: float, dpi: int = 200, **grid: Any
) -> Iterator[tuple[Any, list[Path]]]:
    """A figure and its axes, in a context that saves it as PNG and SVG.

    `with figure(stem, COLUMN, 2.4, ncols=2) as (axes, files): ...`; axes is an array [nrows, ncols].
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.style import context
    except ImportError as error:
        raise ImportError("figures need matplotlib: pip install 'cavity[plot]'") from error
    files: list[Path] = []
    with context(_STYLE):
        canvas = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(canvas)
        yield canvas.subplots(squeeze=False, **grid), files
        stem.parent.mkdir(parents=True, exist_ok=True)
        png, svg = (stem.with_name(stem.name + suffix) for suffix in (".png", ".svg"))
        canvas.savefig(png, dpi=dpi)
        canvas.savefig(svg, dpi=SVG_DPI, metadata={"Date": None})
        _few_colours(png)
        files += [png, svg]


def _few_colours(png: Path) -> None:
    """Save the PNG with a palette, which looks the same and makes the file a third as large."""
    from PIL import Image

    with Image.open(png) as image:
        reduced = image.convert("RGB").quantize(COLOURS)
    reduced.save(png, optimize=True)


def mean_curve(
    repetitions: Sequence[Repetition], measure: str, points: int = 60
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Seconds [k], mean [k] and standard error [k] of a measure over the curves of repetitions.

    At each moment a repetition counts with its last evaluation at or before it, and after its end with
    its final one; the mean begins when all of them have been evaluated once.
    """
    curves = [np.array([[p["seconds"], p[measure]] for p in r.curve]) for r in repetitions if r.curve]
    if not curves:
        return np.zeros(0), np.zeros(0), np.zeros(0)
    first = max(curve[0, 0] for curve in curves)
    last = max(curve[-1, 0] for curve in curves)
    if len(curves) == 1:
        return curves[0][:, 0], curves[0][:, 1], np.zeros(len(curves[0]))
    seconds = np.geomspace(max(first, 1e-3), max(last, first, 1e-3), points)
    values = np.array(
        [c[np.maximum(np.searchsorted(c[:, 0], seconds, side="right") - 1, 0), 1] for c in curves]
    )
    error = values.std(axis=0, ddof=1) / np.sqrt(len(curves))
    return seconds, values.mean(axis=0), error


def time_axis(axis: Any) -> None:
    """Training seconds on a log scale, written as numbers: a second digit only where there is room."""
    axis.set_xscale("log")
    low, high = axis.get_xlim()
    plain_ticks(axis.xaxis, decades=float(np.log10(high / low)))
    axis.set_xlabel("training time (s)")


def plain_ticks(axis: Any, decades: float) -> None:
    """Numbers, not powers of ten: 1, 2, 5 of every decade if the axis has at most three of them."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if decades <= 3 else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def labelled(axis: Any, x: str, y: str, title: str | None = None) -> None:
    """Label the axes."""
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    if title is not None:
        axis.set_title(title)
