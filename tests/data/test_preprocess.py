"""Columns of every kind become features; what is learned does not depend on the chunks."""

import datetime
import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

from cavity.data import scans as scanning
from cavity.data import table as opening
from cavity.data.columns import circle
from cavity.data.preprocess import TablePreprocessor
from cavity.data.scans import LevelScan, NumberSample, NumericScan
from cavity.errors import SourceError
from flights_table import flights


def learned(frame, **options):
    preprocessor = TablePreprocessor(**options).fit(frame)
    names = preprocessor.get_feature_names_out().tolist()
    return preprocessor, pd.DataFrame(preprocessor.transform(frame), columns=names)


def test_every_kind_of_column_becomes_numbers():
    frame = flights()
    _, features = learned(frame.drop(columns="delayed"))
    assert np.isfinite(features.to_numpy()).all()
    known = frame["hour"].notna()
    assert np.allclose(features["hour"][known], frame["hour"][known], rtol=1e-6)
    assert (features["hour"][~known] == np.float32(frame["hour"].median())).all()
    assert (features["hour (missing)"] == ~known).all()
    for level in ("AA", "DL", "UA"):
        assert (features[f"carrier={level}"] == (frame["carrier"] == level)).all()
    assert (features["carrier=(missing)"] == frame["carrier"].isna()).all()
    assert (features["weekend"] == frame["weekend"]).all()
    days = (frame["date"] - frame["date"].min()).dt.days
    assert np.allclose(features["date: days"], days)
    angle = 2 * np.pi * frame["date"].dt.day_of_week / 7
    assert np.allclose(features["date: day of week (cos)"], np.cos(angle), atol=1e-6)
    angle = 2 * np.pi * (frame["date"].dt.day_of_year - 1) / 365.2425
    assert np.allclose(features["date: time of year (sin)"], np.sin(angle), atol=1e-6)
    assert not any("time of day" in name for name in features)  # midnight, always


def test_times_of_day_go_round():
    frame = pd.DataFrame({"at": pd.to_datetime(["2020-01-01 23:59", "2020-01-02 00:01", None])})
    _, features = learned(frame)
    assert abs(features["at: time of day (cos)"][0] - features["at: time of day (cos)"][1]) < 1e-6
    assert features["at: time of day (cos)"][2] == pytest.approx(1.0, abs=1e-4)  # the mean of the others
    assert features["at (missing)"].tolist() == [0.0, 0.0, 1.0]


@pytest.mark.parametrize(
    "column",
    [
        pd.to_datetime(["2020-01-01", "2020-03-02"]).tz_localize("Europe/Paris"),
        [datetime.date(2020, 1, 1), datetime.date(2020, 3, 2)],
        pd.to_datetime(["2020-01-01", "2020-03-02"]).astype("datetime64[ns]"),
    ],
)
def test_dates_of_any_type(column):
    _, features = learned(pd.DataFrame({"when": column}))
    assert features["when: days"][1] - features["when: days"][0] == pytest.approx(61)


def test_columns_without_information_are_left_out_and_named():
    n = 60
    frame = pd.DataFrame(
        {
            "x": np.arange(n),
            "id": [f"row {i}" for i in range(n)],
            "same": 3,
            "word": "a",
            "nothing": np.nan,
            "lists": [[1, 2]] * n,
            "void": [None] * n,
        }
    )
    preprocessor, features = learned(frame)
    assert list(features) == ["x"]
    for name in ("id", "same", "word", "nothing", "lists", "void"):
        assert any(f"'{name}'" in note for note in preprocessor.notes_), name


def test_of_many_levels_the_commonest_are_kept():
    rng = np.random.default_rng(0)
    levels = [f"c{i:03d}" for i in range(100)]
    share = 0.9 ** np.arange(100)
    column = rng.choice(levels, 5_000, p=share / share.sum())
    preprocessor, features = learned(pd.DataFrame({"city": column}), max_categories=5)
    assert list(features) == [*(f"city=c00{i}" for i in range(5)), "city=(other)"]
    assert (features.sum(axis=1) == 1).all()
    assert f"{len(set(column))} levels" in preprocessor.notes_[0]


