"""Scalings of any kind: increasing, invertible, never flat, and not decided by outliers."""

import pickle
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.stats import norm

from cavity import SEPClassifier
from cavity.data import ArraySource, ParquetSource, statistics
from cavity.data.scaling import Scaling
from cavity.data.statistics import MOST_ROWS, Moments, learn_from_sample, sample_numbers, scaling_of

FLOAT64, FLOAT32 = np.dtype(np.float64), np.dtype(np.float32)
SHAPES = {
    "normal": lambda rng, n: rng.normal(5.0, 0.3, n),
    "skewed": lambda rng, n: rng.lognormal(0.0, 2.0, n),
    "far offset": lambda rng, n: 1e9 + rng.uniform(0, 1, n),
    "heavy tails": lambda rng, n: rng.standard_t(0.5, n),
    "whole numbers": lambda rng, n: rng.integers(0, 60, n).astype(float),
    "mostly zero": lambda rng, n: np.where(rng.random(n) < 0.9, 0.0, rng.lognormal(8.0, 1.0, n)),
    "few values": lambda rng, n: rng.integers(0, 4, n).astype(float),
    "constant": lambda rng, n: np.full(n, 3.0),
    "tiny": lambda rng, n: 1e-300 * rng.normal(size=n),
    "huge": lambda rng, n: 1e300 * rng.normal(size=n),
}
VARYING = [name for name in SHAPES if name not in ("constant",)]


def columns(n=3000, seed=0, names=tuple(SHAPES)):
    rng = np.random.default_rng(seed)
    return np.column_stack([SHAPES[name](rng, n) for name in names])


def scaled(scaling, X, dtype=FLOAT64):
    return scaling.apply(X, dtype)


def equal(one, other):
    """Whether two scalings are the same, to the last bit."""
    return pickle.dumps(one) == pickle.dumps(other)


@pytest.mark.parametrize("kind", ["robust", "quantile"])
@pytest.mark.parametrize("name", VARYING)
@given(seed=st.integers(0, 50), n=st.integers(12, 700))
@settings(max_examples=20)
def test_strictly_increasing_and_invertible_also_beyond_the_data(kind, name, seed, n):
    X = columns(n, seed, [name])
    scaling = scaling_of(X, None, kind)
    values = np.unique(X)
    range_ = values[-1] / 10 - values[0] / 10
    beyond = range_ * np.array([0.01, 0.1, 1.0, 20.0, 30.0])
    x = np.r_[values[0] - beyond[::-1], values, values[-1] + beyond]
    x = x[np.isfinite(x)]
    gaps = np.diff(x) > 1e-9 * np.maximum(np.abs(scaling.scale), np.abs(x[1:]))
    z = scaled(scaling, x[:, None])[:, 0]
    assert (np.diff(z)[gaps] > 0).all()
    assert (np.diff(z) >= -1e-9).all()
    back = scaling.invert(z[:, None])[:, 0]
    assert_allclose(back, x, rtol=1e-9, atol=1e-9 * scaling.scale[0])


@pytest.mark.parametrize("kind", ["robust", "quantile"])
def test_never_flat_however_far(kind):
    scaling = scaling_of(columns(names=["normal", "skewed"]), None, kind)
    far = np.array([1e3, 1e6, 1e12, 1e50, 1e150, 1e300])[:, None] * [1.0, 1.0]
    for sign in (1.0, -1.0):
        steps = np.diff(sign * scaled(scaling, sign * far), axis=0)
        assert (steps > 1.0).all()
        narrow = sign * scaled(
            scaling, sign * np.float32([[1e3], [1e12], [1e38]]) * np.ones(2, "f4"), FLOAT32
        )
        assert (np.diff(narrow, axis=0) > 1.0).all()
        assert np.isfinite(narrow).all()


@pytest.mark.parametrize("kind", ["robust", "quantile"])
@pytest.mark.parametrize("name", ["normal", "skewed", "heavy tails", "whole numbers", "mostly zero"])
def test_one_outlier_changes_no_other_row(kind, name):
    X = columns(20_000, names=[name])
    before = scaled(scaling_of(X, None, kind), X)
    after = scaled(scaling_of(np.r_[X, [[1e12]]], None, kind), X)
    assert_allclose(after, before, rtol=0.01, atol=0.003)


def test_one_outlier_does_not_collapse_a_column_of_few_values():
    X = np.r_[np.arange(1000) % 3, 1e12][:, None].astype(float)
    for kind in ("robust", "quantile"):
        z = scaled(scaling_of(X, None, kind), np.arange(3.0)[:, None])
        assert (np.diff(z, axis=0) > 0.3).all()


