import numpy as np
import pytest
import tiny_data
from benchmarks.data import DataNotFoundError, fixed, holdout, load, one_split, redrawn, splits, whitened
from benchmarks.start import starting_point


@pytest.fixture(autouse=True)
def data_folder(tmp_path, monkeypatch):
    tiny_data.write(tmp_path / "data")
    monkeypatch.setenv("CAVITY_DATA", str(tmp_path / "data"))


def test_load_gives_floats_and_plus_minus_one():
    for name, dtype in (("heart", np.float64), ("covtype", np.float32)):
        data = load(name)
        assert data.X.dtype == dtype
        assert set(data.y) == {-1, 1}
        assert data.name == name


def test_unknown_name_lists_the_names():
    with pytest.raises(ValueError, match=r"no dataset 'hart'.*heart"):
        load("hart")


def test_folder_not_set_says_what_to_do(monkeypatch):
    monkeypatch.delenv("CAVITY_DATA")
    with pytest.raises(DataNotFoundError, match="CAVITY_DATA is not set"):
        load("heart")


def test_missing_file_is_named():
    with pytest.raises(DataNotFoundError, match=r"sonar\.npz"):
        load("sonar")


def test_a_set_that_is_only_a_file(tmp_path):
    y = np.tile([-1, 1], 20).astype(np.int8)
    np.savez(tmp_path / "data" / "phishing.npz", X=np.ones((40, 2), np.int8), y=y)
    data = load("phishing")
    assert data.X.dtype == np.float32
    np.testing.assert_array_equal(data.y, y)


def test_one_split_has_the_sets_own_test_rows_or_thirty_per_cent_or_a_limit(monkeypatch):
    np.testing.assert_array_equal(one_split("mnist").test.X, fixed("mnist").test.X)
    np.testing.assert_array_equal(one_split("heart").test.X, holdout("heart", 15).test.X)
    monkeypatch.setattr("benchmarks.data.TEST_ROWS", 7)
    np.testing.assert_array_equal(one_split("heart").test.X, holdout("heart", 7).test.X)


def test_splits_are_the_same_every_time():
    first, second = list(splits("heart", 3)), list(splits("heart", 5))
    for a, b in zip(first, second, strict=False):
        np.testing.assert_array_equal(a.train.X, b.train.X)
        np.testing.assert_array_equal(a.test.y, b.test.y)
    assert not np.array_equal(second[0].test.X, second[1].test.X)
    assert not np.array_equal(next(splits("heart", 1, seed=1)).test.X, first[0].test.X)


def test_split_covers_all_rows_once():
    split = next(splits("covtype", 1, test_fraction=0.2))
    assert (len(split.train.y), len(split.test.y)) == (16, 4)
    rows = np.concatenate([split.train.X, split.test.X])
    assert len(np.unique(rows, axis=0)) == 20


def test_standardised_on_training_rows_only():
    split = next(splits("heart", 1))
    varying = [0, 2]
    np.testing.assert_allclose(split.train.X[:, varying].mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(split.train.X[:, varying].std(axis=0), 1.0)
    assert np.abs(split.test.X[:, varying].mean(axis=0)).min() > 1e-6
    assert not split.train.X[:, 1].any()


def test_mnist_keeps_its_own_split_and_digits():
    split = fixed("mnist")
    assert (len(split.train.y), len(split.test.y)) == (30, 10)
    assert split.train.X.max() <= 1.0
    np.testing.assert_array_equal(split.test.digit % 2 == 1, split.test.y == 1)


def test_mnist_redrawn_has_other_test_rows_for_every_seed():
    """As many as its own, and no row twice."""
    own, first, second = fixed("mnist"), redrawn("mnist", 0), redrawn("mnist", 1)
    for split in (first, second):
        assert (len(split.train.y), len(split.test.y)) == (30, 10)
        rows = np.concatenate([split.train.X, split.test.X])
        everything = np.concatenate([own.train.X, own.test.X])
        np.testing.assert_array_equal(np.sort(rows.sum(axis=1)), np.sort(everything.sum(axis=1)))
        np.testing.assert_array_equal(split.test.digit % 2 == 1, split.test.y == 1)
    assert not np.array_equal(first.test.X, second.test.X)
    np.testing.assert_array_equal(redrawn("mnist", 1).test.X, second.test.X)


@pytest.mark.parametrize("split", [fixed, lambda name: redrawn(name, 0)])
def test_a_set_without_test_rows_says_so(split):
    with pytest.raises(ValueError, match="no test rows of its own"):
        split("heart")


def test_airline_counts_age_from_the_issue_date_and_fills_the_unknown():
    data = load("airline")
    assert len(data.y) == 7  # five known of six, and two extra rows
    np.testing.assert_allclose(data.X[:, 0], [0, 365 / 365.25, 0, 0, 0, 0, 0], rtol=1e-6)
    assert len(holdout("airline", 2).test.y) == 2


def test_every_method_starts_at_the_same_rows():
    X = load("heart").X
    a, b = starting_point(X, 10, seed=3), starting_point(X, 10, seed=3)
    np.testing.assert_array_equal(a.Z, b.Z)
    assert a.lengthscale == b.lengthscale > 0
    assert {tuple(z) for z in a.Z} <= {tuple(x) for x in X}


def test_whitened_by_the_training_rows():
    split = holdout("covtype", 4)
    turned = whitened(split)
    assert turned.train.X.dtype == split.train.X.dtype
    assert turned.train.name == split.train.name
    covariance = np.cov(turned.train.X, rowvar=False)
    np.testing.assert_allclose(covariance - np.diag(np.diag(covariance)), 0.0, atol=1e-3)
    # Column by column it is the residual given those before: the first one stays.
    np.testing.assert_allclose(turned.test.X[:, 0], split.test.X[:, 0], atol=1e-4)
