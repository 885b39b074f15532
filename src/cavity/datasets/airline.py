"""The flights of the paper: all of January to April 2008 in the USA, with eight features."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils import Bunch

from cavity.datasets.download import Checksum, download_file, download_json, in_cache
from cavity.errors import DatasetError
from cavity.typing import AnyArray, Array, JsonObject

if TYPE_CHECKING:
    import pandas

API = "https://dataverse.harvard.edu/api"
_SET = "doi:10.7910/DVN/HG7NV7"
_FIRST_DAY = 13879
"""2008-01-01 in days since 1970-01-01."""
_COLUMNS = {
    "Distance": "distance_miles",
    "AirTime": "air_time_min",
    "DepTime": "dep_time_min",
    "ArrTime": "arr_time_min",
    "DayOfWeek": "day_of_week",
    "DayofMonth": "day_of_month",
    "Month": "month",
}
"""Columns of the table of flights, and the names of the features made from them."""
FEATURES = ("plane_age_years", *_COLUMNS.values())


def read() -> Bunch:
    """Read and join the two tables of the 2009 Data Expo; download them first if necessary."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError("reading the flights needs pandas: pip install 'cavity[cli]'") from error
    flights_path, planes_path = _files("2008.csv.bz2", "plane-data.csv")
    wanted = [*_COLUMNS, "TailNum", "ArrDelay"]
    chunks = pandas.read_csv(flights_path, usecols=wanted, chunksize=500_000)
    flights = pandas.concat([chunk[chunk["Month"] <= 4] for chunk in chunks])
    bunch = from_tables(flights, pandas.read_csv(planes_path, usecols=["tailnum", "issue_date"]))
    bunch.origin = f"Data Expo 2009, {_SET}: 2008.csv.bz2 and plane-data.csv"
    return bunch


def from_tables(flights: pandas.DataFrame, planes: pandas.DataFrame) -> Bunch:
    """Compute the features of all flights with known times and, if they name a plane, a known plane.

    The age of a plane counts from the issue date of its registration; this gives the paper's number of
    flights. The two flights without a tail number get the median age.
    """
    import pandas

    numbers = np.column_stack([np.asarray(flights[name], dtype=np.float64) for name in _COLUMNS])
    delay = np.asarray(flights["ArrDelay"], dtype=np.float64)
    dates = pandas.to_datetime(planes["issue_date"], format="%m/%d/%Y", errors="coerce")
    issued = dict(zip(planes["tailnum"], (dates - pandas.Timestamp(0)).dt.days, strict=True))
    age = (_FIRST_DAY - np.asarray(flights["TailNum"].map(issued), dtype=np.float64)) / 365.25
    known = np.isfinite(numbers).all(axis=1) & np.isfinite(delay)
    kept = known & (np.isfinite(age) | np.asarray(flights["TailNum"].isna()))
    X = with_age(numbers[kept], age[kept])
    for name in ("dep_time_min", "arr_time_min"):
        j = FEATURES.index(name)
        X[:, j] = X[:, j] // 100 * 60 + X[:, j] % 100  # hhmm
    return Bunch(data=X, target=(delay[kept] > 0).astype(np.int8), feature_names=list(FEATURES))


def with_age(numbers: Array, age: Array) -> Array:
    """Join the age [n], the median where it is NaN, and the other features [n, 7] in float32."""
    filled = np.where(np.isnan(age), np.nanmedian(age), age)
    return np.column_stack([filled, numbers]).astype(np.float32)


def from_arrays(arrays: Mapping[str, AnyArray]) -> Bunch:
    """Make the same features from the arrays of `airline_2008.npz`."""
    known = arrays["issue_days"] >= 0
    X = np.concatenate([arrays["X"][known], arrays["X_extra"]])
    y = np.concatenate([arrays["y"][known], arrays["y_extra"]])
    issued = np.concatenate([arrays["issue_days"][known], arrays["issue_days_extra"]]).astype(float)
    age = np.where(issued >= 0, (_FIRST_DAY - issued) / 365.25, np.nan)
    return Bunch(
        data=with_age(X[:, 1:], age), target=(y > 0).astype(np.int8), feature_names=list(FEATURES)
    )


def _files(*names: str) -> list[Path]:
    cached = [in_cache(f"airline/{name}") for name in names]
    if all(path.exists() for path in cached):
        return cached
    listing = download_json(f"{API}/datasets/:persistentId/?persistentId={_SET}")
    return [_file(listing, name) for name in names]


def _file(listing: JsonObject, name: str) -> Path:
    """Download a file and check it by the md5 of the archive's listing."""
    try:
        files = [entry["dataFile"] for entry in listing["data"]["latestVersion"]["files"]]
        # The archive may have converted a table to another format; it then keeps the original name too.
        entry = next(f for f in files if name in (f.get("filename"), f.get("originalFileName")))
        number, md5 = int(entry["id"]), str(entry["md5"])
        query = "?format=original" if entry.get("originalFileName") else ""
    except (KeyError, TypeError, StopIteration, ValueError) as error:
        raise DatasetError(f"{API} did not list {name} among the files of {_SET}") from error
    # The md5 of a converted table is not that of the original.
    checksum = None if query else Checksum("md5", md5)
    return download_file(f"{API}/access/datafile/{number}{query}", f"airline/{name}", checksum)