def test_levels_beyond_memory_are_forgotten_but_common_ones_are_not(monkeypatch):
    monkeypatch.setattr(scanning, "_MOST_COUNTED", 50)
    scan = LevelScan("c", 3)
    rng = np.random.default_rng(0)
    for i in range(30):
        rare = [f"rare {i} {j}" for j in range(40)]
        scan.add(pa.array(rng.permutation([*rare, *["big"] * 30, *["small"] * 20])))
    decision = scan.decide()
    assert decision.encoder.levels == ("big", "small")
    assert "more than" in decision.notes[0]


def test_codes_may_be_declared_categorical():
    frame = pd.DataFrame({"month": [1.0, 2.0, 12.0, None] * 5, "x": range(20)})
    preprocessor, features = learned(frame, categorical_features=["month"])
    assert list(features)[:3] == ["month=1", "month=12", "month=2"]
    again = preprocessor.transform(pd.DataFrame({"month": [12, 3], "x": [0, 0]}))
    assert again[:, :4].tolist() == [[0, 1, 0, 0], [0, 0, 0, 0]]


def test_codes_with_gaps_are_the_same_words_in_files_and_frames(tmp_path):
    frame = pd.DataFrame({"shop": [1.0, 2.0, None, 12.0, 2.5] * 5, "x": np.arange(25.0) % 7})
    frame.to_csv(tmp_path / "t.csv", index=False)
    mixed = frame.assign(shop=["1", "2.0", None, "12", "2.5"] * 4 + ["1.0", "2", "", "12.0", "2.5"])
    wanted, features = learned(frame, categorical_features=["shop"])
    assert wanted.encoders_[0].levels == ("1", "12", "2", "2.5")
    for data in (tmp_path / "t.csv", pd.read_csv(tmp_path / "t.csv"), mixed):
        found = TablePreprocessor(categorical_features=["shop"]).fit(data)
        assert found.encoders_[0].levels == wanted.encoders_[0].levels
        assert np.array_equal(found.transform(frame), features)
    assert np.array_equal(wanted.transform(mixed), features)


@pytest.mark.parametrize("levels", [["a", "b", "c"], [1, 2, 3], [0.5, 1.5, 2.5]])
def test_categories_of_pandas_are_levels(levels):
    column = pd.Categorical([levels[0], levels[1], None, levels[1]], categories=levels)
    _, features = learned(pd.DataFrame({"c": column}))
    assert list(features) == [f"c={levels[0]}", f"c={levels[1]}", "c=(missing)"]
    assert features.to_numpy().tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 1, 0]]


def test_unseen_levels_are_none_of_the_known_or_the_middle_of_two():
    three, _ = learned(pd.DataFrame({"c": ["a", "b", "c"] * 4}))
    assert three.transform({"c": ["z", None]}).tolist() == [[0, 0, 0], [0, 0, 0]]
    two, _ = learned(pd.DataFrame({"c": ["a", "b"] * 4}))
    assert two.transform({"c": ["a", "b", "z", None]}).ravel().tolist() == [0, 1, 0.5, 0.5]


def test_infinite_numbers_are_missing():
    _, features = learned(pd.DataFrame({"x": [1.0, np.inf, 3.0, 2.0]}))
    assert features.to_numpy().tolist() == [[1, 0], [2, 1], [3, 0], [2, 0]]


@pytest.mark.parametrize(
    ("column", "dtype"),
    [
        (np.arange(100), "float32"),
        (1e9 + np.arange(100.0), "float64"),
        (np.linspace(0, 1, 100), "float32"),
        (1e35 * np.arange(100.0), "float64"),
    ],
)
def test_single_precision_where_it_loses_nothing(column, dtype):
    preprocessor, features = learned(pd.DataFrame({"x": column}))
    assert preprocessor.dtype_ == dtype
    lost = np.abs(features["x"] - column).max() / column.std()
    assert lost < 1e-5


