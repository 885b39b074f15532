"""Tables: seconds to prepare 50,000 × 50 cells, rows predicted a second, memory of Parquet files."""

import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import tables
from benchmarks.context import Context
from benchmarks.registry import benchmark
from benchmarks.workloads.footprint import WORKERS
from cavity import SEPClassifier, TableClassifier
from cavity.data.effect_counts import TableSummariser
from cavity.data.effect_learning import learn_effects
from cavity.data.encoded import encoded_source
from cavity.data.preprocess import TablePreprocessor
from cavity.data.sampling import hashed_rows
from cavity.data.table import open_table
from cavity.estimators.table_prediction import encoded_chunks

ROWS, COLUMNS = 50_000, 50
FILE_ROWS, FEW_COLUMNS = 500_000, 8

_FIT = """
import json, sys, time, warnings
sys.path.insert(0, sys.argv[1])
from protocol import peak_memory
from cavity import SEPClassifier, TableClassifier
warnings.simplefilter("ignore")
fixed = {"residual_scale": 1.0, "trace_penalty": 1.0, "kernel_name": "matern32"}
inside = SEPClassifier(
    n_inducing=50, scaling="robust", batch_size=1000, max_epochs=0.1, random_state=0, config=fixed
)
begin = time.perf_counter()
model = TableClassifier(inside, target_encoding=sys.argv[3] == "effects").fit(sys.argv[2], "late")
print(json.dumps({"seconds": time.perf_counter() - begin, "peak": peak_memory()}))
"""


