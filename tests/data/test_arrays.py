"""Rows from arrays, memmaps and sparse matrices."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse

from cavity import SEPClassifier
from cavity.data import arrays
from cavity.data.arrays import ArraySource, is_mapped

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
        assert is_mapped(view)
    for own in (X, X[2:], np.array(whole), whole[[1, 2]] * 2.0, sparse.csr_array(X), X.tolist()):
        assert not is_mapped(own)


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