def test_the_size_of_chunks_does_not_matter(monkeypatch):
    frame = flights(300)
    whole = TablePreprocessor().fit(frame)
    monkeypatch.setattr(opening, "CHUNK_ROWS", 17)
    parts = TablePreprocessor().fit(frame)
    assert parts.get_feature_names_out().tolist() == whole.get_feature_names_out().tolist()
    assert np.allclose(parts.transform(frame), whole.transform(frame), rtol=1e-6)


@given(st.lists(st.integers(1, 300), min_size=1, max_size=20))
def test_a_sample_is_every_kth_number(lengths):
    numbers = np.arange(sum(lengths), dtype=float)
    sample = NumberSample()
    limit, scanning.SAMPLE = scanning.SAMPLE, 20
    try:
        for part in np.split(numbers, np.cumsum(lengths)[:-1]):
            sample.add(part)
    finally:
        scanning.SAMPLE = limit
    kept = np.concatenate(sample._kept)
    step = int(kept[1] - kept[0]) if len(kept) > 1 else 1
    assert len(kept) <= 40
    assert kept.tolist() == numbers[::step].tolist()


@given(st.lists(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=30), min_size=1, max_size=5))
def test_moments_of_chunks_are_those_of_all(chunks):
    scan = NumericScan("x")
    for chunk in chunks:
        scan.add(pa.array(chunk))
    everything = np.concatenate(chunks)
    assert scan.mean == pytest.approx(everything.mean(), abs=1e-8)
    assert scan.squares == pytest.approx(np.square(everything - everything.mean()).sum(), abs=1e-4)


def test_missing_columns_are_named_and_the_nearest_suggested():
    preprocessor, _ = learned(pd.DataFrame({"distance": [1, 2, 3], "hour": [1, 2, 3]}))
    with pytest.raises(SourceError, match=r"lacks the column 'distance'.*did you mean 'Distance'"):
        preprocessor.transform({"Distance": [1], "hour": [1]})


def test_text_in_a_column_of_numbers_is_named_and_missing():
    preprocessor, _ = learned(pd.DataFrame({"x": [1, 2, 3]}))
    with pytest.warns(UserWarning, match="column 'x' should be numeric; .* as missing: 'many'"):
        assert preprocessor.transform({"x": ["1", "many", "-"]}).tolist() == [[1], [2], [2]]
    with pytest.raises(SourceError, match="column 'x' should be numeric, but has the value '2013"):
        preprocessor.transform({"x": pd.to_datetime(["2013-01-31"])})
    assert preprocessor.transform({"x": ["1.5"]}).tolist() == [[1.5]]


def test_a_batch_whose_text_has_been_read_has_the_same_features():
    frame = flights().drop(columns="delayed")
    frame["price"] = [f"$ {k % 7},{k:03d}.5" if k % 9 else "none" for k in range(len(frame))]
    frame["day"] = frame["date"].dt.strftime("%d.%m.%Y")
    preprocessor = TablePreprocessor().fit(frame)
    (batch,) = pa.Table.from_pandas(frame, preserve_index=False).combine_chunks().to_batches()
    expected = preprocessor.encode(batch)
    assert preprocessor.features_of_columns()["price"]
    assert np.array_equal(preprocessor.encode(preprocessor.typed(batch)), expected)
    assert np.array_equal(preprocessor.transform(frame), expected)


@pytest.mark.parametrize("option", ["drop_features", "categorical_features"])
def test_options_name_columns_that_exist(option):
    with pytest.raises(SourceError, match="did you mean 'hour'"):
        TablePreprocessor(**{option: ["houre"]}).fit({"hour": [1, 2]})


def test_a_table_without_any_use():
    with pytest.raises(SourceError, match="no column to learn from"):
        TablePreprocessor().fit({"same": [1, 1]})


