"""Rows from arrays, memmaps and sparse matrices."""

import os

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse

from cavity import SEPClassifier, SourceError
from cavity.data import arrays, open_source
from cavity.data.arrays import ArrayBlock, ArraySource, mapping_of
from cavity.data.source import with_offset
from cavity.inference import reporting
from support import table

X = np.random.default_rng(0).normal(size=(23, 3))
LABELS = (X[:, 0] > 0).astype(np.int8)
WEIGHT = np.arange(23.0)


@pytest.fixture(params=["array", "csr", "memmap"])
def source(request, tmp_path):
    if request.param == "csr":
        return ArraySource(sparse.csr_matrix(X), LABELS, WEIGHT)
    if request.param == "memmap":
        mapped = np.memmap(tmp_path / "X.bin", dtype=np.float64, mode="w+", shape=X.shape)
        mapped[:] = X
        return ArraySource(mapped, LABELS, WEIGHT)
    return ArraySource(X, LABELS, WEIGHT)


@pytest.mark.parametrize("size", [1, 5, 23, 100])
def test_blocks_are_all_rows_in_order(source, size):
    blocks = list(source.blocks(size))
    loaded = [block.load() for block in blocks]
    assert all(1 <= len(rows.labels) <= size for rows in loaded)
    assert_array_equal(np.vstack([rows.X for rows in loaded]), X)
    assert_array_equal(np.concatenate([rows.labels for rows in loaded]), LABELS)
    assert_array_equal(np.concatenate([rows.weight for rows in loaded]), WEIGHT)
    assert_array_equal(np.concatenate([np.arange(23)[block.index] for block in blocks]), np.arange(23))


@pytest.mark.parametrize("size", [1, 5, 23, 100])
def test_batches_are_all_rows_once(source, size):
    batches = list(source.batches(size, np.random.default_rng(0)))
    indices = np.concatenate([batch.index for batch in batches])
    assert_array_equal(np.sort(indices), np.arange(23))
    lengths = [len(batch.index) for batch in batches]
    assert max(lengths) - min(lengths) <= 1
    for batch in batches:
        assert_array_equal(batch.load().X, X[batch.index])


def test_a_sample_has_no_row_twice(source):
    rows = source.sample(10, np.random.default_rng(0))
    assert len(np.unique(rows.X, axis=0)) == 10
    assert_array_equal(source.sample(1000, np.random.default_rng(0)).X, X)


def test_totals(source):
    assert source.n_rows == 23
    assert source.n_features == 3
    assert source.total_weight == WEIGHT.sum()
    assert ArraySource(X, LABELS).total_weight == 23
    assert ArraySource(X, LABELS).blocks(5)[0].load().weight is None


@pytest.mark.parametrize(
    ("given", "tile"),
    [("f4", "f4"), ("f8", "f8"), ("u1", "f4"), ("i2", "f4"), ("i4", "f8"), ("i8", "f8"), ("f2", "f4")],
)
def test_precision_does_justice_to_the_data(given, tile):
    assert ArraySource(np.zeros((2, 1), given), LABELS[:2]).dtype == np.dtype(tile)


def mapped(path, values):
    """A memmap of values."""
    whole = np.memmap(path, dtype=values.dtype, mode="w+", shape=values.shape)
    whole[:] = values
    return whole


def test_a_map_is_found_behind_views_of_it(tmp_path):
    whole = mapped(tmp_path / "X.bin", X)
    for view in (whole, np.asarray(whole), np.asarray(whole)[3:, :2], whole[2:].T):
        assert mapping_of(view) is whole.base
    for own in (X, X[2:], np.array(whole), whole[[1, 2]] * 2.0, sparse.csr_array(X), X.tolist()):
        assert mapping_of(own) is None


