"""Centre, scale and whitening matrix, learned in one streaming pass."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from cavity.data.scaling import Scaling
from cavity.data.statistics import (
    FLAT,
    SAMPLED_KINDS,
    Moments,
    learn_standard,
    scaling_of,
    whitening_matrix,
)

FLOAT64, FLOAT32 = np.dtype(np.float64), np.dtype(np.float32)


def learn(X, *, cuts=(), weight=None, whiten=False):
    parts = [part for part in np.split(np.arange(len(X)), sorted(cuts)) if len(part)]
    return learn_standard(
        Moments.of(X[part], None if weight is None else weight[part], products=whiten) for part in parts
    )


@given(cuts=st.lists(st.integers(0, 40), max_size=6), seed=st.integers(0, 5))
def test_mean_and_deviation_whatever_the_tiles(cuts, seed):
    X = np.random.default_rng(seed).normal([5.0, -1e3], [1e-3, 50.0], size=(40, 2))
    found = learn(X, cuts=cuts)
    assert_allclose(found.centre, X.mean(axis=0), rtol=1e-12)
    assert_allclose(found.scale, X.std(axis=0), rtol=1e-9)


@pytest.mark.parametrize("scale", [1e-300, 1e-150, 1e-20, 1.0, 1e20, 1e150, 1e300])
def test_any_scale(scale):
    X = np.random.default_rng(0).normal(size=(50, 3))
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        found = learn(scale * X, cuts=[20])
    assert_allclose(found.centre / scale, X.mean(axis=0), atol=1e-12)
    assert_allclose(found.scale / scale, X.std(axis=0), rtol=1e-9)


def test_scales_that_differ_from_tile_to_tile():
    X = np.concatenate([np.full((10, 1), 1e-100), np.full((10, 1), 1e100)])
    found = learn(X, cuts=[10])
    assert_allclose(found.centre, 5e99)
    assert_allclose(found.scale, 5e99)


@pytest.mark.parametrize(
    "value", [0.0, 0.1, -1e150, 1e-150, 12345.678, -1e300, 5e-324, np.finfo(float).max]
)
def test_a_constant_column_is_centred_and_keeps_its_units(value):
    X = np.full((1000, 1), value)
    found = learn(X, cuts=[300, 301])
    assert_array_equal(found.scale, [1.0])
    assert_array_equal(found.apply(X, FLOAT64), 0.0)


@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64])
@pytest.mark.parametrize("given_dtype", [FLOAT32, FLOAT64])
def test_numbers_at_both_ends_of_their_type(given_dtype, dtype):
    ends = np.finfo(given_dtype)
    rng = np.random.default_rng(0)
    largest = rng.choice([ends.min, 0.5 * ends.max, ends.max], 200)
    smallest = ends.smallest_subnormal * rng.integers(0, 100, 200).astype(given_dtype)
    X = np.column_stack([largest, smallest]).astype(given_dtype)
    standardizer = learn(X, cuts=[70])
    applied = standardizer.apply(X, dtype)
    assert np.isfinite(applied).all()
    assert_allclose(applied[:, 0].std(), 1.0, rtol=1e-5)
    assert np.isfinite(standardizer.invert(applied)).all()


def test_large_numbers_that_hardly_differ_stay_moderate():
    X = 1e300 * (1.0 + 1e-14 * np.random.default_rng(0).normal(size=(50, 1)))
    assert np.abs(learn(X, cuts=[20]).apply(X, FLOAT64)).max() < 10.0


def test_weights_count_rows():
    X = np.random.default_rng(0).normal(size=(10, 2))
    weight = np.array([1.0, 2, 3, 0, 1, 1, 0, 2, 1, 1])
    weighted, repeated = learn(X, cuts=[4], weight=weight), learn(X.repeat(weight.astype(int), axis=0))
    assert_allclose(weighted.centre, repeated.centre)
    assert_allclose(weighted.scale, repeated.scale)


@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64])
@pytest.mark.parametrize("given_dtype", [np.float32, np.float64, np.int64, np.uint8])
def test_applied_and_inverted(given_dtype, dtype):
    X = np.random.default_rng(0).integers(0, 200, size=(30, 2)).astype(given_dtype)
    scaling = learn(X)
    applied = scaling.apply(X, dtype)
    assert applied.dtype == dtype
    assert applied.flags.c_contiguous
    assert not np.shares_memory(applied, X)
    assert_allclose(applied.mean(axis=0), 0.0, atol=1e-5)
    assert_allclose(applied.std(axis=0), 1.0, atol=1e-5)
    assert_allclose(scaling.invert(applied), X, rtol=1e-5, atol=1e-3)


def test_a_large_offset_keeps_its_digits_in_float32():
    X = 1e9 + np.arange(10.0)[:, None]
    assert_allclose(learn(X).apply(X, FLOAT32), (X - X.mean()) / X.std(), rtol=1e-6)


@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("offset", [3e4, 1e7])
def test_the_precision_of_the_rows_does_not_matter_far_from_the_origin(offset, whiten):
    """The mean has more digits than float32: rows in it are to be the same as in float64."""
    X = (100.0 * np.random.default_rng(0).normal(size=(500, 2)) + offset).astype(np.float32)
    scaling = learn(X, whiten=whiten)
    narrow = scaling.apply(X, np.dtype(np.float32))
    wide = scaling.apply(X.astype(np.float64), np.dtype(np.float64))
    assert_allclose(narrow, wide, atol=3e-6)


def test_identity_changes_nothing():
    X = np.random.default_rng(0).normal(size=(5, 2))
    identity = Scaling.identity(2)
    assert_array_equal(identity.apply(X, FLOAT64), X)
    assert_array_equal(identity.invert(X), X)


class TestMostlyOneValue:
    @given(share=st.sampled_from([0.001, 0.02, 0.2, 0.45]), flip=st.booleans(), seed=st.integers(0, 3))
    def test_a_binary_column_has_the_scale_of_an_even_one(self, share, flip, seed):
        X = (np.random.default_rng(seed).random((1000, 1)) < share).astype(float)
        X[0] = 1.0
        found = learn(1.0 - X if flip else X, cuts=[seed * 100, 500])
        assert_allclose(found.scale, 0.5)

    def test_no_jump_at_one_half(self):
        for ones in (499, 500, 501):
            found = learn(np.repeat([0.0, 1.0], [1000 - ones, ones])[:, None])
            assert_allclose(found.scale, 0.5, rtol=1e-4)

    def test_rare_values_are_two_units_away_whatever_their_scale(self):
        rng = np.random.default_rng(0)
        for scale in (1e-200, 1.0, 1e200):
            X = np.where(rng.random((2000, 1)) < 0.01, rng.uniform(1, 3, (2000, 1)), 0.0) * scale
            found = learn(X, cuts=[700])
            away = found.apply(X, FLOAT64)[X[:, 0] > 0] - found.apply(np.zeros((1, 1)), FLOAT64)
            assert_allclose(np.sqrt(np.mean(away**2)), 2.0)

    def test_it_is_the_weight_that_makes_most(self):
        X = np.random.default_rng(0).integers(0, 3, size=(30, 2)).astype(float)
        weight = np.where(X[:, 0] == 0, 4.0, 1.0) * (np.arange(30) % 5 > 0)
        weighted = learn(X, cuts=[11], weight=weight)
        repeated = learn(X.repeat(weight.astype(int), axis=0))
        assert_allclose(weighted.scale, repeated.scale)
        assert weighted.scale[0] > X[:, 0].repeat(weight.astype(int)).std() + 0.01

    def test_a_tile_without_weight_says_nothing(self):
        X = np.array([[-5.0], [0.0], [0.0], [0.0], [1.0]])
        found = learn(X, cuts=[1], weight=np.array([0.0, 1, 1, 1, 1]))
        assert_allclose(found.scale, 0.5)


class TestWhitening:
    @staticmethod
    def correlated(n=60, seed=0):
        rng = np.random.default_rng(seed)
        return rng.normal(size=(n, 3)) @ rng.normal(size=(3, 3)) * [1e-3, 1.0, 50.0] + [5.0, -1e3, 0.0]

    @given(cuts=st.lists(st.integers(0, 60), max_size=6), seed=st.integers(0, 5))
    def test_columns_are_uncorrelated_whatever_the_tiles(self, cuts, seed):
        X = self.correlated(seed=seed)
        found = learn(X, cuts=cuts, whiten=True)
        applied = found.apply(X, FLOAT64)
        assert_allclose(applied.T @ applied / len(X), np.eye(3), atol=1e-7)
        assert_allclose(
            found.whitening_matrix, learn(X, whiten=True).whitening_matrix, rtol=1e-7, atol=1e-7
        )

    @pytest.mark.parametrize("scale", [1e-300, 1e-150, 1.0, 1e150, 1e300])
    def test_any_scale(self, scale):
        X = self.correlated()
        X = (X - X.mean(axis=0)) / X.std(axis=0)
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            found = learn(scale * X, cuts=[20], whiten=True)
        assert_allclose(found.whitening_matrix, learn(X, whiten=True).whitening_matrix, rtol=1e-7)

    @pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64])
    def test_applied_and_inverted(self, dtype):
        X = self.correlated()
        found = learn(X, whiten=True)
        applied = found.apply(X, dtype)
        assert applied.dtype == dtype
        assert_allclose(found.invert(applied), X, rtol=1e-5, atol=1e-3)
        assert not found.is_identity

    def test_weights_count_rows(self):
        X, weight = self.correlated(), np.random.default_rng(1).integers(0, 4, 60).astype(float)
        weighted = learn(X, cuts=[25], weight=weight, whiten=True)
        repeated = learn(X.repeat(weight.astype(int), axis=0), whiten=True)
        assert_allclose(weighted.whitening_matrix, repeated.whitening_matrix, rtol=1e-8)

    def test_columns_that_do_not_vary_go_with_no_other(self):
        X = self.correlated()
        X[:, 1] = 7.0
        turn = learn(X, cuts=[10], whiten=True).whitening_matrix
        assert_array_equal(turn[1], [0.0, 1.0, 0.0])
        assert_array_equal(turn[:, 1], [0.0, 1.0, 0.0])

    def test_rare_values_are_not_blown_up(self):
        rng = np.random.default_rng(0)
        X = np.column_stack([rng.random(2000) < 0.01, rng.normal(size=2000)]).astype(float)
        plain, whitened = (learn(X, whiten=w).apply(X, FLOAT64) for w in (False, True))
        assert_allclose(whitened[:, 0], plain[:, 0])
        assert_allclose(whitened[:, 1].std(), 1.0)


@given(d=st.integers(1, 12), seed=st.integers(0, 100))
def test_the_inverse_of_the_cholesky_factor(d, seed):
    R = np.corrcoef(np.random.default_rng(seed).normal(size=(3 * d + 2, d)), rowvar=False).reshape(d, d)
    turn = whitening_matrix(R)
    assert_array_equal(turn, np.triu(turn))
    assert_allclose(turn, np.linalg.inv(np.linalg.cholesky(R)).T, atol=1e-8)


def test_a_column_is_its_residual_given_those_before_it():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3)) @ rng.normal(size=(3, 3))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    turned = X @ whitening_matrix(X.T @ X / len(X))
    for j in range(3):
        told = X[:, :j] @ np.linalg.lstsq(X[:, :j], X[:, j], rcond=None)[0]
        residual = X[:, j] - told
        assert_allclose(turned[:, j], residual / residual.std(), atol=1e-10)


def test_what_others_determine_is_not_blown_up():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 2))
    X = np.column_stack([X, X @ [0.6, 0.8], X[:, 0] + 0.1 * np.sqrt(FLAT) * rng.normal(size=500)])
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    turned = X @ whitening_matrix(X.T @ X / len(X))
    assert_allclose(turned[:, :2].std(axis=0), 1.0)
    assert np.abs(turned[:, 2:]).max() < 1e-3


@pytest.mark.parametrize("kind", SAMPLED_KINDS)
def test_a_range_beyond_that_of_numbers_has_a_finite_scale(kind):
    largest = np.finfo(np.float64).max
    X = (np.repeat([-largest, 1.0, largest], [40, 20, 40]) * np.linspace(0.9, 1.0, 100))[:, None]
    scaling = scaling_of(X, None, kind)
    assert np.isfinite(scaling.scale).all()
    assert np.isfinite(scaling.apply(X, np.dtype(np.float64))).all()