def test_it_is_a_scikit_learn_transformer():
    preprocessor = clone(TablePreprocessor(max_categories=3, drop_features=("a",)))
    assert preprocessor.get_params() == {
        "max_categories": 3,
        "drop_features": ("a",),
        "categorical_features": (),
    }
    X = preprocessor.fit_transform({"a": [1, 2], "b": [3, 4]})
    assert X.tolist() == [[3], [4]]
    assert preprocessor.transform(pd.DataFrame({"b": []})).shape == (0, 1)


def test_numbers_beyond_single_precision_are_far_away_and_not_missing():
    preprocessor, _ = learned(pd.DataFrame({"a": [0.0, 1.0, np.nan]}))
    assert preprocessor.dtype_ == "float32"
    largest = np.finfo(np.float32).max
    found = preprocessor.transform({"a": [1e300, -1e300, np.inf]})
    assert found.tolist() == [[largest, 0.0], [-largest, 0.0], [0.5, 1.0]]


@pytest.mark.parametrize("values", [[1e300] * 3, [1.7e308, -1.7e308, 0.0], [5e-324, 0.0, 1e308]])
def test_the_largest_numbers_stay_finite(values):
    preprocessor, features = learned({"a": [*values, None]})
    assert preprocessor.dtype_ == "float64"
    assert np.isfinite(features.to_numpy()).all()


@pytest.mark.parametrize("value", [2, 0.5, -1.0, 1e300])
def test_truth_values_are_zero_or_one(value):
    preprocessor, _ = learned({"a": [True, False, None]})
    assert preprocessor.transform({"a": [0.0, 1.0]})[:, 0].tolist() == [0.0, 1.0]
    words = re.escape(f"should be boolean, but has the value {value!r}; ")
    with pytest.raises(SourceError, match=words):
        preprocessor.transform({"a": [type(value)(1), value]})


def test_durations_of_nanoseconds_are_numbers():
    _, features = learned({"a": pa.array([1, 5_000, None], pa.duration("ns"))})
    assert features["a"].tolist() == [0.0, 5.0, 2.5]


def test_many_levels_of_which_none_is_common_are_kept_for_their_effects():
    words = np.array([f"street {i}" for i in range(2_500)])
    scan = LevelScan("street", 20)
    scan.add(pa.array(np.tile(words, 8)))
    decision = scan.decide()
    assert decision.encoder.features == ("street=street 0", "street=(other)")
    assert "2,500 levels" in decision.notes[0]


def test_the_usual_range_of_a_column_is_that_of_nearly_all_its_numbers():
    rng = np.random.default_rng(0)
    number = rng.uniform(-45.0, 100.0, size=5_000)
    number[7] = 1e9
    frame = pd.DataFrame(
        {
            "number": number,
            "rare": np.arange(5_000) == 3_000,
            "mostly": np.where(np.arange(5_000) == 12, 4.0, 0.0),
            "day": pd.Timestamp("2020-02-03 12:00") + pd.to_timedelta(rng.permutation(5_000), unit="h"),
        }
    )
    preprocessor, _ = learned(frame)
    usual = {encoder.column: encoder.usual for encoder in preprocessor.encoders_}
    assert usual["number"] == pytest.approx((-45.0, 100.0), abs=1.0)
    assert usual["rare"] == (0.0, 1.0)
    assert usual["mostly"] == (0.0, 4.0)
    days = [
        (frame["day"].agg(f) - pd.Timestamp("1970-01-01")) / pd.Timedelta("1D") for f in ("min", "max")
    ]
    assert usual["day"] == pytest.approx(days)


def test_opposite_places_on_a_circle_are_exactly_opposite():
    sine, cosine = circle(np.arange(24) / 24)
    np.testing.assert_array_equal(sine[12:], -sine[:12])
    np.testing.assert_array_equal(cosine[12:], -cosine[:12])
    assert sine[12] == cosine[6] == 0.0
    np.testing.assert_allclose(np.hypot(sine, cosine), 1.0, rtol=1e-11)
