"""What people have in the cells of files and frames: odd numbers, dates, text among numbers."""

import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from text_columns import NUMBERS, N, read_column

from cavity.data import cells
from cavity.data.cells import COMMA, POINT
from cavity.data.forms import TextTally, forms_of
from cavity.data.preprocess import TablePreprocessor
from cavity.data.table import open_table

WHOLE = [f"{(7 * i) % 31}" for i in range(N)]
DAYS = pd.Timestamp("2024-01-03") + pd.to_timedelta([(11 * i) % 60 for i in range(N)], "D")


def with_cells(column, *words):
    """A column in which some words stand in for other cells."""
    return [*words, *column[len(words) :]]


def floats(words):
    return [float(word) for word in words]


MISSING = None
CASES = {
    # column of text: (kind, value of each cell, words of its note)
    "one bad cell": (
        with_cells(NUMBERS, "many"),
        "numeric",
        [None, *floats(NUMBERS[1:])],
        "1 other cell (such as 'many') counts as missing",
    ),
    "dashes": (
        with_cells(NUMBERS, "-", "-"),
        "numeric",
        [None] * 2 + floats(NUMBERS[2:]),
        "2 other cells (such as '-') count as missing",
    ),
    "many dashes": (
        ["-"] * 20 + NUMBERS[20:],
        "numeric",
        [None] * 20 + floats(NUMBERS[20:]),
        "20 other cells",
    ),
    "dots": (
        with_cells(NUMBERS, "."),
        "numeric",
        [None, *floats(NUMBERS[1:])],
        "1 other cell (such as '.') counts as missing",
    ),
    "none": (
        with_cells(NUMBERS, "none", "Unknown"),
        "numeric",
        [None] * 2 + floats(NUMBERS[2:]),
        "2 other cells",
    ),
    "two kinds": ([*NUMBERS[:20], *["a", "b"] * 10], "categorical", None, None),
    "codes": (["1", "2", "A", "B"] * 10, "categorical", None, None),
    "thousands": (
        [f"1,{int(w):03}" for w in WHOLE],
        "numeric",
        [1_000 + float(w) for w in WHOLE],
        "'1,000', read as 1000",
    ),
    "thousands and decimals": (
        [f"1,234.{w}" for w in WHOLE],
        "numeric",
        [float(f"1234.{w}") for w in WHOLE],
        "read as 1234",
    ),
    "decimal comma": (
        [w.replace(".", ",") for w in NUMBERS],
        "numeric",
        floats(NUMBERS),
        "'0,5', read as 0.5",
    ),
    "comma and thousands": (
        [f"1.234,{w}" for w in WHOLE],
        "numeric",
        [float(f"1234.{w}") for w in WHOLE],
        "read as 1234",
    ),
    "blanks": (
        [f" 1 {int(w):03}" for w in WHOLE],
        "numeric",
        [1_000 + float(w) for w in WHOLE],
        "read as 1000",
    ),
    "percent": ([f"{w} %" for w in NUMBERS], "numeric", floats(NUMBERS), "'0.5 %', read as 0.5"),
    "dollars": (
        [f"$1,{int(w):03}.50" for w in WHOLE],
        "numeric",
        [1_000.5 + float(w) for w in WHOLE],
        "read as 1000.5",
    ),
    "euros": (
        [f"-{w.replace('.', ',')} €" for w in NUMBERS],
        "numeric",
        [-float(w) for w in NUMBERS],
        "read as -0.5",
    ),
    "infinite": (
        with_cells(NUMBERS, "inf", "1e999"),
        "numeric",
        [np.inf] * 2 + floats(NUMBERS[2:]),
        "an infinite number in 2 cells",
    ),
    "truth values": (["True", "FALSE"] * 20, "boolean", [True, False] * 20, None),
    "ISO days": ([f"{d:%Y-%m-%d}" for d in DAYS], "date", DAYS, None),
    "ISO times": ([f"{d:%Y-%m-%dT%H:%M:%SZ}" for d in DAYS], "date", DAYS, None),
    "days first": (
        [f"{d:%d/%m/%Y}" for d in DAYS],
        "date",
        DAYS,
        "'03/01/2024', read with the day first",
    ),
    "months first": ([f"{d:%m/%d/%Y}" for d in DAYS], "date", DAYS, "read with the month first"),
    "days with points": ([f"{d:%d.%m.%Y %H:%M}" for d in DAYS], "date", DAYS, "the day first"),
    "names of months": ([f"{d:%d %b %Y}" for d in DAYS], "date", DAYS, None),
    "a bad date": (
        with_cells([f"{d:%Y-%m-%d}" for d in DAYS], "soon"),
        "date",
        [pd.NaT, *DAYS[1:]],
        "1 other cell (such as 'soon') counts as missing",
    ),
}


