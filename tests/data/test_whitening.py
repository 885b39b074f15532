"""Columns told apart, against NumPy's inverses."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from cavity.data.statistics import FLAT, whitening_matrix


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
        told = X[:, :j] @ np.linalg.lstsq(X[:, :j], X[:, j])[0]
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
