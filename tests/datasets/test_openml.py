"""ARFF as OpenML writes it."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from cavity import DatasetError
from cavity.datasets.openml import read_arff

TEXT = """% a comment
@RELATION 'some thing'

@ATTRIBUTE age REAL
@attribute 'work class' {Private,'Self emp, other',?}
@attribute "n" integer
@attribute class\t{ <=50K, >50K}

@DATA
39.5, Private,1,<=50K
% another
?,'Self emp, other',  2 ,>50K

1e3,?,0, <=50K
"""


def write(tmp_path, text):
    path = tmp_path / "a.arff"
    path.write_text(text, encoding="utf-8")
    return path


def test_numbers_categories_quotes_and_gaps(tmp_path):
    columns = read_arff(write(tmp_path, TEXT))
    assert list(columns) == ["age", "work class", "n", "class"]
    assert_array_equal(columns["age"], [39.5, np.nan, 1000])
    assert_array_equal(columns["work class"], ["Private", "Self emp, other", "?"])
    assert_array_equal(columns["n"], [1, 2, 0])
    assert_array_equal(columns["class"], ["<=50K", ">50K", "<=50K"])


def test_more_rows_than_a_chunk(tmp_path):
    rows = "\n".join(f"{i},{'ab'[i % 2]}" for i in range(4_500))
    columns = read_arff(write(tmp_path, f"@attribute x numeric\n@attribute y {{a,b}}\n@data\n{rows}"))
    assert_array_equal(columns["x"], np.arange(4_500))
    assert_array_equal(columns["y"], np.array(["a", "b"])[np.arange(4_500) % 2])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<html>not found</html>", "no @data"),
        ("@attribute x numeric\n@data\n", "has no rows"),
        ("@attribute x numeric\n@data\n1\n1,2\n", "not a readable ARFF"),
        ("@attribute x numeric\n@data\none\n", "not a readable ARFF"),
        ("@attribute x\n@data\n1\n", "unreadable line '@attribute x'"),
    ],
)
def test_what_cannot_be_read(tmp_path, text, message):
    with pytest.raises(DatasetError, match=message):
        read_arff(write(tmp_path, text))
