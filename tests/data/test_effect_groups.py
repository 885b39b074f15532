"""Effects of pairs and triples of columns: which are found, how they are counted, where they go."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from effect_tables import flights, frame, learned
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from pyarrow import parquet

from cavity.data import table as tables
from cavity.data import values
from cavity.data.effect_counts import CellCounts, Folds, GroupCounts
from cavity.data.effect_learning import _group, effect_notes
from cavity.data.effects import Gain, effects_as_state, effects_from_state
from cavity.data.labelled import LabelledRows
from cavity.data.values import Positions, ValueIndex, Values


def test_a_pair_that_says_more_than_its_columns_is_found():
    rng = np.random.default_rng(2)
    n = 3_000
    a, b = rng.choice(list("pqrst"), n), rng.integers(0, 6, n)
    table = 2.0 * rng.normal(size=(5, 6))
    score = table[np.searchsorted(list("pqrst"), a), b]
    data = pd.DataFrame({"a": a, "b": b, "c": rng.integers(0, 8, n), "d": rng.normal(size=n)})
    data["y"] = (score + rng.logistic(size=n) > 0.0).astype(int)
    found, X = learned(data, "pairs")
    assert [set(effect.encoder.columns) for effect in found.groups] == [{"a", "b"}]
    (pair,) = found.groups
    truth = np.array([table[np.searchsorted(list("pqrst"), v), w] for v, w in zip(a, b, strict=True)])
    assert np.corrcoef(X[:, -1], truth)[0, 1] > 0.95
    assert pair.gain.mean > 5.0 * pair.gain.standard_error


def test_a_pair_with_nearly_as_many_cells_as_rows_is_found():
    rng = np.random.default_rng(3)
    n, k = 120_000, 200
    a, b = rng.integers(0, k, n), rng.integers(0, k, n)
    odds = 3.0 * rng.choice([-1.0, 1.0], size=(k, k))[a, b]
    data = pd.DataFrame({"a": a, "b": b, "y": (odds + rng.logistic(size=n) > 0.0).astype(int)})
    found, X = learned(data, "pairs")
    assert [set(effect.encoder.columns) for effect in found.groups] == [{"a", "b"}]
    # Three rows a cell tell much; a sample of a tenth of the rows would have found nothing.
    assert found.groups[0].gain.mean > 0.1
    assert np.corrcoef(X[:, -1], odds)[0, 1] > 0.5


def test_rows_that_are_almost_copies_are_found_by_their_values():
    rng = np.random.default_rng(4)
    n = 4_000
    things = rng.normal(size=(n // 2, 3)).round(2)  # each was measured twice
    labels = rng.integers(0, 2, n // 2)
    data = pd.DataFrame(np.repeat(things, 2, axis=0), columns=list("abc"))
    data["y"] = np.repeat(labels, 2)
    found, _ = learned(data, "pairs")
    assert found.groups
    assert not any(index.is_binned for index in found.groups[0].encoder.indices)


@pytest.mark.parametrize("decimals", [1, 2])
def test_one_column_that_decides_makes_no_pairs(decimals):
    """Its own values say more than its bins, but another column adds nothing to them."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((20_000, 5)).round(decimals)
    data = pd.DataFrame(X, columns=list("abcde"))
    data["y"] = ((X[:, 0] > 0.37) ^ (rng.uniform(size=len(X)) < 0.05)).astype(int)
    found, _ = learned(data, "pairs")
    assert not found.groups


@pytest.fixture(scope="module")
def grouped():
    data = flights()
    return (data, *learned(data, "pairs"))


def test_a_difference_and_a_triple_are_found(grouped):
    data, found, _ = grouped
    names = [effect.encoder.name for effect in found.groups]
    groups = [set(name.replace("left − landed", "landed − left").split(" × ")) for name in names]
    assert any({"landed − left", "route"} <= group for group in groups)
    assert {"route", "day", "size"} in groups
    notes = effect_notes(found.chosen(None))
    assert notes[1].startswith("effects of the pairs of values of ")
    assert notes[2].startswith("effects of the triples of values of ")
    assert notes[3].startswith("in some of these pairs and triples, ")
    assert notes[3].endswith(" count in bins")
    columns = {name for effect in found.groups for name in effect.encoder.columns}
    assert columns <= set(data.columns)