def ordinary(n: int = ROWS, seed: int = 0, n_columns: int = COLUMNS) -> pd.DataFrame:
    """Measurements, whole numbers, codes, words and dates, with gaps, and a target."""
    rng = np.random.default_rng(seed)
    columns: dict[str, object] = {}
    for j in range(n_columns):
        if j % 5 < 2:
            values = rng.standard_normal(n)
            values[rng.random(n) < 0.02] = np.nan
        elif j % 5 == 2:
            values = rng.integers(0, 10 ** (1 + j % 4), n)
        elif j % 5 == 3:
            values = rng.choice([f"word {k}" for k in range(5 * 4 ** (j // 10))], n).astype(object)
            values[rng.random(n) < 0.02] = None
        else:
            values = rng.integers(0, 60, n)
        columns[f"c{j}"] = values
    start = np.datetime64("2019-01-01T00:00", "m")
    columns["c0"] = start + rng.integers(0, 1_000_000, n).astype("timedelta64[m]")
    frame = pd.DataFrame(columns)
    score = np.sin(7.0 * frame["c4"]) + (frame["c2"] > 500) + rng.logistic(size=n)
    return frame.assign(late=score > 0)


def dirty(n: int = ROWS, seed: int = 0) -> pd.DataFrame:
    """Text that holds numbers with signs and gaps, dates, truth values and words, and a target."""
    rng = np.random.default_rng(seed)
    gaps = np.array(["n/a", "-", "?", ""])
    columns: dict[str, object] = {}
    for j in range(COLUMNS):
        if j % 5 == 0:
            words = [f"{x:,.2f}" for x in rng.lognormal(6, 2, n)]
        elif j % 5 == 1:
            words = [f"$ {x:.2f}" for x in rng.lognormal(3, 1, n)]
        elif j % 5 == 2:
            days = np.datetime64("2015-01-01") + rng.integers(0, 3_000, n)
            words = pd.Series(days).dt.strftime("%d.%m.%Y").tolist()
        elif j % 5 == 3:
            words = [f"{x:.0f} %" for x in rng.uniform(0, 100, n)]
        else:
            words = rng.choice([f"word {k}" for k in range(5 * 4 ** (j // 10))], n).tolist()
        cells = np.array(words, dtype=object)
        holes = rng.random(n) < 0.02
        cells[holes] = gaps[rng.integers(0, len(gaps), holes.sum())]
        columns[f"c{j}"] = cells
    frame = pd.DataFrame(columns)
    return frame.assign(late=rng.random(n) < 0.4)


def prepared(frame: pd.DataFrame, effects: bool) -> None:
    """What a fit does before training: learn the columns, the effects, and encode all rows."""
    table, preprocessor = open_table(frame), TablePreprocessor()
    scan = preprocessor.learn(table, "late")
    assert scan is not None
    classes, found = scan.finish(), None
    if effects:
        table = preprocessor.read_once(table)
        found = learn_effects(
            TableSummariser(table, preprocessor.typed, classes),
            preprocessor.encoders_,
            len(frame),
            np.ones(2),
            ["False", "True"],
            hashed_rows(len(frame), len(frame) // 20),
        )
    with encoded_source(table, preprocessor, classes, effects=found):
        pass


def measured(work: Callable[[], None], rounds: int) -> dict[str, float]:
    """The best of some rounds: seconds, and seconds of the processor."""
    best = {"seconds": np.inf, "processor_seconds": np.inf}
    for _ in range(rounds):
        seconds, used = time.perf_counter(), time.process_time()
        work()
        found = time.perf_counter() - seconds, time.process_time() - used
        best = {name: min(best[name], value) for name, value in zip(best, found, strict=True)}
    return best


def predicting(effects: bool) -> TableClassifier:
    """A model of an ordinary table with 200 inducing points; its fit is short."""
    fixed = {"residual_scale": 1.0, "trace_penalty": 1.0, "kernel_name": "matern32"}
    inside = SEPClassifier(n_inducing=200, scaling="robust", max_epochs=1, random_state=0, config=fixed)
    model = TableClassifier(inside, target_encoding=effects)
    return model.fit(ordinary(20_000, 0, FEW_COLUMNS), "late")


def predicted(model: TableClassifier, rows: pd.DataFrame | Path, n: int) -> dict[str, float]:
    """Rows a second of predictions for n rows of a data frame or file."""
    encoding = measured(partial(model.transform, rows), 3)
    whole = measured(partial(model.predict_proba, rows), 3)
    return {
        "rows_per_second": n / whole["seconds"],
        "encoded_rows_per_second": n / encoding["seconds"],
        "processor_microseconds_a_row": 1e6 * whole["processor_seconds"] / n,
        "features": float(model.preprocessor_.n_features_out_),
    }


def encoded(preprocessor: TablePreprocessor, rows: pd.DataFrame | Path) -> None:
    """What a prediction does before the classifier: read the rows, look for new values, encode."""
    for _ in encoded_chunks(preprocessor, open_table(rows), []):
        pass


def sources(frame: pd.DataFrame, folder: Path) -> dict[str, pd.DataFrame | Path]:
    """The rows as a data frame, and as files in a folder."""
    csv, parquet = folder / "rows.csv", folder / "rows.parquet"
    frame.to_csv(csv, index=False)
    frame.to_parquet(parquet, index=False)
    return {"data frame": frame, "CSV file": csv, "Parquet file": parquet}


def write_folder(folder: Path, n_rows: int) -> None:
    """A folder of Parquet files, written one after the other: numbers, codes, words, dates."""
    for number in range(n_rows // FILE_ROWS):
        frame = ordinary(FILE_ROWS, number, FEW_COLUMNS)
        pq.write_table(
            pa.Table.from_pandas(frame, preserve_index=False), folder / f"{number:03d}.parquet"
        )


def fitted(n_rows: int, what: str) -> dict[str, float]:
    """Memory and seconds of a short fit to a folder of Parquet files, in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="cavity-benchmark-") as name:
        write_folder(Path(name), n_rows)
        command = [sys.executable, "-c", _FIT, str(WORKERS), name, what]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    usage = json.loads(done.stdout)
    return {"rows": n_rows, "seconds": usage["seconds"], "peak_megabytes": usage["peak"] / 1e6}


@benchmark(
    "table-preparation",
    "50,000 × 50 cells prepared; prediction of a table; memory of 1 to 10 million rows",
    table=tables.notes,
)
def run(context: Context) -> None:
    """Columns alone, dirty text and value effects; rows a second; the peak at several sizes."""
    sizes = (1,) if context.quick else (1, 2, 10)
    context.expect(4 + 3 + 6 + 2 * len(sizes))
    rounds, n = (1, 50_000) if context.quick else (3, 400_000)
    with warnings.catch_warnings(), tempfile.TemporaryDirectory(prefix="cavity-benchmark-") as name:
        warnings.simplefilter("ignore")
        folder = Path(name)
        frames = {"ordinary": ordinary(), "dirty": dirty()}
        for kind, frame in frames.items():
            context.note(kind, partial(measured, partial(prepared, frame, False), rounds))
            work = partial(prepared, frame, True)
            context.note(f"{kind}, with effects", partial(measured, work, rounds))
        new = frames["dirty"].drop(columns="late")
        preprocessor = TablePreprocessor().fit(new)
        for place, rows in sources(new, folder).items():
            work = partial(encoded, preprocessor, rows)
            context.note(f"dirty, new rows of a {place}", partial(measured, work, rounds))
        new = ordinary(n, 1, FEW_COLUMNS).drop(columns="late")
        for effects in (False, True):
            model = predicting(effects)
            for place, rows in sources(new, folder).items():
                label = f"prediction of a {place}{', with effects' if effects else ''}"
                context.note(label, partial(predicted, model, rows, n))
    for millions in sizes:
        for what in ("columns", "effects"):
            context.note(f"{millions} million rows, {what}", partial(fitted, 1_000_000 * millions, what))
