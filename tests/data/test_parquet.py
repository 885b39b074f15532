"""Rows from Parquet files: the same as from arrays, really shuffled, in bounded memory."""

import pickle
import threading
import tracemalloc
from decimal import Decimal

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from cavity.data import ArraySource, ParquetSource, SourceError, check_source
from cavity.data import arrow as parquet_module

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

N = 2_500


def table(n=N, d=4, seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)).astype(dtype)
    return X, rng.integers(0, 2, n).astype(np.int8)


def write(path, X, labels, row_group_size=None, **columns):
    data = {f"x{j}": X[:, j] for j in range(X.shape[1])} | {"y": labels} | columns
    pq.write_table(pa.table(data), path, row_group_size=row_group_size)


@pytest.fixture
def folder(tmp_path):
    """2,500 rows in three files with row groups of 300."""
    X, labels = table()
    for name, part in (("b", slice(900, 2_000)), ("a", slice(0, 900)), ("c", slice(2_000, N))):
        write(tmp_path / f"{name}.parquet", X[part], labels[part], 300)
    (tmp_path / "_SUCCESS").touch()
    return tmp_path


def small_buffers(monkeypatch, rows):
    monkeypatch.setattr(parquet_module, "BUFFER_ROWS", rows)
    monkeypatch.setattr(parquet_module, "BUFFER_GROUPS_BYTES", 0)
    monkeypatch.setattr(parquet_module.ParquetSource, "buffer_rows", rows)
    monkeypatch.setattr(parquet_module, "_IN_ORDER_BYTES", rows * 32)


@pytest.mark.parametrize("rows", [150, 1_000, 10_000])
def test_a_folder_keeps_the_contract_whatever_the_buffer(folder, monkeypatch, rows):
    small_buffers(monkeypatch, rows)
    check_source(ParquetSource(folder, "y"), 70)


@pytest.mark.parametrize("size", [64, 1_000, 4_000])
def test_the_same_tiles_as_from_an_array(folder, size, monkeypatch):
    small_buffers(monkeypatch, 500)
    source, array = ParquetSource(folder, "y"), ArraySource(*table())
    tiles = list(zip(source.blocks(size), array.blocks(size), strict=True))
    for ours, theirs in tiles:
        assert ours.index == theirs.index
        for a, b in zip(ours.load(), theirs.load(), strict=True):
            assert_array_equal(a, b)
    assert source.dtype == array.dtype


def test_rows_of_a_batch_and_a_sample_are_those_of_their_numbers(folder, monkeypatch):
    small_buffers(monkeypatch, 400)
    X, labels = table()
    source = ParquetSource(folder, "y")
    for batch in source.batches(64, np.random.default_rng(0)):
        rows = batch.load()
        assert_array_equal(rows.X, X[batch.index])
        assert_array_equal(rows.labels, labels[batch.index])
    rows = source.sample(100, np.random.default_rng(0))
    assert len(np.unique(rows.X, axis=0)) == 100
    assert np.isin(rows.X[:, 0], X[:, 0]).all()


