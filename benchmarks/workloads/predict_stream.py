"""`cavity predict` on Parquet files of 1 and 4 million rows: rows a second, memory; `cavity --help`."""

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import tables
from benchmarks.context import Context
from benchmarks.registry import benchmark
from benchmarks.workloads.scale import DIMENSIONS, write_folder
from cavity import SEPClassifier
from cavity.estimators.table import TableClassifier

INDUCING_POINTS, TRAINING_ROWS = 200, 20_000
_COMMAND = [sys.executable, "-m", "cavity"]


def saved_model(path: Path) -> None:
    """Save a model of float32 columns with 200 inducing points; its fit is short."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((TRAINING_ROWS, DIMENSIONS)).astype(np.float32)
    y = np.sin(2 * X[:, 0]) + X[:, 1] + rng.standard_normal(TRAINING_ROWS) > 0
    classifier = SEPClassifier(n_inducing=INDUCING_POINTS, max_epochs=2, random_state=0)
    table = {f"x{k}": X[:, k] for k in range(DIMENSIONS)} | {"y": y.astype(np.int8)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        TableClassifier(classifier).fit(table, "y").save(path)


def predicted(model: Path, data: Path, output: Path) -> dict[str, float]:
    """Run the command; rows a second by its own clock, seconds in all, bytes at the peak."""
    begin = time.perf_counter()
    command = [*_COMMAND, "--quiet", "predict", str(model), str(data), "-o", str(output), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        answer = json.loads(process.stdout.read())
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return {
        "rows": answer["rows"],
        "rows_per_second": answer["rows_per_second"],
        "seconds": time.perf_counter() - begin,
        "peak": 1024 * usage.ru_maxrss,
    }


def help_seconds() -> float:
    """Best of five."""
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        subprocess.run([*_COMMAND, "--help"], check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - begin)
    return min(times)


@benchmark(
    "predict-stream",
    "`cavity predict` on 1 and 4 million rows: rows/s and memory; `cavity --help`",
    table=tables.notes,
    minutes=1,
)
def run(context: Context) -> None:
    """Parquet in, Parquet out, m=200 and d=8, each size in a process of its own."""
    sizes = (1, 2) if context.quick else (1, 4)
    context.expect(1 + len(sizes))
    context.note("help", lambda: {"seconds": help_seconds()})
    for millions in sizes:
        context.note(f"{millions} million rows", partial(_measured, 1_000_000 * millions))


def _measured(n_rows: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="cavity-benchmark-") as name:
        folder = Path(name)
        saved_model(folder / "model.cavity")
        (folder / "rows").mkdir()
        write_folder(folder / "rows", n_rows)
        return predicted(folder / "model.cavity", folder / "rows", folder / "answer.parquet")
