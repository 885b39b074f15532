"""Training from a Parquet folder: resident memory, time a row, growth with the number of rows."""

import json
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import tables
from benchmarks.context import Context
from benchmarks.registry import benchmark
from benchmarks.workloads.footprint import WORKERS

FILE_ROWS, DIMENSIONS, INDUCING_POINTS = 500_000, 8, 100

_FIT = """
import json, sys, time, warnings
sys.path.insert(0, sys.argv[1])
from protocol import peak_memory
from cavity import SEPClassifier
warnings.simplefilter("ignore")
model = SEPClassifier(n_inducing=M, batch_size=1000, max_epochs=1, random_state=0)
begin = time.perf_counter()
model.fit(sys.argv[2], "y")
history = model.history_
epoch = (history[-1].seconds - history[0].seconds) / (history[-1].epochs - history[0].epochs)
print(json.dumps({"seconds": time.perf_counter() - begin, "epoch": epoch, "peak": peak_memory()}))
"""


def write_folder(folder: Path, n_rows: int) -> None:
    """A folder of Parquet files with n_rows rows of 8 float32 features and a noisy label."""
    for number in range(n_rows // FILE_ROWS):
        rng = np.random.default_rng(number)
        X = rng.standard_normal((FILE_ROWS, DIMENSIONS)).astype(np.float32)
        y = (np.sin(2 * X[:, 0]) + X[:, 1] + rng.standard_normal(FILE_ROWS) > 0).astype(np.int8)
        columns = {f"x{k}": X[:, k] for k in range(DIMENSIONS)} | {"y": y}
        pq.write_table(pa.table(columns), folder / f"part-{number:03d}.parquet")


@benchmark(
    "out-of-core",
    "a Parquet folder of 1, 2, 4 and 10 million rows: memory and seconds an epoch",
    table=tables.notes,
)
def run(context: Context) -> None:
    """One epoch and the final sweeps at each size, in a process of its own."""
    sizes = (1, 2) if context.quick else (1, 2, 4, 10)
    context.expect(len(sizes))
    for millions in sizes:
        context.note(f"{millions} million rows", partial(_fit, 1_000_000 * millions))


def _fit(n_rows: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="cavity-benchmark-") as name:
        write_folder(Path(name), n_rows)
        code = _FIT.replace("=M,", f"={INDUCING_POINTS},")
        command = [sys.executable, "-c", code, str(WORKERS), name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    usage = json.loads(done.stdout)
    return {
        "rows": n_rows,
        "microseconds_a_row": 1e6 * usage["epoch"] / n_rows,
        "fit_seconds": usage["seconds"],
        "peak_megabytes": usage["peak"] / 1e6,
    }
