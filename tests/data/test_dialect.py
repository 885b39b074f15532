"""Dialects of text files: encoding, separator and decimal sign are found, or set."""

import io

import pandas as pd
import pytest
from text_columns import read_column

from cavity.data import dialect
from cavity.data.table import open_table
from cavity.errors import SourceError

FRAME = pd.DataFrame(
    {"größe": [1.5, 2.25, -3.0], "art": ["Bär", "Öl", "Bär"], "preis": [1_000.5, 2.0, 3.0]}
)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "cp1252", "latin-1"])
@pytest.mark.parametrize(
    ("sep", "decimal"), [(";", ","), ("\t", "."), ("|", ","), (",", "."), (" ", ".")]
)
def test_dialects_are_found(tmp_path, encoding, sep, decimal):
    path = tmp_path / "t.csv"
    FRAME.to_csv(path, index=False, sep=sep, decimal=decimal, encoding=encoding)
    table = open_table(path)
    assert table.columns == list(FRAME)
    kind, values, _ = read_column(table, "größe")
    assert (kind, values) == ("numeric", FRAME["größe"].tolist())
    assert read_column(table, "preis")[1] == FRAME["preis"].tolist()
    assert next(table.chunks(["art"])).column(0).to_pylist() == FRAME["art"].tolist()


def test_dialects_may_be_set(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes("a:b:c\n1.234:-999:×\n2.500:7:÷\n3.000:8:÷\n".encode("cp1252"))
    table = open_table(path, sep=":", decimal=",", encoding="latin-1", na_values=["-999"])
    assert read_column(table, "a")[1] == [1234.0, 2500.0, 3000.0]
    assert read_column(table, "b")[1] == [None, 7.0, 8.0]
    assert next(table.chunks(["c"])).column(0).to_pylist() == ["×", "÷", "÷"]


def test_what_is_set_holds_for_the_pieces_of_a_table(tmp_path):
    (tmp_path / "t.csv").write_text("a:b\n1:x\n")
    [piece] = open_table(tmp_path / "t.csv", sep=":", na_values=["1"]).pieces()
    assert next(piece.chunks(["b", "a"])).to_pydict() == {"b": ["x"], "a": [None]}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sep": ";;"}, "a separator is one character"),
        ({"decimal": "x"}, "the decimal sign is '.' or ','"),
        ({"sep": ",", "decimal": ","}, "sep and decimal are both ','"),
        ({"encoding": "utf-9"}, "encoding='utf-9' is unknown"),
    ],
)
def test_dialects_that_cannot_be(tmp_path, options, words):
    FRAME.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(SourceError, match=words):
        open_table(tmp_path / "t.csv", **options)


def test_dialects_are_of_text_files(tmp_path):
    FRAME.to_parquet(tmp_path / "t.parquet")
    for data in (FRAME, tmp_path / "t.parquet", open_table(FRAME)):
        with pytest.raises(SourceError, match="sep=';' is for text files"):
            open_table(data, sep=";")


@pytest.mark.parametrize(
    ("text", "sep"),
    [
        ('a,"b;c;d"\n1,2\n', ","),
        ("a;b\n1,5;2,5\n", ";"),
        ("when;x\n1,2;3\n4,5;6\n", ";"),
        ("my name\n1\n2\n", ","),
        ('a,b\n"x,y,z",1\n"u\nv",2\n', ","),
    ],
)
def test_separators_do_not_count_inside_of_cells(text, sep):
    assert dialect._separator(text, ",") == sep


def test_a_text_file_in_memory_of_another_system(tmp_path):
    text = io.BytesIO()
    FRAME.to_csv(text, index=False, sep=";", decimal=",", encoding="utf-16")
    (tmp_path / "t.txt").write_bytes(text.getvalue())
    assert open_table(tmp_path / "t.txt").columns == list(FRAME)
