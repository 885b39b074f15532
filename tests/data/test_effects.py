"""Value effects: no row sees its own label, rare values shrink, and files give what arrays give."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from effect_tables import NONE, frame, learned, new_effects, seen
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from pyarrow import parquet
from scipy.special import gammaln
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cavity.data import ArraySource, ParquetSource
from cavity.data.effect_counts import Folds, TableSummariser
from cavity.data.effect_learning import effect_notes, learn_effects, refined
from cavity.data.effects import (
    N_FOLDS,
    CrossFit,
    base_rates,
    concentration,
    folds_of,
    gain_over_base,
    gain_over_bins,
)
from cavity.data.labelled import labelled_rows
from cavity.data.preprocess import TablePreprocessor
from cavity.data.sampling import hashed_rows
from cavity.data.source import ClassWeightedSource, with_feature_set
from cavity.data.table import open_table
from cavity.data.values import DATE_PARTS, ValueCounts, ValueIndex, Values


@settings(max_examples=15, deadline=None)
@given(
    n=st.integers(300, 2_000),
    cardinality=st.floats(0.005, 0.5),
    n_classes=st.sampled_from([2, 3]),
    seed=st.integers(0, 10_000),
)
def test_labels_that_are_noise_leave_the_loss_at_the_base_rate(n, cardinality, n_classes, seed):
    rng = np.random.default_rng(seed)
    n_values = max(3, int(cardinality * n))
    make = lambda rows: pd.DataFrame(  # noqa: E731
        {"a": rng.integers(0, n_values, rows), "b": rng.choice(list("uvwxyz"), rows)}
    )
    train, new = make(n), make(4_000)
    y, y_new = rng.integers(0, n_classes, n), rng.integers(0, n_classes, 4_000)
    found, X = learned(train.assign(y=y), "pairs")
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1_000)).fit(X, y)
    loss = -np.log(model.predict_proba(new_effects(found, new))[np.arange(4_000), y_new])
    # Each of the parameters of a logistic regression costs 1/(2n) on average.
    allowed = 4.0 * X.shape[1] * (n_classes - 1) / n
    assert loss.mean() < np.log(n_classes) + allowed + 3.0 * loss.std() / np.sqrt(4_000)


@settings(max_examples=25, deadline=None)
@given(n=st.integers(200, 3_000), n_values=st.integers(3, 1_000), seed=st.integers(0, 10_000))
def test_cross_fitted_effects_of_noise_gain_nothing(n, n_values, seed):
    rng = np.random.default_rng(seed)
    counts = ValueCounts(N_FOLDS + 1, 2)
    counts.add(pa.array(rng.integers(0, n_values, n)), folds_of(np.arange(n)), rng.integers(0, 2, n))
    gain = gain_over_base(counts.counts, CrossFit.of(counts.counts))
    assert gain.mean < 5.0 * gain.standard_error + 1e-4


@settings(max_examples=12, deadline=None)
@given(
    n=st.integers(60, 900),
    n_classes=st.sampled_from([2, 3]),
    row=st.floats(0.0, 1.0, exclude_max=True),
    seed=st.integers(0, 10_000),
    weighted=st.booleans(),
)
def test_a_row_does_not_see_its_own_label(n, n_classes, row, seed, weighted):
    data, number = frame(n, seed, n_classes), int(row * n)
    weight = "w" if weighted else None
    data["w"] = np.random.default_rng(seed).integers(1, 4, n).astype(float)
    _, before = learned(data, True, weight=weight)
    changed = data.copy()
    changed.loc[number, "y"] = (changed.loc[number, "y"] + 1) % n_classes
    _, after = learned(changed, True, weight=weight)
    assert_array_equal(after[number], before[number])
    assert not np.array_equal(after, before)


@settings(max_examples=5, deadline=None)
@given(row=st.integers(0, 899), cuts=st.sets(st.integers(300, 899), min_size=1, max_size=4))
def test_a_row_of_a_stream_does_not_see_its_own_label(row, cuts):
    data = frame(900, n_classes=3)
    _, before = streamed(data, sorted(cuts), "pairs")
    changed = data.copy()
    changed.loc[row, "y"] = (changed.loc[row, "y"] + 1) % 3
    _, after = streamed(changed, sorted(cuts), "pairs")
    if before.shape == after.shape:  # the label may decide which pairs there are
        assert_array_equal(after[row, :SINGLES], before[row, :SINGLES])
        if row < 899 or max(cuts) < 899:  # another row of the chunk, or one of a later chunk, sees it
            assert not np.array_equal(after, before)


@settings(max_examples=6, deadline=None)
@given(cuts=st.sets(st.integers(300, 899), min_size=1, max_size=5), seed=st.integers(0, 100))
def test_a_stream_ends_with_the_effects_of_all_rows(cuts, seed):
    data = frame(900, seed)
    cuts = sorted(cuts)
    expected, X = learned(data, True)
    found, features = streamed(data, cuts, True)
    for ours, theirs in zip(found, expected.chosen(None), strict=True):
        assert ours.features == theirs.features
        assert_array_equal(ours.indices[0].keys, theirs.indices[0].keys)
        assert_allclose(ours.table, theirs.table, atol=1e-12)
    # The rows of the last chunk have seen all others, as in a fit.
    assert_allclose(features[cuts[-1] :], X[cuts[-1] :], atol=1e-12)


def test_a_stream_forgets_the_counts_of_old_rows():
    data = frame(900)
    found, _ = streamed(data, [450], True, kept=0.0)
    expected, _ = learned(data.iloc[450:].reset_index(drop=True), True)
    by_name = {effect.name: effect for effect in expected.chosen(None)}
    for effect in found:
        new = by_name[effect.name]
        known = np.isin(effect.indices[0].keys, new.indices[0].keys)
        assert_allclose(effect.table[:-2][known], new.table[:-2], atol=1e-9)


def streamed(data, cuts, mode, kept=1.0):
    """The effects after a stream with chunks between the cuts, and the features that its rows saw."""
    n_classes = data["y"].nunique()
    encoders, X, first = None, [], 0
    preprocessor = TablePreprocessor()
    classes = preprocessor.learn(open_table(data), "y").finish()
    for stop in [*cuts, len(data)]:
        table = open_table(data.iloc[first:stop])
        if encoders is None:
            found = learn_effects(
                TableSummariser(table, preprocessor.typed, classes),
                preprocessor.encoders_,
                stop,
                np.ones(n_classes),
                [str(value) for value in classes.values],
                NONE,
                mode,
                for_stream=True,
            )
        read = preprocessor.columns_, preprocessor.typed, classes, None, first
        rows = list(labelled_rows(table, *read))
        if encoders is not None:
            found = refined(encoders, rows, np.ones(n_classes), kept)
        encoders = found.chosen(None)
        X += [seen(found, some) for some in rows]
        first = stop
    return encoders, np.concatenate(X)


SINGLES = 6 * 3
"""Features of the columns and parts of dates of `frame`, for three classes."""


def test_labels_of_held_out_rows_are_seen_by_new_rows_alone():
    data, held_out = frame(), hashed_rows(600, 150)
    found, before = learned(data, "pairs", held_out)
    changed = data.copy()
    changed.loc[held_out, "y"] = 1 - changed.loc[held_out, "y"]
    again, after = learned(changed, "pairs", held_out)
    assert_array_equal(after, before)
    assert not np.array_equal(new_effects(again, data), new_effects(found, data))
    # Held-out rows are as new rows to a table without them.
    others = data.drop(index=held_out)
    alone, _ = learned(others, True)
    expected = new_effects(alone, data.loc[held_out])
    assert_allclose(before[held_out][:, : expected.shape[1]], expected, atol=1e-12)


def test_rows_without_a_label_or_weight_change_nothing():
    data = frame().assign(w=1.5)
    _, expected = learned(data, True, weight="w")
    more = pd.concat([data.iloc[:100], data.iloc[:50].assign(w=0.0), data.iloc[100:]])
    more["y"] = more["y"].astype("Int64")
    unlabelled = more.iloc[5:9].assign(y=pd.array([pd.NA] * 4, "Int64"))
    more = pd.concat([more.iloc[:30], unlabelled, more.iloc[30:]])
    _, found = learned(more, True, weight="w")
    assert_allclose(found, expected, atol=1e-12)


def test_counts_of_parts_add_up():
    data = frame()
    folds = folds_of(np.arange(600))
    parts = [ValueCounts(N_FOLDS, 2) for _ in range(3)]
    for counts, rows in zip(parts, (slice(600), slice(250), slice(250, 600)), strict=True):
        cells = Values("size", "numeric").cells(pa.array(data["size"][rows]))
        counts.add(cells, folds[rows], data["y"].to_numpy()[rows])
    whole, first, second = parts
    before = first.counts.copy()
    both = first.merged(second)
    assert_array_equal(first.counts, before)
    for ours, theirs in zip(both.sorted(), whole.sorted(), strict=True):
        assert ours.equals(theirs) if isinstance(ours, pa.Array) else np.array_equal(ours, theirs)
    assert whole.counts.sum() == 600
    assert whole.sorted()[1][-1].sum() == data["size"].isna().sum()


def test_the_commonest_values_are_kept():
    rng = np.random.default_rng(0)
    values = np.concatenate([np.repeat(np.arange(5), 200), rng.integers(5, 400, 1_000)])
    counts = ValueCounts(1, 2, most=50)
    for part in np.array_split(rng.permutation(values), 20):
        counts.add(pa.array(part), np.zeros(len(part), int), np.zeros(len(part), int))
    assert len(counts.keys) <= 50
    assert set(range(5)) <= set(counts.keys.to_pylist())
    different = ValueCounts(1, 2, most=50)
    different.add(pa.array(np.arange(60)), np.zeros(60, int), np.zeros(60, int))
    assert different.is_distinct


def test_a_weight_of_two_is_two_copies():
    data = frame()
    weighted, _ = learned(data.assign(w=np.where(data.index % 3, 1.0, 2.0)), True, weight="w")
    copied, _ = learned(pd.concat([data, data[::3]]), True)
    assert_allclose(new_effects(weighted, data), new_effects(copied, data), atol=1e-9)


def test_weights_of_classes_are_weights_of_their_rows():
    data = frame()
    weighted, X = learned(data.assign(w=np.where(data["y"] == 1, 3.0, 1.0)), True, weight="w")
    by_class, X_by_class = learned(data, True, factors=np.array([1.0, 3.0]))
    assert_allclose(X_by_class, X, atol=1e-9)
    assert_allclose(new_effects(by_class, data), new_effects(weighted, data), atol=1e-9)


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("true", [0.5, 8.0, 300.0])
def test_the_concentration_is_the_best_of_a_grid(true, n_classes):
    rng = np.random.default_rng(int(true))
    base = np.arange(1.0, n_classes + 1.0) / np.arange(1.0, n_classes + 1.0).sum()
    rates = rng.dirichlet(true * base, 400)
    counts = np.array([rng.multinomial(rng.integers(1, 60), p) for p in rates]).astype(float)

    def log_likelihood(a):
        each = gammaln(a) - gammaln(a + counts.sum(axis=1))
        return float((each + (gammaln(counts + a * base) - gammaln(a * base)).sum(axis=1)).sum())

    grid = np.exp(np.linspace(np.log(0.1), np.log(1e6), 1_000))
    best = grid[np.argmax([log_likelihood(a) for a in grid])]
    found = concentration(counts, base)
    assert found == pytest.approx(best, rel=0.03)
    assert found == pytest.approx(true, rel=0.6)


def test_rare_and_unknown_values_shrink_to_no_effect():
    rng = np.random.default_rng(0)
    code = np.concatenate([np.repeat(np.arange(20), 50), [98, 98]])
    y = (rng.random(len(code)) < np.where(code % 2, 0.8, 0.2)).astype(int)
    y[-2:] = 1
    found, _ = learned(pd.DataFrame({"code": code, "y": y}), True)
    new = pd.DataFrame({"code": [1.0, 0.0, 98.0, 55.0, np.nan]})
    odd, even, rare, unknown, missing = new_effects(found, new)[:, 0]
    assert odd > 0.0 > even
    assert 0.0 < rare < 1.5  # both its rows are of one class: unshrunken it would be infinite
    assert unknown == missing == 0.0


def test_smooth_columns_have_no_effects_and_special_values_have():
    rng = np.random.default_rng(1)
    n = 4_000
    smooth, spiky = rng.integers(0, 100, n), rng.integers(0, 100, n)
    noise, word = rng.integers(0, 50, n), rng.choice([f"w{i}" for i in range(60)], n)
    level = np.array([hash_of(w) for w in word])
    score = 2.0 * np.sin(smooth / 15.0) + 3.0 * np.isin(spiky, [13, 50, 77]) + level
    data = pd.DataFrame({"smooth": smooth, "spiky": spiky, "noise": noise, "word": word})
    data["y"] = (score + rng.logistic(size=n) > 0.5).astype(int)
    found, _ = learned(data, "auto")
    assert [effect.encoder.columns for effect in found.singles] == [("spiky",), ("word",)]
    assert found.feature_sets(10) == {"columns": 10, "effects": 12}
    assert found.chosen("columns") == []
    assert len(found.chosen("effects")) == 2
    assert effect_notes(found.chosen("effects")) == [
        "effects of the values of 'spiky', 'word' on the target are further features"
    ]


def hash_of(word):
    return np.sin(12.9898 * int(word[1:])) * 1.5


def test_parts_of_dates_have_effects():
    rng = np.random.default_rng(4)
    n = 4_000
    when = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 800 * 24 * 60, n), "min")
    late = np.isin(when.hour, [3, 9, 17]) * 3.0 + (when.day_of_week == 2) * 2.0
    data = pd.DataFrame({"when": when, "x": rng.normal(size=n)})
    data.loc[::50, "when"] = pd.NaT
    data["y"] = (late + rng.logistic(size=n) > 1.0).astype(int)
    found, _ = learned(data, "auto")
    assert [effect.encoder.name for effect in found.singles] == ["when: day of week", "when: hour"]
    new = pd.DataFrame({"when": pd.to_datetime(["2031-05-07 03:00", "2031-05-08 04:59", None])})
    weekday, hour = new_effects(found, new)[:, :2].T
    assert weekday[0] > 1.0 > weekday[1]
    assert hour[0] > 1.0 > hour[1]
    assert abs(weekday[2]) < 0.5  # a missing date is a value, too
    assert effect_notes(found.chosen("effects")) == [
        "effects of the values of 'when: day of week', 'when: hour' on the target are further features"
    ]


def test_parts_of_dates_are_those_of_pandas():
    words = ["1968-02-29 23:59:59", "1970-01-01", "2024-12-31 12:00", None]
    when = pd.to_datetime(words, format="ISO8601")
    array = pa.array(when)
    for part, attribute in zip(DATE_PARTS, ("month", "day", "day_of_week", "hour"), strict=True):
        cells = Values("when", "date", part).cells(array)
        assert_array_equal(cells.to_numpy(zero_copy_only=False), getattr(when, attribute))


def test_words_that_stand_for_missing_cells_are_missing_everywhere(tmp_path):
    words = ["red", "?", "blue", "n/a", "-", "null", None, "green"] * 40
    data = pd.DataFrame({"colour": words, "x": np.arange(320) % 7, "y": np.arange(320) % 2})
    parquet.write_table(pa.Table.from_pandas(data), tmp_path / "t.parquet")
    data.to_csv(tmp_path / "t.csv", index=False)
    levels = data.assign(colour=data["colour"].astype("category"))
    tables = {}
    for source in (data, levels, tmp_path / "t.parquet", tmp_path / "t.csv"):
        preprocessor = TablePreprocessor()
        preprocessor.learn(open_table(source), "y")
        assert preprocessor.get_feature_names_out().tolist() == [
            "colour=blue",
            "colour=green",
            "colour=red",
            "colour=(missing)",
            "x",
        ]
        assert_array_equal(
            preprocessor.transform(data)[:, 3], data["colour"].isin(["red", "blue", "green"]) == 0
        )
        _, tables[str(type(source)) + str(source)[-3:]] = learned(source, True)
    for found in tables.values():
        assert_array_equal(found, next(iter(tables.values())))
    # Other words can be named, and then these are words like others.
    own = TablePreprocessor()
    own.learn(open_table(tmp_path / "t.csv", na_values=["red"]), "y")
    assert "colour=-" in own.get_feature_names_out()
    assert own.transform(data)[0, own.get_feature_names_out().tolist().index("colour=(missing)")] == 1.0


def test_a_dash_may_be_a_class():
    data = pd.DataFrame({"x": np.arange(40) % 7, "y": ["+", "-"] * 20})
    scan = TablePreprocessor().learn(open_table(data), "y")
    assert scan.finish().values.tolist() == ["+", "-"]


def test_bins_are_as_good_as_the_values_of_a_smooth_column():
    rng = np.random.default_rng(3)
    x = rng.integers(0, 200, 20_000)
    y = (rng.random(20_000) < 0.5 + 0.4 * np.sin(x / 30.0)).astype(int)
    counts = ValueCounts(N_FOLDS + 1, 2)
    counts.add(pa.array(x.astype(float)), folds_of(np.arange(20_000)), y)
    _, table = counts.sorted()
    fit = CrossFit.of(table)
    assert gain_over_base(table, fit).exceeds(10.0)
    assert gain_over_bins(table, fit).mean < 0.0


def test_codes_of_bins_values_and_missing_cells():
    def codes(index, cells):
        return index.codes(pa.RecordBatch.from_arrays([cells], names=["x"])).tolist()

    numbers = ValueIndex(Values("x", "numeric"), np.array([1.0, 2.5]))
    cells = pa.array([2.5, 1.0, 7.0, None, np.nan, np.inf])
    assert codes(numbers, cells) == [1, 0, 3, 2, 2, 2]
    bins = ValueIndex(Values("x", "numeric"), np.array([1.0, 2.5]), is_binned=True)
    assert codes(bins, cells) == [2, 1, 2, 3, 3, 3]
    words = ValueIndex(Values("x", "categorical"), np.array(["a", "b"], dtype=object))
    assert codes(words, pa.array(["b", None, "z", "a"])) == [1, 2, 3, 0]
    assert codes(words, pa.array(["b", None, "z", "a"]).dictionary_encode()) == [1, 2, 3, 0]


def test_folds_are_even_and_independent_of_held_out_rows():
    numbers = np.arange(100_000)
    folds = folds_of(numbers)
    assert_allclose(np.bincount(folds) / 100_000, 0.2, atol=0.01)
    held_out = hashed_rows(100_000, 5_000)
    assert_allclose(np.bincount(folds[held_out]) / 5_000, 0.2, atol=0.03)
    marked = Folds(held_out).of(numbers[1_000:2_000])
    assert_array_equal(
        np.flatnonzero(marked == N_FOLDS) + 1_000, held_out[(held_out >= 1_000) & (held_out < 2_000)]
    )


def test_base_rates_are_never_zero():
    assert_allclose(base_rates(np.zeros(4)), 0.25)
    assert (base_rates(np.array([1e6, 0.0])) > 0.0).all()


def test_a_source_with_its_first_features_alone(tmp_path):
    X = np.arange(40.0).reshape(10, 4).astype(np.float32)
    labels = np.arange(10) % 2
    table = pa.table({**{str(j): X[:, j] for j in range(4)}, "y": labels})
    parquet.write_table(table, tmp_path / "t.parquet")
    array = ArraySource(X, labels, feature_names=list("0123"))
    file = ParquetSource(tmp_path / "t.parquet", "y")
    for source in (array, file, ClassWeightedSource(array, np.ones(2), array.class_totals)):
        source.feature_sets = {"columns": 2, "effects": 4}
        assert with_feature_set(source, None) is source
        assert with_feature_set(source, "effects") is source
        view = with_feature_set(source, "columns")
        assert (view.n_features, view.n_rows) == (2, 10)
        assert list(view.feature_names) == ["0", "1"]
        assert_array_equal(view.take(np.array([3, 7])).X, X[[3, 7], :2])
        assert_array_equal(np.vstack([b.load().X for b in view.blocks(3)]), X[:, :2])
        with pytest.raises(ValueError, match="feature_set='pairs', but the rows have 'columns' and"):
            with_feature_set(source, "pairs")
