"""What people have in files and frames: odd cells, dialects, dates, labels, index columns, leaks."""

import io
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cavity.data import cells, dialect
from cavity.data.cells import COMMA, POINT
from cavity.data.forms import TextTally, forms_of
from cavity.data.labels import TableLabelScan
from cavity.data.leaks import LabelledSample
from cavity.data.preprocess import TablePreprocessor
from cavity.data.scans import DistinctSample
from cavity.data.table import open_table
from cavity.errors import SourceError

N = 40
NUMBERS = [f"{(7 * i) % 31 + 0.5}" for i in range(N)]
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
    "one bad cell": (with_cells(NUMBERS, "x"), "numeric", [None, *floats(NUMBERS[1:])], "'x'"),
    "dashes": (
        with_cells(NUMBERS, "-", "-"),
        "numeric",
        [None] * 2 + floats(NUMBERS[2:]),
        "2 cells are none (such as '-')",
    ),
    "many dashes": (
        ["-"] * 20 + NUMBERS[20:],
        "numeric",
        [None] * 20 + floats(NUMBERS[20:]),
        "20 cells",
    ),
    "dots": (
        with_cells(NUMBERS, "."),
        "numeric",
        [None, *floats(NUMBERS[1:])],
        "1 cell is none (such as '.')",
    ),
    "none": (
        with_cells(NUMBERS, "none", "Unknown"),
        "numeric",
        [None] * 2 + floats(NUMBERS[2:]),
        "2 cells",
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
        "'soon'",
    ),
}


def read_column(table, column="x"):
    """The kind of a column, its values and the notes of it."""
    preprocessor = TablePreprocessor()
    preprocessor.learn(table, None)
    encoder = next(e for e in preprocessor.encoders_ if e.column == column)
    chunks = [encoder.form.read(chunk.column(0), column) for chunk in table.chunks([column])]
    notes = [note for note in preprocessor.notes_ if note.startswith(f"{column!r} ")]
    return encoder.kind, pa.chunked_array(chunks).to_pylist(), notes


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


@pytest.mark.parametrize("labels", [["0.0", "1.0"], ["0", "1"], ["0", "1.0"], [" 0", "1 "]])
def test_whole_labels_of_files_are_numbers(tmp_path, labels):
    pd.DataFrame({"x": NUMBERS, "y": labels * 20}).to_csv(tmp_path / "t.csv", index=False)
    found = TablePreprocessor().learn(open_table(tmp_path / "t.csv"), "y").finish()
    assert found.values.tolist() == [0, 1]
    assert found.values.dtype == np.int64
    assert found.counts.tolist() == [20, 20]
    assert found.codes(pa.array([*labels, "1", " 1.0 ", None, ""])).tolist() == [0, 1, 1, 1, -1, -1]


def test_whole_labels_of_frames_are_numbers():
    found = TablePreprocessor().learn(open_table({"x": NUMBERS, "y": [0.0, 1.0] * 20}), "y").finish()
    assert found.values.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["True", "false", "TRUE"], [False, True]),
        (["1", "2", "b"], ["1", "2", "b"]),
        (["2024-01-31", "2024-02-01", "2024-02-01"], ["2024-01-31", "2024-02-01"]),
        (["1", "1.0", "2"], [1, 2]),
        (["9223372036854775808", "1", "1"], [1, 2**63]),
        (["1" * 30, "1", "1"], ["1", "1" * 30]),
    ],
)
def test_labels_of_text_are_numbers_only_if_all_are(labels, classes):
    scan = TableLabelScan("y", "t", is_typed=False)
    codes = scan.add(pa.array(labels))
    assert len(codes) == len(labels)
    found = scan.finish()
    assert found.values.tolist() == classes
    assert found.counts.sum() == len(labels)


def test_labels_of_a_type_of_pandas_alone_are_refused():
    periods = pd.period_range("2024-01", periods=N, freq="M")
    with pytest.raises(SourceError, match="classes are whole numbers, strings or truth values"):
        TablePreprocessor().learn(open_table(pd.DataFrame({"x": NUMBERS, "y": periods})), "y")


def test_labels_with_blanks_are_one_label(tmp_path):
    frame = pd.DataFrame({"x": NUMBERS, "y": ["yes", "no ", " yes", "no"] * 10})
    frame.to_csv(tmp_path / "t.csv", index=False)
    for data in (frame, tmp_path / "t.csv"):
        preprocessor = TablePreprocessor()
        found = preprocessor.learn(open_table(data), "y").finish()
        assert found.values.tolist() == ["no", "yes"]
        assert found.counts.tolist() == [20, 20]
        assert "blanks at the ends of labels, such as 'no ', do not count" in preprocessor.notes_
        assert found.codes(pa.array(["no  ", "yes"])).tolist() == [0, 1]


RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("name", "column", "words"),
    [
        ("", range(50), "numbers the rows (from 0 to 49)"),
        ("Unnamed: 0", range(1, 51), "numbers the rows (from 1 to 50)"),
        ("Unnamed: 0", np.arange(50)[::-1] * 1_000, "numbers the rows (from 49000 to 0)"),
        ("row", range(1, 51), "numbers the rows"),
        ("row", [str(i) for i in range(50)], "numbers the rows"),
        ("row", np.arange(50) + (np.arange(50) > 20), "numbers the rows"),
        ("id", RNG.permutation(50), "looks like an identifier (every row has a number of its own"),
        ("customer_id", RNG.permutation(50) * 7 + 1e6, "identifier"),
        ("PassengerId", RNG.permutation(50), "identifier"),
        (
            "name",
            [f"person {i}" for i in range(50)],
            "every row has a value of its own, such as 'person 0'",
        ),
        ("time", np.arange(50) * 3_600, None),
        ("size", np.sort(RNG.integers(0, 10_000, 50)), None),
        ("size", RNG.permutation(50), None),
        ("size", RNG.normal(size=50), None),
        ("size", np.sort(RNG.normal(size=50)), None),
        ("shop_id", RNG.integers(0, 20, 50), None),
        ("humid", RNG.permutation(50), None),
        ("id", RNG.normal(size=50), None),
        ("Unnamed: 3", RNG.normal(size=50), None),
        ("row", [*range(49), np.nan], None),
    ],
)
def test_columns_that_only_name_the_rows_are_left_out(name, column, words):
    preprocessor = TablePreprocessor().fit(pd.DataFrame({name: column, "x": RNG.normal(size=50)}))
    assert (name in preprocessor.columns_) == (words is None)
    notes = " ".join(note for note in preprocessor.notes_ if f"{name!r} " in note and "left out" in note)
    assert words in notes if words else not notes