def test_a_normal_column_has_unit_deviation():
    X = np.random.default_rng(0).normal(7.0, 3.0, size=(50_000, 1))
    robust, quantile = (scaling_of(X, None, kind) for kind in ("robust", "quantile"))
    assert_allclose(robust.centre, 7.0, atol=0.05)
    assert_allclose(robust.scale, 3.0, rtol=0.02)
    assert_allclose(robust.unit, 3.0, rtol=0.02)
    assert_allclose(quantile.unit, 3.0, rtol=0.03)
    # The soft clip is close to a straight line where most rows are.
    near = np.abs(X[:, 0] - 7.0) < 3.0
    assert_allclose(scaled(robust, X)[near, 0], (X[near, 0] - 7.0) / 3.0, atol=0.06)


@pytest.mark.parametrize("name", ["normal", "skewed", "far offset", "heavy tails"])
def test_normal_scores_are_normal_and_bounded(name):
    X = columns(20_000, names=[name])
    z = np.sort(scaled(scaling_of(X, None, "quantile"), X)[:, 0])
    shares = (np.arange(len(z)) + 0.5) / len(z)
    inner = (shares > 0.01) & (shares < 0.99)
    assert_allclose(z[inner], norm.ppf(shares[inner]), atol=0.03)
    assert 2.5 < z[-10] < 4.5


def test_ties_have_their_middle_rank():
    X = np.repeat(np.arange(20.0), np.arange(1, 21))[:, None]
    z = scaled(scaling_of(X, None, "quantile"), np.arange(20.0)[:, None])[:, 0]
    counts = np.arange(1, 21)
    ranks = (np.cumsum(counts) - counts / 2) / counts.sum()
    assert_allclose(z, norm.ppf(1e-4 + (1 - 2e-4) * ranks))


@pytest.mark.parametrize("kind", ["robust", "quantile"])
def test_columns_of_few_values_are_standardised(kind):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.random(3000) < 0.01, rng.integers(0, 10, 3000), np.full(3000, 4.0)])
    X = X.astype(float)
    standard, found = Moments.of(X, None).scaling(), scaling_of(X, None, kind)
    assert_allclose(scaled(found, X), scaled(standard, X), rtol=1e-12, atol=1e-12)
    assert_allclose(found.scale[0], 0.5)


def test_most_rows_at_one_value():
    """The others are about two units away, whatever the largest of them is."""
    X = np.r_[np.zeros(900), np.linspace(1.0, 3.0, 101), 1e9][:, None]
    found = scaling_of(X, None, "robust")
    assert_allclose(found.centre, 0.0)
    assert_allclose(found.scale, 1.0, rtol=0.02)


@pytest.mark.parametrize("kind", ["robust", "quantile"])
def test_rounding_errors_of_a_constant_are_not_variation(kind):
    X = (0.1 * (1.0 + 1e-15 * np.arange(50)))[:, None]
    found = scaling_of(X, None, kind)
    assert_array_equal(found.scale, 1.0)
    assert_allclose(scaled(found, X), 0.0, atol=1e-12)


@pytest.mark.parametrize("kind", ["robust", "quantile"])
def test_values_that_differ_by_rounding_alone_are_one_value(kind):
    hours = np.random.default_rng(0).integers(0, 24, size=2_000)
    X = np.sin(2 * np.pi * hours / 24)[:, None]  # that of 12 hours is 1.2e-16
    found = scaling_of(X, None, kind)
    assert_allclose(scaled(found, X), scaled(found, np.round(X, 13)), atol=1e-9)


@pytest.mark.parametrize("kind", ["robust", "quantile"])
@given(seed=st.integers(0, 20))
@settings(max_examples=20)
def test_a_weight_counts_copies(kind, seed):
    rng = np.random.default_rng(seed)
    X, weight = (
        columns(60, seed, ["normal", "whole numbers", "mostly zero", "few values"]),
        rng.integers(0, 4, 60),
    )
    weighted = scaling_of(X, weight.astype(float), kind)
    repeated = scaling_of(X.repeat(weight, axis=0), None, kind)
    tenth = scaling_of(X, weight / 10, kind)
    for other in (repeated, tenth):
        assert_allclose(weighted.centre, other.centre)
        assert_allclose(weighted.scale, other.scale)
        assert_allclose(scaled(weighted, X), scaled(other, X), atol=1e-9)


@pytest.mark.parametrize("kind", ["robust", "quantile"])
def test_the_order_of_the_rows_does_not_matter(kind):
    X = columns(500)
    backwards = scaling_of(X[::-1], None, kind)
    assert_allclose(scaled(backwards, X), scaled(scaling_of(X, None, kind), X), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ["robust", "quantile"])
def test_the_units_of_a_column_do_not_matter(kind):
    X = columns(500, names=["normal", "skewed", "mostly zero", "few values"])
    other = 2.5 * X - 3.0
    here, there = (scaled(scaling_of(rows, None, kind), rows) for rows in (X, other))
    assert_allclose(here, there, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["robust", "quantile"])