def test_a_memmap_that_was_passed_to_fit_is_read_ahead(tmp_path, monkeypatch):
    ahead = []

    def noted(items, depth, read_ahead=arrays.read_ahead):
        ahead.append(depth)
        return read_ahead(items, depth)

    monkeypatch.setattr(arrays, "read_ahead", noted)
    model = SEPClassifier(n_inducing=4, batch_size=8, max_epochs=2, random_state=0, n_jobs=1)
    proba = model.fit(X, LABELS).predict_proba(X)
    assert not ahead
    again = model.fit(mapped(tmp_path / "X.bin", X), LABELS).predict_proba(X)
    assert ahead
    assert_array_equal(again, proba)


MANY, MANY_LABELS = table(6_000)


@pytest.mark.parametrize("kind", ["npy", "memmap", "weighted"])
def test_rows_of_a_file_that_shrinks_are_an_error(tmp_path, kind):
    """Without the check the process would end by SIGBUS."""
    path = tmp_path / "X.npy"
    np.save(path, MANY)
    if kind == "memmap":
        source = ArraySource(np.asarray(np.load(path, mmap_mode="r")), MANY_LABELS)
    else:
        weight = np.arange(len(MANY)) % 3 if kind == "weighted" else None
        source = open_source(path, MANY_LABELS, weight)
    before = os.path.getsize(path)
    batches = source.batches(500, np.random.default_rng(0))
    next(batches).load()
    os.truncate(path, before - 50_000)
    name = "the file that X is mapped to" if kind == "memmap" else str(path)
    words = f"{name} shrank from {before:,} to {before - 50_000:,} bytes"
    with pytest.raises(SourceError, match=words):
        source.blocks(100)[-1].load()
    with pytest.raises(SourceError, match=words):
        source.take(np.arange(3))
    with pytest.raises(SourceError, match=words):
        list(batches)


def test_a_file_that_shrinks_after_its_size_was_checked(tmp_path, monkeypatch):
    path = tmp_path / "X.npy"
    np.save(path, MANY)
    source, check = open_source(path, MANY_LABELS), ArrayBlock._check_size

    def checked_too_early(block, mapping):
        check(block, mapping)
        os.truncate(path, 10_000)

    monkeypatch.setattr(ArrayBlock, "_check_size", checked_too_early)
    with pytest.raises(SourceError, match=r"shrank from .* to 10,000 bytes"):
        source.blocks(100)[-1].load()


@pytest.mark.parametrize("batch_size", [None, 500])
def test_a_fit_on_a_file_that_shrinks_ends_in_words(tmp_path, batch_size):
    path = tmp_path / "X.npy"
    np.save(path, MANY)

    class Shrinking:
        def update(self, iteration, share):
            os.truncate(path, 10_000)

    model = SEPClassifier(n_inducing=4, batch_size=batch_size, max_epochs=3, random_state=0)
    with reporting(Shrinking()), pytest.raises(SourceError, match="write it again and fit again"):
        model.fit(path, MANY_LABELS)


def test_files_of_labels_and_weights_are_read_once(tmp_path):
    for name, values in {"X": MANY, "y": MANY_LABELS, "w": np.ones(len(MANY))}.items():
        np.save(tmp_path / f"{name}.npy", values)
    source = open_source(tmp_path / "X.npy", tmp_path / "y.npy", tmp_path / "w.npy")
    for name in ("y", "w"):
        os.truncate(tmp_path / f"{name}.npy", 200)
    assert source.blocks(6_000)[0].load().weight.sum() == len(MANY)
    with pytest.raises(SourceError, match=r"y\.npy: not an array"):
        open_source(tmp_path / "X.npy", tmp_path / "y.npy")


@pytest.mark.parametrize("weighted", [False, True])
def test_the_first_columns_keep_the_offsets_of_the_rows(weighted):
    source = with_offset(ArraySource(np.eye(3), np.array([0, 1, 1])), np.arange(3.0)[:, None])
    if weighted:
        offset = source.offset
        source = with_offset(source.with_class_factors(np.array([1.0, 2.0]), np.ones(2)), offset)
    first = source.leading(2)
    assert first.n_features == 2
    assert_array_equal(first.offset, source.offset)