def frames(columns):
    """The same columns as data frames of every library that is installed."""
    yield pd.DataFrame(columns, dtype=object)
    yield pa.table({name: pa.array(words, pa.large_string()) for name, words in columns.items()})
    try:
        import polars
    except ImportError:
        return
    yield polars.DataFrame(columns)


@pytest.mark.parametrize("case", CASES)
def test_a_file_and_a_frame_of_the_same_text_are_read_alike(tmp_path, case):
    words, kind, values, note = CASES[case]
    columns = {"x": words, "other": ["a", "b"] * (N // 2)}
    pd.DataFrame(columns).to_csv(tmp_path / "t.csv", index=False)
    for data in (tmp_path / "t.csv", *frames(columns)):
        found, read, notes = read_column(open_table(data))
        assert found == kind
        if values is not None:
            wanted = pd.Series(values)
            assert (pd.Series(read) == wanted)[wanted.notna()].all()
            assert pd.isna(read).tolist() == wanted.isna().tolist()
        assert any(note in line for line in notes) if note else all("as missing" not in n for n in notes)


def test_the_whole_pass_decides_and_not_its_first_chunk(tmp_path, monkeypatch):
    columns = {"x": ["oops", *NUMBERS[1:]], "late": [*NUMBERS[:20], *["word"] * 20]}
    columns["mixed"] = ["1.5"] * 20 + ["1,5"] * 20
    columns["truth"] = ["1", "0"] * 10 + ["true", "false"] * 10
    columns["comma"] = ["1,234", *["2,5"] * (N - 1)]
    columns["day"] = ["01/02/2024"] * 30 + ["01/31/2024"] * 10
    pd.DataFrame(columns).to_csv(tmp_path / "t.csv", index=False)
    whole = TablePreprocessor().fit(tmp_path / "t.csv")
    monkeypatch.setattr("cavity.data.table.CHUNK_ROWS", 1)
    parts = TablePreprocessor().fit(tmp_path / "t.csv")
    assert parts.encoders_ == whole.encoders_
    assert sorted(parts.notes_) == sorted(whole.notes_)
    assert [e.kind for e in whole.encoders_] == [
        "numeric",
        "categorical",
        "categorical",
        "boolean",
        "numeric",
        "date",
    ]
    assert whole.encoders_[4].decimal == COMMA
    assert not whole.encoders_[5].day_first


def test_where_a_column_is_in_doubt_the_others_tell():
    tallies = {name: TextTally() for name in ("grouped", "point", "when", "us")}
    tallies["grouped"].add(pa.array(["1.234", "2.500", "17"]))
    tallies["when"].add(pa.array(["01/02/2024", "03/04/2024"]))
    assert forms_of(tallies)["grouped"].decimal == POINT
    assert forms_of(tallies, COMMA)["grouped"].decimal == COMMA
    assert forms_of(tallies)["when"].day_first
    tallies["point"].add(pa.array(["0,5", "17,25"]))
    tallies["us"].add(pa.array(["01/31/2024"]))
    assert forms_of(tallies)["grouped"].decimal == COMMA
    assert not forms_of(tallies)["when"].day_first
    note = tallies["when"].notes("when", forms_of(tallies)["when"], is_typed=False)
    assert note == [
        "'when' has dates such as '01/02/2024', read with the month first; no cell tells which"
    ]


@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from([POINT, COMMA]))
def test_numbers_come_back_from_any_writing(number, decimal):
    other = COMMA if decimal == POINT else POINT
    grouped = f"{number:,.3f}".translate(str.maketrans({",": other, ".": decimal}))
    wanted = float(f"{number:.3f}")
    for word in (grouped, f"{grouped} €", f"{grouped}%", f" {grouped} "):
        assert cells.numbers(pa.array([word, "x"]), decimal).to_pylist() == [wanted, None]
    assert cells.numbers(pa.array([repr(number)])).to_pylist() == [number]


@given(st.datetimes(), st.booleans())
def test_dates_come_back_from_any_writing(when, day_first):
    when = when.replace(microsecond=0)
    day, month = (f"{when.day:02}", f"{when.month:02}")
    first = f"{day}/{month}" if day_first else f"{month}/{day}"
    year, clock = f"{when.year:04}", f"{when:%H:%M:%S}"
    words = [
        f"{year}-{month}-{day} {clock}",
        f"{year}/{month}/{day}T{clock}Z",
        f"{first}/{year} {clock}",
    ]
    assert cells.dates(pa.array([*words, "x"]), day_first).to_pylist() == [when] * 3 + [None]


@pytest.mark.parametrize(
    "word", ["2023-02-29", "31/04/2024", "2024-13-01", "2024-01-01 25:00", "0/0/2024"]
)
def test_days_that_the_calendar_lacks_are_no_dates(word):
    assert cells.dates(pa.array([word])).to_pylist() == [None]


def test_new_rows_with_new_words_are_predicted(tmp_path):
    frame = pd.DataFrame(
        {"x": ["1,5", "2,5"] * 20, "d": ["31/01/2024", "01/02/2024"] * 20, "t": ["true", "false"] * 20}
    )
    preprocessor = TablePreprocessor().fit(frame)
    clean = preprocessor.transform({"x": ["1,5", None], "d": ["31/01/2024", None], "t": ["true", None]})
    new = {"x": ["1,5", "?"], "d": ["2024-01-31", "-"], "t": ["TRUE", "n/a"]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (preprocessor.transform(new) == clean).all()
    words = {"x": ["1,5", "1.2.3 km"], "d": ["31.01.2024", "one day"], "t": ["1", "perhaps"]}
    with pytest.warns(UserWarning, match="count as missing") as caught:
        assert (preprocessor.transform(words) == clean).all()
    named = [str(warning.message).rpartition(": ")[2] for warning in caught]
    assert named == ["'1.2.3 km'", "'one day'", "'perhaps'"]
    assert preprocessor.transform(
        {"x": [1.5], "d": pd.to_datetime(["2024-01-31"]), "t": [True]}
    ).tolist() == [clean[0].tolist()]


def test_text_among_numbers_of_a_frame_is_one_bad_cell():
    frame = pd.DataFrame(
        {"x": [1, 2.5, "oops", None, *[3, 5, 4] * 7], "y": ["a", "b", "c", "a", "b"] * 5}
    )
    kind, values, notes = read_column(open_table(frame))
    assert kind == "numeric"
    assert values[:3] == [1.0, 2.5, None]
    assert "1 other cell (such as 'oops')" in " ".join(notes)


def test_hexadecimal_numbers_are_words():
    frame = pd.DataFrame({"address": ["0x13fe", "0X2A", "12"] * 9, "x": np.arange(27.0) % 5})
    assert TablePreprocessor().fit(frame).encoders_[0].levels == ("0X2A", "0x13fe", "12")


@pytest.mark.parametrize(
    ("usual", "odd", "kind"),
    [
        ("12.5", "12,5", "numbers"),
        ("12,25", "12.25", "numbers"),
        ("true", "-", "truth values"),
    ],
)
def test_the_cell_that_is_none_is_named(usual, odd, kind):
    words = [usual, {"true": "false"}.get(usual, usual.replace("12", "3"))]
    frame = pd.DataFrame({"c": [*words * 15, odd], "x": np.arange(31.0) % 5})
    notes = TablePreprocessor().fit(frame).notes_
    assert f"'c' holds {kind}; 1 other cell (such as '{odd}') counts as missing" in notes


def test_infinite_numbers_of_a_frame_are_noted():
    preprocessor = TablePreprocessor().fit({"x": [1.0, np.inf, 3.0]})
    assert preprocessor.notes_ == ["'x' has an infinite number in 1 cell, which counts as missing"]