@pytest.mark.parametrize("offset", [0.0, 1e7])
def test_the_precision_of_the_rows_does_not_matter(kind, offset):
    X = (100.0 * np.random.default_rng(0).normal(size=(500, 2)) + offset).astype(np.float32)
    scaling = scaling_of(X, None, kind)
    wide = scaled(scaling, X.astype(np.float64))
    # A value is rounded by this much at most, and where values are dense a scaling is steep.
    rounded = np.finfo(np.float32).eps * np.abs(X - np.median(X, axis=0)).max()
    steepest = max(
        np.max(np.diff(z[first]) / np.diff(values))
        for column, z in zip(X.T.astype(float), wide.T, strict=True)
        for values, first in [np.unique(column, return_index=True)]
    )
    assert_allclose(scaled(scaling, X, FLOAT32), wide, rtol=0.0, atol=1e-6 + rounded * steepest)
    assert_allclose(scaled(scaling, X.astype(np.float64), FLOAT32), wide, atol=1e-6)


@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64])
def test_applied_in_parts(dtype):
    """Rows that are applied together are as those applied one by one, and the input stays."""
    X = columns(300, names=["normal", "few values", "skewed"])
    kept = X.copy()
    for kind in ("robust", "quantile"):
        scaling = scaling_of(X, None, kind)
        applied = scaled(scaling, X, dtype)
        assert applied.dtype == dtype
        assert applied.flags.c_contiguous
        assert_array_equal(np.vstack([scaled(scaling, X[[i]], dtype) for i in range(30)]), applied[:30])
    assert_array_equal(X, kept)


def test_standard_is_a_straight_line():
    """The arithmetic of the hot path, to the last bit."""
    X = columns(100, names=["normal", "skewed"])
    scaling = Moments.of(X, None).scaling()
    assert_array_equal(scaled(scaling, X), (X - scaling.centre) * (1.0 / scaling.scale))


class TestSample:
    def test_all_rows_of_a_small_table(self):
        assert_array_equal(sample_numbers(MOST_ROWS, 8), np.arange(MOST_ROWS))

    @pytest.mark.parametrize("n", [MOST_ROWS + 1, 123_457, 10**10])
    def test_different_rows_from_everywhere(self, n):
        numbers = sample_numbers(n, 8)
        assert len(numbers) == MOST_ROWS
        assert (np.diff(numbers) > 0).all()
        assert 0 <= numbers[0] < n * 2e-5 + 1
        assert n * (1 - 2e-5) - 1 < numbers[-1] < n
        in_its_part = numbers * (MOST_ROWS / n) % 1.0
        if n > 10**6:
            assert_allclose(np.quantile(in_its_part, [0.25, 0.5, 0.75]), [0.25, 0.5, 0.75], atol=0.01)

    def test_wide_rows_are_fewer(self):
        assert len(sample_numbers(10**6, 20_000)) == 1_250


@pytest.mark.parametrize("kind", ["robust", "quantile"])
@pytest.mark.parametrize("most", [2_000, 500])
def test_arrays_sparse_arrays_and_files_agree(kind, most, tmp_path, monkeypatch):
    monkeypatch.setattr(statistics, "MOST_ROWS", most)
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    X = columns(2_000, names=["normal", "mostly zero", "few values"])
    labels = (X[:, 0] > 5).astype(int)
    frame = pd.DataFrame(X, columns=list("abc")).assign(y=labels)
    frame.to_parquet(tmp_path / "t.parquet", row_group_size=700)
    found = learn_from_sample(ArraySource(X, labels), kind)
    assert equal(found, learn_from_sample(ArraySource(sparse.csr_matrix(X), labels), kind))
    assert equal(found, learn_from_sample(ParquetSource(tmp_path / "t.parquet", "y"), kind))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("kind", ["robust", "quantile"])
def test_a_fit_has_inducing_points_in_the_units_of_the_rows(kind):
    X = columns(200, names=["normal", "skewed"])
    labels = (X[:, 0] > 5).astype(int)
    model = SEPClassifier(n_inducing=8, max_epochs=3, scaling=kind, random_state=0).fit(X, labels)
    again = model.model_.scaling.apply(model.inducing_points_, FLOAT64)
    assert_allclose(again, model.model_.Z, rtol=1e-9, atol=1e-9)
    assert model.score(X, labels) > 0.9
    assert (model.relevance_.lengthscale > 0).all()
    stream = SEPClassifier(n_inducing=8, scaling=kind, random_state=0).partial_fit(X, labels)
    assert equal(stream.model_.scaling, model.model_.scaling)


def test_a_pickled_scaling_has_no_caches():
    scaling = scaling_of(columns(100), None, "quantile")
    fresh = pickle.dumps(scaling)
    scaled(scaling, columns(100))
    assert pickle.dumps(scaling) == fresh
    assert isinstance(pickle.loads(fresh), Scaling)


def test_knots_increase():
    knots = scaling_of(columns(5_000), None, "quantile").knots
    for _, positions, values in knots.columns():
        assert 2 <= len(positions) <= 202
        assert all(one < other for array in (positions, values) for one, other in pairwise(array))