@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_groups_of_noise_are_not_chosen(seed):
    data = flights(3_000, seed)
    data["y"] = np.random.default_rng(seed).integers(0, 2, len(data))
    found, _ = learned(data, "pairs")
    assert found.groups == ()


def test_arrays_files_and_shards_have_the_same_groups(grouped, tmp_path, monkeypatch):
    data, found, expected = grouped
    parquet.write_table(pa.Table.from_pandas(data), tmp_path / "whole.parquet", row_group_size=1_234)
    (tmp_path / "shards").mkdir()
    for i, part in enumerate(np.array_split(np.arange(len(data)), 4)):
        shard = pa.Table.from_pandas(data.iloc[part], preserve_index=False)
        parquet.write_table(shard, tmp_path / "shards" / f"{i}.parquet")
    monkeypatch.setattr(tables, "CHUNK_ROWS", 700)
    for source in (tmp_path / "whole.parquet", tmp_path / "shards", data):
        again, X = learned(source, "pairs")
        assert_allclose(X, expected, atol=1e-12)
        for ours, theirs in zip(again.chosen(None), found.chosen(None), strict=True):
            assert ours.features == theirs.features
            assert_allclose(ours.table, theirs.table, atol=1e-12)


def test_arrays_files_shards_and_streams_have_the_same_effects(tmp_path, monkeypatch):
    data = frame(900)
    found, expected = learned(data, "pairs")
    assert found.groups
    parquet.write_table(pa.Table.from_pandas(data), tmp_path / "whole.parquet", row_group_size=123)
    data.to_csv(tmp_path / "whole.csv", index=False)
    (tmp_path / "shards").mkdir()
    for i, part in enumerate(np.array_split(np.arange(900), 4)):
        shard = pa.Table.from_pandas(data.iloc[part], preserve_index=False)
        parquet.write_table(shard, tmp_path / "shards" / f"{i}.parquet")
    sources = [tmp_path / "whole.parquet", tmp_path / "whole.csv", tmp_path / "shards", data]
    monkeypatch.setattr(tables, "CHUNK_ROWS", 70)
    for source in sources:
        again, X = learned(source, "pairs")
        assert_allclose(X, expected, atol=1e-12)
        for ours, theirs in zip(again.chosen(None), found.chosen(None), strict=True):
            assert ours.features == theirs.features
            assert_allclose(ours.table, theirs.table, atol=1e-12)


GROUP = (
    ValueIndex(Values("code", "numeric"), np.arange(40.0)),
    ValueIndex(Values("word", "categorical"), np.array(list("abcde"), dtype=object)),
    ValueIndex(Values("size", "numeric"), np.array([0.5, 1.5]), is_binned=True),
)


def counted(data, weight, held_out, cuts=()):
    """The effects of a triple, from counts of parts that are merged, and those that the rows see."""
    folds, codes = Folds(held_out), data["y"].to_numpy()
    whole, out = None, []
    parts = []
    for start, stop in zip((0, *cuts), (*cuts, len(data)), strict=True):
        batch = pa.RecordBatch.from_pandas(data.iloc[start:stop], preserve_index=False)
        parts.append(LabelledRows(batch, codes[start:stop], weight[start:stop], start))
        some = GroupCounts([GROUP], folds, np.ones(2))
        some.add(parts[-1])
        whole = some if whole is None else whole.merged(some)
    effect = _group(GROUP, whole.counts[0], np.ones(2), (), Gain(0.0, 0.0), keeps=False)
    for rows in parts:
        out.append(np.empty((len(rows.codes), 1)))
        effect.encode(rows.batch, folds.of(rows.numbers), out[-1], {})
    return effect, np.concatenate(out)


