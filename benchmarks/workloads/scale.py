"""Seconds and memory of a fit from Parquet files, against rows, inducing points, classes and columns.

Every fit is one epoch of minibatches of 1,000 rows and the final sweeps. It has a process of its own and
so a peak memory of its own.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.context import Context
from benchmarks.drawing import BLUE, PAGE, VERMILION, figure, labelled
from benchmarks.records import Repetition
from benchmarks.registry import benchmark
from benchmarks.tables import MISSING, markdown
from benchmarks.workloads.footprint import WORKERS

FILE_ROWS, DIMENSIONS = 500_000, 8
BASE: Mapping[str, int] = {"rows": 100_000, "m": 100, "classes": 2, "columns": DIMENSIONS}
SERIES: Mapping[str, Sequence[int]] = {
    "rows": (1_000, 10_000, 100_000, 1_000_000, 10_000_000),
    "m": (50, 100, 200, 400, 800),
    "classes": (2, 3, 5, 10, 20),
    "columns": (4, 16, 64, 256, 1024),
}
"""What is varied; everything else is as in `BASE`."""
QUICK: Mapping[str, Sequence[int]] = {"rows": (1_000, 5_000), "m": (20, 40), "classes": (2, 3)}
QUICK_BASE: Mapping[str, int] = {**BASE, "rows": 2_000, "m": 20}
NAMES = {"rows": "rows", "m": "inducing points m", "classes": "classes", "columns": "columns"}

_FIT = """
import json, sys, time, warnings
sys.path.insert(0, sys.argv[1])
from protocol import peak_memory
from cavity import SEPClassifier
warnings.simplefilter("ignore")
before = peak_memory()
model = SEPClassifier(n_inducing=int(sys.argv[3]), batch_size=1000, max_epochs=1, random_state=0)
begin = time.perf_counter()
model.fit(sys.argv[2], "y")
seconds = time.perf_counter() - begin
history = model.history_
epochs = history[-1].epochs - history[0].epochs
epoch = (history[-1].seconds - history[0].seconds) / epochs if len(history) > 10 else None
print(json.dumps({"seconds": seconds, "epoch": epoch, "before": before, "peak": peak_memory()}))
"""


def write_folder(folder: Path, n_rows: int, *, classes: int = 2, columns: int = DIMENSIONS) -> None:
    """A folder of Parquet files with n_rows rows of float32 columns and a noisy label."""
    for number, first in enumerate(range(0, n_rows, FILE_ROWS)):
        rng, rows = np.random.default_rng(number), min(FILE_ROWS, n_rows - first)
        X = rng.standard_normal((rows, columns)).astype(np.float32)
        f = np.sin(2 * X[:, 0]) + X[:, 1] + rng.standard_normal(rows)
        y = np.clip((f + 2.0) / 4.0 * classes, 0, classes - 1) if classes > 2 else f > 0
        table = {f"x{k}": X[:, k] for k in range(columns)} | {"y": y.astype(np.int8)}
        pq.write_table(pa.table(table), folder / f"part-{number:03d}.parquet")


def _series(repetitions: Sequence[Repetition]) -> dict[str, list[dict[str, Any]]]:
    """The measurements of each series, in the order of what is varied."""
    series: dict[str, list[dict[str, Any]]] = {}
    for r in repetitions:
        if "varied" in r.extra:
            series.setdefault(r.extra["varied"], []).append(dict(r.extra))
    return {name: sorted(found, key=lambda e: e[name]) for name, found in series.items()}


def table(repetitions: Sequence[Repetition]) -> str:
    """One table a series: seconds, microseconds a row of an epoch, memory."""
    parts = []
    for name, found in _series(repetitions).items():
        rows = [
            [
                f"{e[name]:,}",
                f"{e['fit_seconds']:.2f}",
                MISSING if e["microseconds_a_row"] is None else f"{e['microseconds_a_row']:.2f}",
                f"{e['peak_megabytes']:.0f}",
                f"{e['extra_megabytes']:.0f}",
            ]
            for e in found
        ]
        header = [NAMES[name], "s a fit", "µs a row and epoch", "peak MB", "of it by the fit"]
        others = ", ".join(f"{NAMES[k]} {found[0][k]:,}" for k in BASE if k != name)
        parts.append(f"{markdown(header, rows)}\n\nwith {others}")
    return "\n\n".join(parts)


def draw(repetitions: Sequence[Repetition], stem: Path) -> list[Path]:
    """Seconds and memory against each quantity, on log axes."""
    series = _series(repetitions)
    with figure(stem, PAGE, 2.4, ncols=len(SERIES)) as (axes, files):
        for axis, name in zip(axes[0], SERIES, strict=True):
            found = series.get(name, [])
            at = [e[name] for e in found]
            axis.loglog(at, [e["fit_seconds"] for e in found], "o-", color=BLUE, markersize=3)
            labelled(axis, NAMES[name], "seconds a fit" if name == "rows" else "")
            twin = axis.twinx()
            twin.loglog(at, [e["extra_megabytes"] for e in found], "s--", color=VERMILION, markersize=3)
            twin.set_ylabel("MB (dashed)" if name == "columns" else "")
    return files


@benchmark(
    "scale",
    "one epoch from Parquet: seconds and memory by rows (10³ to 10⁷), m, classes and columns",
    table=table,
    draw=draw,
    minutes=12,
)
def run(context: Context) -> None:
    """Each fit of every series in a process of its own."""
    series, base = (QUICK, QUICK_BASE) if context.quick else (SERIES, BASE)
    context.expect(sum(len(values) for values in series.values()))
    for name, values in series.items():
        for value in values:
            at = {**base, name: value}
            context.note(f"{name} {value}", partial(_fit, name, at))


def _fit(varied: str, at: Mapping[str, int]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="cavity-benchmark-") as folder:
        write_folder(Path(folder), at["rows"], classes=at["classes"], columns=at["columns"])
        command = [sys.executable, "-c", _FIT, str(WORKERS), folder, str(at["m"])]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    usage = json.loads(done.stdout)
    return {
        "varied": varied,
        **at,
        "microseconds_a_row": usage["epoch"] and 1e6 * usage["epoch"] / at["rows"],
        "fit_seconds": usage["seconds"],
        "peak_megabytes": usage["peak"] / 1e6,
        "extra_megabytes": (usage["peak"] - usage["before"]) / 1e6,
    }
