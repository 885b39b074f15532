"""Data frames of every kind as Arrow tables, and what is none."""

import numpy as np
import pandas as pd
import pytest

from cavity.data.frames import as_arrow
from cavity.data.preprocess import TablePreprocessor
from cavity.errors import SourceError

AGES = pd.Series([3.0, 41.0, 17.0, np.nan, 64.0, 80.0] * 5)


def test_rows_are_a_table_of_all_their_names():
    rows = [{"age": 31, "name": "Ada"}, {"name": "Bob", "late": True}, {}]
    wanted = {"age": [31, None, None], "name": ["Ada", "Bob", None], "late": [None, True, None]}
    assert as_arrow(rows).to_pydict() == as_arrow(tuple(rows)).to_pydict() == wanted


@pytest.mark.parametrize(
    "bins",
    [
        lambda cut: cut,
        lambda cut: cut.astype(object),
        lambda cut: pd.Series(pd.arrays.IntervalArray(cut)),
        lambda cut: cut.cat.as_unordered(),
    ],
    ids=["categories", "objects", "intervals", "unordered"],
)
def test_intervals_are_words(bins):
    frame = pd.DataFrame({"age": AGES, "group": bins(pd.cut(AGES, [0.5, 20.5, 65.5, 99.5]))})
    words = as_arrow(frame).column("group").to_pylist()
    assert words[:4] == ["(0.5, 20.5]", "(20.5, 65.5]", "(0.5, 20.5]", None]
    names = TablePreprocessor().fit(frame).get_feature_names_out()
    assert "group=(65.5, 99.5]" in names
    assert "group=(missing)" in names


def test_sparse_columns_are_those_of_a_dense_frame():
    frame = pd.DataFrame({"age": AGES, "town": ["Oslo", "Bonn", "Rome"] * 10})
    dense = pd.get_dummies(frame, columns=["town"])
    sparse = pd.get_dummies(frame, columns=["town"], sparse=True)
    sparse["age"] = pd.arrays.SparseArray(sparse["age"])
    assert as_arrow(sparse).equals(as_arrow(dense))


@pytest.mark.parametrize("cells", [[(1, 2), (3, 4)], [b"a", b"b"]])
def test_categories_that_are_no_words_are_left_out(cells):
    frame = pd.DataFrame({"age": AGES, "odd": pd.Categorical(cells * 15)})
    preprocessor = TablePreprocessor().fit(frame)
    assert preprocessor.columns_ == ["age"]
    assert any("'odd' holds dictionary" in note for note in preprocessor.notes_)


def test_a_row_that_is_no_table_is_explained():
    row = {"age": 31.0, "name": "Ada"}
    with pytest.raises(SourceError, match=r"has 31.0 under 'age', which is a cell .* as in \[\{"):
        as_arrow(row)
    with pytest.raises(TypeError, match="a Series is not a table; pass data frames"):
        as_arrow(pd.Series(row))
