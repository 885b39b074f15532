import numpy as np
import pandas
import pytest

from cavity.report.tables import as_words, cells_of_features, cells_of_frame


def test_columns_come_in_the_order_of_the_features_made_of_them():
    frame = pandas.DataFrame({"day": ["2024-01-01"], "day_of": [1], "hour": [3], "unused": [0]})
    names = ["day: sin", "day: cos", "day_of", "hour"]
    cells = cells_of_frame(frame, names, np.array([3, 2, 0, 1]), most=3)
    assert cells.columns == ["hour", "day_of", "day"]
    assert cells.rows == [["3", "1", "2024-01-01"]]
    assert cells.n_columns == 4


def test_features_are_numbers():
    cells = cells_of_features(np.array([[1.0, 2.5, 1e9]]), ["a", "b", "c"], np.array([2, 1, 0]), most=2)
    assert (cells.columns, cells.rows) == (["c", "b"], [["1.00e+09", "2.5"]])


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.nan, ""),
        (pandas.NaT, ""),
        (pandas.Timestamp("2024-02-03"), "2024-02-03"),
        (np.int64(12_345), "12,345"),
        (True, "True"),
    ],
)
def test_cells_in_words(value, words):
    assert as_words(value) == words
