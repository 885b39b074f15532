"""The m×m operations against NumPy's own."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from cavity import NumericalError
from cavity.gp.linalg import cholesky, inverse_lower, jittered_cholesky, solved_by_cholesky, stacked

SIZES = st.integers(1, 200)


def lower(m, dtype=np.float64):
    return (np.tril(np.random.default_rng(m).normal(size=(m, m))) + m * np.eye(m)).astype(dtype)


@given(m=SIZES)
@pytest.mark.parametrize("order", ["C", "F"])
def test_inverse_of_a_triangle_whatever_lies_above_it(m, order):
    L = lower(m)
    inverse = inverse_lower(np.asarray(L + np.triu(np.full((m, m), 7.0), 1), order=order))
    assert inverse.flags.c_contiguous
    assert_allclose(inverse @ L, np.eye(m), atol=1e-10)
    assert_array_equal(inverse, np.tril(inverse))


def test_a_singular_triangle_is_refused():
    with pytest.raises(np.linalg.LinAlgError):
        inverse_lower(np.diag([1.0, 0.0]))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_cholesky_refuses_what_has_none(bad):
    with pytest.raises(np.linalg.LinAlgError):
        cholesky(np.diag([1.0, bad]))


@given(m=SIZES, bad=st.sampled_from([np.nan, np.inf, -np.inf]), seed=st.integers(0, 99))
def test_cholesky_sees_what_is_not_finite_wherever_it_is(m, bad, seed):
    i, j = np.random.default_rng(seed).integers(m, size=2)
    A = lower(m) @ lower(m).T
    A[i, j] = A[j, i] = bad
    with np.errstate(all="ignore"), pytest.raises(np.linalg.LinAlgError):
        cholesky(A)


@given(m=SIZES)
def test_a_factor_solves_for_its_matrix(m):
    A, b = lower(m) @ lower(m).T, np.random.default_rng(m).normal(size=m)
    above = np.triu(np.full((m, m), 7.0), 1)
    assert_allclose(A @ solved_by_cholesky(cholesky(A) + above, b), b, atol=1e-10)


@pytest.mark.parametrize("scale", [1e-150, 1.0, 1e150])
def test_jitter_is_relative_and_smallest_first(scale):
    K = scale * (np.ones((4, 4)) + np.eye(4))
    L, jitter = jittered_cholesky(K, 1e-8)
    L = np.tril(L)
    assert jitter == 1e-8
    assert_allclose(L @ L.T, K, rtol=1e-7)


def test_jitter_climbs_until_the_matrix_is_definite():
    K = np.ones((5, 5)) - 1e-4 * np.diag([0, 0, 0, 0, 1.0])  # one eigenvalue is negative
    L, jitter = jittered_cholesky(K, 1e-8)
    L = np.tril(L)
    assert 1e-5 < jitter <= 1e-2
    assert_allclose(L @ L.T, K + jitter * np.mean(np.diag(K)) * np.eye(5), atol=1e-12)


@pytest.mark.parametrize(
    "K", [-np.eye(3), np.zeros((3, 3)), np.full((3, 3), np.nan), np.diag([1.0, np.inf, 1.0])]
)
def test_a_hopeless_matrix_is_named_with_a_way_out(K):
    with pytest.raises(NumericalError, match="inducing"):
        jittered_cholesky(K, 1e-8)


def test_a_single_array_is_stacked_without_a_copy():
    A = np.arange(6.0).reshape(2, 3)
    assert np.shares_memory(stacked([A]), A)
    for arrays in ([A], [A, 2 * A]):
        assert_array_equal(stacked(arrays), np.stack(arrays))
