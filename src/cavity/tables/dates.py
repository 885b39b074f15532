"""Numbers from points in time: when it was, and where in the year, the week and the day."""

from __future__ import annotations

import numpy as np

from cavity.typing import Array, IntArray

_DAY = 86_400_000_000
_YEAR = 365.2425
_EPOCH_WEEKDAY = 3  # 1 January 1970 was a Thursday, and weeks begin on Monday

PARTS = ("days", "time of year", "day of week", "time of day")
"""The parts of a point in time; the first is a straight line, the others go round."""


def parts_of(microseconds: IntArray) -> Array:
    """Days since 1970, and the shares of year, week and day that have passed: [t, 4].

    >>> parts_of(np.array([86_400_000_000 * 4 + 43_200_000_000]))[0].round(3).tolist()
    [4.5, 0.012, 0.0, 0.5]
    """
    days = microseconds // _DAY
    time_of_day = (microseconds % _DAY) / _DAY
    dates = days.astype("datetime64[D]")
    first = dates.astype("datetime64[Y]").astype("datetime64[D]")
    time_of_year = ((dates - first).astype(np.float64) + time_of_day) / _YEAR
    week = (days + _EPOCH_WEEKDAY) % 7 / 7.0
    return np.column_stack([days + time_of_day, time_of_year, week, time_of_day])


def circle(share: Array) -> tuple[Array, Array]:
    """A share of a round as a point on a circle, so that its end is next to its beginning."""
    return np.sin(2 * np.pi * share), np.cos(2 * np.pi * share)