def test_minibatches_mix_row_groups_and_seeds_differ(tmp_path, monkeypatch):
    X, labels = table(20_000)
    write(tmp_path / "t.parquet", X, labels, 500)
    small_buffers(monkeypatch, 4_000)
    source = ParquetSource(tmp_path / "t.parquet", "y")
    orders = []
    for seed in range(3):
        batches = [batch.index for batch in source.batches(200, np.random.default_rng(seed))]
        assert {len(index) for index in batches} == {200}
        assert min(len(np.unique(index // 500)) for index in batches) >= 6
        orders.append(np.concatenate(batches))
    assert not np.array_equal(orders[0], orders[1])
    half = [order[: len(order) // 2].mean() for order in orders]
    assert len(np.unique(half)) == 3


def test_row_groups_come_in_an_order_that_depends_on_the_seed(tmp_path, monkeypatch):
    """In the order of the file, the first minibatches would never have rows of its end."""
    X, labels = table(2_000)
    write(tmp_path / "t.parquet", X, labels, 100)
    small_buffers(monkeypatch, 300)
    source = ParquetSource(tmp_path, "y")
    first = [next(source.batches(100, np.random.default_rng(seed))).index // 100 for seed in range(12)]
    groups = [frozenset(numbers.tolist()) for numbers in first]
    assert all(len(some) < 20 for some in groups), "the test needs more row groups than are read at once"
    assert len(set(groups)) == len(groups)
    assert frozenset.union(*groups) == frozenset(range(20))


def test_a_single_large_row_group_is_read_from_several_places(tmp_path, monkeypatch):
    X, labels = table(140_000, d=1)
    write(tmp_path / "t.parquet", X, labels)
    small_buffers(monkeypatch, 20_000)
    source = ParquetSource(tmp_path / "t.parquet", "y")
    first = next(source.batches(1_000, np.random.default_rng(0))).index
    assert len(np.unique(first // 35_000)) == 4
    check_source(source, 5_000)


@pytest.mark.parametrize("skip", [0, 1, 6, 7, 20, 39, 40, 50])
def test_skipping_is_dropping(folder, monkeypatch, skip):
    small_buffers(monkeypatch, 400)
    source = ParquetSource(folder, "y")
    whole = list(source.batches(64, np.random.default_rng(5)))
    rest = list(source.batches(64, np.random.default_rng(5), skip=skip))
    assert len(rest) == max(0, len(whole) - skip)
    for a, b in zip(rest, whole[skip:], strict=True):
        assert_array_equal(a.index, b.index)
        assert_array_equal(a.load().X, b.load().X)


def test_buffers_that_are_skipped_are_not_read(folder, monkeypatch):
    small_buffers(monkeypatch, 400)
    source = ParquetSource(folder, "y")
    n = len(list(source.batches(64, np.random.default_rng(5))))
    read = []
    whole = source._read
    monkeypatch.setattr(source, "_read", lambda windows: read.append(len(windows)) or whole(windows))
    assert len(list(source.batches(64, np.random.default_rng(5), skip=n - 1))) == 1
    assert read == [1]


def test_a_generator_is_left_in_the_same_state_whether_batches_are_skipped_or_not(folder):
    a, b = np.random.default_rng(0), np.random.default_rng(0)
    source = ParquetSource(folder, "y")
    list(source.batches(64, a))
    list(source.batches(64, b, skip=10))
    assert a.random() == b.random()


def test_columns_by_name_in_the_order_given(tmp_path):
    X, labels = table(100)
    write(tmp_path / "t.parquet", X, labels, w=np.arange(100.0))
    source = ParquetSource(tmp_path / "t.parquet", "y", columns=["x2", "x0"], weight="w")
    rows = source.sample(100, np.random.default_rng(0))
    assert_array_equal(rows.X, X[:, [2, 0]])
    assert_array_equal(rows.weight, np.arange(100.0))
    assert source.feature_names.tolist() == ["x2", "x0"]
    assert source.total_weight == np.arange(100.0).sum()
    check_source(source)


@pytest.mark.parametrize(
    ("kinds", "dtype"),
    [
        (["float32", "int16", "bool"], np.float32),
        (["float32", "uint8", "float16"], np.float32),
        (["float32", "int32"], np.float64),
        (["float32", "float64"], np.float64),
        (["bool", "int64"], np.float64),
        (["int8", "decimal"], np.float64),
    ],
)
def test_numeric_columns_and_their_precision(tmp_path, kinds, dtype):
    values = np.array([0, 1, 1, 0, 1])
    columns = {
        kind: [Decimal(int(v)) for v in values] if kind == "decimal" else values.astype(kind)
        for kind in kinds
    }
    pq.write_table(pa.table(columns | {"y": ["b", "a", "b", "b", "a"]}), tmp_path / "t.parquet")
    source = ParquetSource(tmp_path / "t.parquet", "y")
    rows = source.sample(5, np.random.default_rng(0))
    assert source.dtype == rows.X.dtype == dtype
    assert_array_equal(rows.X, np.repeat(values[:, None], len(kinds), axis=1))
    check_source(source)


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        ([2, -1, 2], [-1, 2]),
        ([True, False, True], [False, True]),
        ([1.0, 0.0, 1.0], [0.0, 1.0]),
        (["yes", "no", "yes"], ["no", "yes"]),
        (pa.array(["yes", "no", "yes"]).dictionary_encode(), ["no", "yes"]),
        (pa.array([Decimal(1), Decimal(0), Decimal(1)]), [0.0, 1.0]),
    ],
)
def test_classes_are_sorted_and_codes_are_their_positions(tmp_path, labels, classes):
    pq.write_table(pa.table({"x": np.arange(float(len(labels))), "y": labels}), tmp_path / "t.parquet")
    source = ParquetSource(tmp_path / "t.parquet", "y")
    assert source.classes.tolist() == classes
    codes = source.sample(1_000, np.random.default_rng(0)).labels
    expected = [classes.index(v) for v in (labels if isinstance(labels, list) else labels.to_pylist())]
    assert codes.tolist() == expected


def test_more_classes_than_a_thousand_must_be_listed(tmp_path):
    pq.write_table(pa.table({"x": np.arange(1_300.0), "y": np.arange(1_300)}), tmp_path / "t.parquet")
    with pytest.raises(SourceError, match=r"row group 0: the target 'y' has more than 1,000 different"):
        ParquetSource(tmp_path / "t.parquet", "y")
    source = ParquetSource(tmp_path / "t.parquet", "y", classes=np.arange(1_300))
    assert_array_equal(source.labels, np.arange(1_300))


def test_classes_that_are_given_keep_their_codes(tmp_path):
    pq.write_table(pa.table({"x": [1.0, 2.0], "y": ["b", "b"]}), tmp_path / "t.parquet")
    source = ParquetSource(tmp_path / "t.parquet", "y", classes=["b", "a"])
    assert source.classes.tolist() == ["a", "b"]
    assert source.sample(2, np.random.default_rng(0)).labels.tolist() == [1, 1]


def test_an_index_that_pandas_wrote_is_no_feature(tmp_path):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"x": [1.0, 2.0, 3.0], "y": [0, 1, 0]}, index=[5, 3, 9])
    frame.to_parquet(tmp_path / "t.parquet")
    assert ParquetSource(tmp_path / "t.parquet", "y").feature_names.tolist() == ["x"]


def test_a_part_without_rows_is_passed_over(folder):
    X, labels = table(0)
    write(folder / "aa.parquet", X, labels)
    assert ParquetSource(folder, "y").n_rows == N


def test_a_source_can_be_pickled(folder):
    source = pickle.loads(pickle.dumps(ParquetSource(folder, "y")))
    assert source.n_rows == N
    check_source(source)


@pytest.mark.parametrize("method", ["blocks", "batches"])
def test_no_thread_is_left_when_a_consumer_stops_early(folder, monkeypatch, method):
    small_buffers(monkeypatch, 300)
    source = ParquetSource(folder, "y")
    before = threading.active_count()
    rows = iter(
        source.blocks(50) if method == "blocks" else source.batches(50, np.random.default_rng(0))
    )
    next(rows)
    assert threading.active_count() == before + 1
    rows.close()
    assert threading.active_count() == before


def test_memory_is_bounded(tmp_path):
    n, d = 1_000_000, 8
    X = np.random.default_rng(0).standard_normal((n, d), dtype=np.float32)
    write(tmp_path / "t.parquet", X, X[:, 0] > 0)
    del X
    source = ParquetSource(tmp_path / "t.parquet", "y")
    arrow = 0
    tracemalloc.start()
    try:
        pool = pa.default_memory_pool()
        for passed in (source.blocks(2_048), source.batches(5_000, np.random.default_rng(0))):
            seen = 0
            for i, block in enumerate(passed):
                seen += len(block.load().X)
                if i % 50 == 0:
                    arrow = max(arrow, pool.bytes_allocated())
            assert seen == n
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # The table has 32 MB; two buffers of 16 MB at most, and their permutations, are in memory.
    assert source.buffer_rows == 333_333
    assert peak < 40e6
    assert arrow < 60e6