@settings(max_examples=15, deadline=None)
@given(n=st.integers(60, 700), row=st.floats(0.0, 1.0, exclude_max=True), seed=st.integers(0, 1_000))
def test_the_effect_of_a_triple_does_not_know_the_own_label(n, row, seed):
    data, number = frame(n, seed), int(row * n)
    weight = np.random.default_rng(seed).integers(1, 4, n).astype(float)
    held_out = np.flatnonzero(np.arange(n) % 7 == 3)
    _, before = counted(data, weight, held_out)
    changed = data.copy()
    changed.loc[number, "y"] = 1 - changed.loc[number, "y"]
    effect, after = counted(changed, weight, held_out)
    assert_array_equal(after[number], before[number])
    if number in held_out:  # held-out rows are learned from for new rows alone
        assert_array_equal(after, before)
    parts, in_parts = counted(changed, weight, held_out, cuts=(n // 3, n // 2))
    assert_array_equal(parts.encoder.cells, effect.encoder.cells)
    assert_allclose(in_parts, after, atol=1e-6)


@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(0, 300),
    n_cells=st.integers(1, 400),
    cuts=st.lists(st.integers(0, 300), max_size=4),
    weighted=st.booleans(),
    seed=st.integers(0, 1_000),
)
def test_cells_are_counted_in_any_parts(n, n_cells, cuts, weighted, seed):
    rng = np.random.default_rng(seed)
    cells, folds, codes = (rng.integers(-1, n_cells, n), rng.integers(0, 3, n), rng.integers(0, 2, n))
    weight = rng.uniform(0.5, 2.0, n) if weighted else None
    expected = np.zeros((n_cells, 3, 2))
    known = cells >= 0
    np.add.at(
        expected, (cells[known], folds[known], codes[known]), 1.0 if weight is None else weight[known]
    )
    whole = CellCounts(3, 2)
    for rows in np.split(np.arange(n), sorted(cuts)):
        some = CellCounts(3, 2)
        for half in np.array_split(rows, 2):
            some.add(cells[half], folds[half], codes[half], None if weight is None else weight[half])
        whole = whole.merged(some)
    there, counts = whole.sorted()
    assert_array_equal(there, np.flatnonzero(expected.any(axis=(1, 2))))
    assert_allclose(counts, expected[there], atol=1e-12)


def test_the_commonest_cells_are_kept():
    rng = np.random.default_rng(0)
    cells = np.concatenate([np.repeat(np.arange(5), 200), rng.integers(5, 400, 1_000)])
    zeros = np.zeros(len(cells), dtype=int)
    counts = CellCounts(1, 2, most=50)
    counts.add(rng.permutation(cells), zeros, zeros)
    there, totals = counts.sorted()
    assert set(range(5)) <= set(there.tolist())
    assert len(there) < 300
    assert (totals[:5].sum(axis=(1, 2)) == 200.0).all()


@settings(max_examples=40, deadline=None)
@given(
    keys=st.sets(st.integers(-(2**40), 2**40) | st.integers(-50, 50)),
    wanted=st.lists(st.integers(-(2**41), 2**41) | st.integers(-60, 60)),
    most=st.sampled_from([0, 200, 2**50]),
)
def test_positions_by_a_table_and_by_a_search(keys, wanted, most):
    if most == 2**50 and max(map(abs, keys), default=0) > 10**6:
        most = 200
    ordered = sorted(keys)
    expected = [ordered.index(w) if w in keys else len(keys) for w in wanted]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(values, "_TABLE_NUMBERS", most)
        positions = Positions(np.array(ordered, dtype=np.int64))
    assert positions(np.array(wanted, dtype=np.int64)).tolist() == expected


@pytest.mark.parametrize("n_classes", [2, 3])
def test_effects_survive_their_text_and_arrays(n_classes):
    data = frame(900, n_classes=n_classes)
    found, _ = learned(data, "pairs")
    check_state(found, frame(50, seed=9))


def test_groups_survive_their_text_and_arrays(grouped):
    check_state(grouped[1], flights(50, seed=9))


def check_state(found, new):
    again = effects_from_state(effects_as_state(found.chosen(None)))
    batch = pa.RecordBatch.from_pandas(new, preserve_index=False)
    for ours, theirs in zip(again, found.chosen(None), strict=True):
        assert ours.features == theirs.features
        out = np.empty((2, len(new), len(ours.features)))
        ours.encode(batch, out[0])
        theirs.encode(batch, out[1])
        assert_array_equal(out[0], out[1])
