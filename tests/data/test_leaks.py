"""Columns that only name the rows, or give the answer away."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cavity.data.leaks import LabelledSample
from cavity.data.preprocess import TablePreprocessor
from cavity.data.scans import DistinctSample
from cavity.data.table import open_table

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
    "parts": lambda f, rng: [
        f"{word[0]}{i}" for word, i in zip(f["y"], rng.integers(0, 9, len(f)), strict=True)
    ],
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