def test_a_column_that_numbers_the_rows_is_used_if_there_is_no_other():
    preprocessor = TablePreprocessor().fit({"row": list(range(50))})
    assert preprocessor.columns_ == ["row"]
    assert preprocessor.notes_ == []


@given(st.lists(st.integers(0, 2_000), min_size=2, max_size=400), st.integers(1, 50))
def test_repeated_numbers_are_found_whatever_is_dropped(values, size):
    import cavity.data.scans as scans

    limit, scans.SAMPLE = scans.SAMPLE, 30
    sample = DistinctSample()
    try:
        for i in range(0, len(values), size):
            sample.add(np.array(values[i : i + size], dtype=float))
        for i in range(0, len(values), size):
            sample.add(np.array(values[i : i + size], dtype=float))
    finally:
        scans.SAMPLE = limit
    assert not sample.all_different or len(sample._kept) == 0
    assert len(sample._kept) <= 60 or not sample.all_different


def leaking(n=2_000, **columns):
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"x": rng.normal(size=n), "c": rng.choice(list("abc"), n)})
    frame["y"] = np.where(frame["x"] + rng.normal(size=n) > 0, "yes", "no")
    return frame.assign(**{name: values(frame, rng) for name, values in columns.items()})


LEAKS = {
    "copy": lambda f, rng: f["y"],
    "code": lambda f, rng: (f["y"] == "yes") * 3 + 4,
    "score": lambda f, rng: np.where(f["y"] == "yes", 1.0, -1.0) * rng.uniform(0.5, 1.0, len(f)),
    "only if": lambda f, rng: [f"reason {i % 5}" if y == "yes" else None for i, y in enumerate(f["y"])],
    "when": lambda f, rng: pd.Series(f["x"] * 1e15).where(f["y"] == "yes").astype("datetime64[ns]"),
    "parts": lambda f, rng: np.where(f["y"] == "yes", "y", "n") + rng.integers(0, 9, len(f)).astype(str),
}
HONEST = {
    "odor": lambda f, rng: np.where(rng.random(len(f)) < 0.985, f["y"], "none"),
    "nearly": lambda f, rng: (f["y"] == "yes") ^ (rng.random(len(f)) < 0.01),
    "noise": lambda f, rng: rng.normal(size=len(f)),
    "city": lambda f, rng: rng.integers(0, len(f) // 3, len(f)).astype(str),
}


@pytest.mark.parametrize("name", LEAKS)
def test_columns_that_give_the_answer_away_are_named(name):
    frame = leaking(**{name: LEAKS[name]})
    preprocessor = TablePreprocessor()
    with pytest.warns(UserWarning, match=f"'{name}' alone tells the target of [12],"):
        preprocessor.learn(open_table(frame), "y")
    assert any(f"drop_features=['{name}']" in note for note in preprocessor.notes_)
    assert name in preprocessor.columns_


@pytest.mark.parametrize("name", HONEST)
def test_strong_columns_that_are_honest_are_not(name):
    TablePreprocessor().learn(open_table(leaking(**{name: HONEST[name]})), "y")


def test_few_rows_and_few_of_a_class_may_agree_by_chance():
    TablePreprocessor().learn(open_table(leaking(100, copy=LEAKS["copy"])), "y")
    frame = leaking(5_000)
    frame["y"] = ["rare"] * 20 + ["usual"] * 4_980
    TablePreprocessor().learn(open_table(frame.assign(copy=frame["y"])), "y")


def test_the_sample_of_rows_does_not_grow(monkeypatch):
    monkeypatch.setattr("cavity.data.leaks.SAMPLE_ROWS", 50)
    sample = LabelledSample()
    for start in range(0, 3_000, 70):
        numbers = np.arange(start, start + 70)
        sample.add(pa.RecordBatch.from_pydict({"x": numbers}), np.where(numbers % 5, numbers % 2, -1))
    assert 25 <= sample._n <= 100
    rows = np.concatenate([batch.column("x").to_numpy() for batch in sample._rows])
    assert (rows % 5 != 0).all()
    assert rows[-1] > 2_500
    assert (np.concatenate(sample._codes) == rows % 2).all()


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
    assert "1 cell is none (such as 'oops')" in " ".join(notes)


def test_infinite_numbers_of_a_frame_are_noted():
    preprocessor = TablePreprocessor().fit({"x": [1.0, np.inf, 3.0]})
    assert preprocessor.notes_ == ["'x' has an infinite number in 1 cell, which counts as missing"]


def test_a_text_file_in_memory_of_another_system(tmp_path):
    text = io.BytesIO()
    FRAME.to_csv(text, index=False, sep=";", decimal=",", encoding="utf-16")
    (tmp_path / "t.txt").write_bytes(text.getvalue())
    assert open_table(tmp_path / "t.txt").columns == list(FRAME)
