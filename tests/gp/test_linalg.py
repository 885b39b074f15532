"""Products, factors and inverses of m×m matrices against NumPy's own."""

import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from cavity import NumericalError
from cavity.engines.threads import one_blas_thread
from cavity.gp.linalg import (
    add_outer,
    cholesky,
    cholesky_factor,
    gram_of_lower,
    inverse_lower,
    jittered_cholesky,
    lower,
    solved_by_cholesky,
    stacked,
    symmetric,
    times_lower,
    times_transposed_lower,
    transposed_lower_times,
    triangle,
)

SIZES = st.integers(1, 200)


def well_conditioned(m):
    return np.tril(np.random.default_rng(m).normal(size=(m, m))) + m * np.eye(m)


@given(m=SIZES)
@pytest.mark.parametrize("order", ["C", "F"])
def test_inverse_of_a_triangle_whatever_lies_above_it(m, order):
    L = well_conditioned(m)
    inverse = inverse_lower(np.asarray(L + np.triu(np.full((m, m), 7.0), 1), order=order))
    assert inverse.flags.c_contiguous
    assert_allclose(inverse @ L, np.eye(m), atol=1e-10)
    assert_array_equal(inverse, np.tril(inverse))


def test_a_singular_triangle_is_refused():
    with pytest.raises(NumericalError):
        inverse_lower(np.diag([1.0, 0.0]))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_cholesky_refuses_what_has_none(bad):
    with pytest.raises(NumericalError):
        cholesky(np.diag([1.0, bad]))


@given(m=SIZES, bad=st.sampled_from([np.nan, np.inf, -np.inf]), seed=st.integers(0, 99))
def test_cholesky_sees_what_is_not_finite_wherever_it_is(m, bad, seed):
    i, j = np.random.default_rng(seed).integers(m, size=2)
    A = well_conditioned(m) @ well_conditioned(m).T
    A[i, j] = A[j, i] = bad
    with np.errstate(all="ignore"), pytest.raises(NumericalError):
        cholesky(A)


@given(m=SIZES)
def test_a_factor_solves_for_its_matrix(m):
    A, b = well_conditioned(m) @ well_conditioned(m).T, np.random.default_rng(m).normal(size=m)
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


DTYPES = st.sampled_from([np.float32, np.float64])


def random_lower(m, dtype):
    return np.tril(np.random.default_rng(m).normal(size=(m, m))).astype(dtype)


@given(n=st.integers(0, 20), m=SIZES, dtype=DTYPES, order=st.sampled_from("CF"))
def test_triangular_products_are_plain_products(n, m, dtype, order):
    K = np.random.default_rng(0).normal(size=(n, m)).astype(dtype, order=order)
    L = np.array(random_lower(m, dtype), order=order)
    kept = K.copy(), L.copy()
    rtol = 1e-4 if dtype == np.float32 else 1e-12
    for product, truth in (
        (times_transposed_lower(K, L), K @ L.T),
        (times_lower(K, L), K @ L),
        (transposed_lower_times(L, K.T), L.T @ K.T),
    ):
        assert product.dtype == dtype
        assert_allclose(product, truth, atol=rtol * np.abs(truth).max(initial=1.0))
    assert_array_equal(K, kept[0])
    assert_array_equal(L, kept[1])


@given(n=st.integers(1, 20), m=SIZES, dtype=DTYPES)
def test_an_overwritten_factor_is_where_the_product_lies(n, m, dtype):
    K, L = np.random.default_rng(0).normal(size=(n, m)).astype(dtype), random_lower(m, dtype)
    truth, turned = times_lower(K, L), transposed_lower_times(L, K.T)
    columns = np.array(K.T, order="C")
    for product, factor in (
        (times_lower(K, L, overwrite=True), K),
        (transposed_lower_times(L, columns, overwrite=True), columns),
    ):
        assert np.shares_memory(product, factor)
    assert_array_equal(K, truth)
    assert_array_equal(columns, turned)


@given(n=st.integers(1, 20), m=SIZES, dtype=DTYPES)
def test_an_outer_product_is_added_in_place(n, m, dtype):
    rng = np.random.default_rng(m)
    A, x, y = (rng.normal(size=shape).astype(dtype) for shape in ((n, m), n, m))
    truth = A + np.outer(x, y)
    add_outer(A, x, y)
    assert_allclose(A, truth, atol=1e-5 if dtype == np.float32 else 1e-13)


@given(m=SIZES)
def test_a_cholesky_factor_whatever_lies_below_the_diagonal(m):
    L = np.tril(random_lower(m, np.float64), -1) + m * np.eye(m)
    A = np.triu(L @ L.T) + np.tril(np.full((m, m), 7.0), -1)
    assert_allclose(np.tril(cholesky_factor(A)), L, atol=1e-8 * m)


@pytest.mark.parametrize(
    ("A", "x", "y"),
    [
        (np.ones((2, 3)), np.ones(3), np.ones(2)),
        (np.ones((2, 3), np.float32), np.ones(2), np.ones(3)),
        (np.ones((3, 2)).T, np.ones(2), np.ones(3)),
    ],
)
def test_an_outer_sum_that_does_not_fit_is_refused(A, x, y):
    with pytest.raises(ValueError, match="cannot add"):
        add_outer(A, x, y)


@given(m=SIZES, dtype=DTYPES)
def test_a_gram_is_symmetric_and_a_plain_product(m, dtype):
    L = random_lower(m, dtype)
    gram, wide = gram_of_lower(L), L.astype(np.float64)
    assert gram.dtype == dtype
    assert_array_equal(gram, gram.T)
    assert_allclose(gram, wide.T @ wide, atol=20 * np.finfo(dtype).eps * m)


@pytest.mark.parametrize(
    ("B", "L"),
    [
        (np.ones((2, 3)), np.ones((2, 2))),
        (np.ones((2, 3)), np.ones((3, 2))),
        (np.ones((2, 2), np.float32), np.ones((2, 2))),
    ],
)
def test_what_does_not_fit_is_refused_and_not_read_beyond_its_end(B, L):
    with pytest.raises(ValueError, match=r"no triangular product|not a square matrix"):
        times_lower(B, L)


def test_other_threads_go_on_meanwhile():
    ticks, over = 0, threading.Event()

    def tick():
        nonlocal ticks
        while not over.is_set():
            ticks += 1
            time.sleep(0.001)

    def ticks_during_a_product():
        before = ticks
        times_lower(L, L)
        return ticks - before

    thread = threading.Thread(target=tick, daemon=True)
    L = random_lower(1500, np.float64)
    thread.start()
    try:
        with one_blas_thread:
            # About one a millisecond, or one a product. Other processes may have the cores for a while.
            found = sum(ticks_during_a_product() for _ in range(5))
    finally:
        over.set()
        thread.join()
    assert found >= 25


@given(m=st.integers(1, 30), dtype=st.sampled_from([np.float32, np.float64]))
def test_triangles_are_half_of_a_matrix_and_all_of_it(m, dtype):
    M = np.random.default_rng(m).standard_normal((m, m)).astype(dtype)
    half = triangle(M)
    assert half.dtype == dtype
    assert_array_equal(half, M[np.tril_indices(m)])
    assert_array_equal(lower(half), np.tril(M))
    assert_array_equal(symmetric(half), np.tril(M) + np.tril(M, -1).T)


@pytest.mark.parametrize(
    "unfit",
    [
        np.full((1, 300), 4.0),
        np.full(300, 4.0),
        np.full((2, 2, 2), 4.0),
        np.eye(4, dtype=np.float16),
        np.eye(4, dtype=int),
        np.array(4.0),
    ],
    ids=lambda unfit: f"{unfit.dtype}{unfit.shape}",
)
@pytest.mark.parametrize(
    "routine",
    [
        cholesky_factor,
        gram_of_lower,
        lambda M: times_lower(np.ones((3, 4), M.dtype), M),
        lambda M: times_transposed_lower(np.ones((3, 4), M.dtype), M),
        lambda M: transposed_lower_times(M, np.ones((4, 3), M.dtype)),
    ],
    ids=["cholesky_factor", "gram_of_lower", "times_lower", "times_transposed", "transposed_times"],
)
def test_no_routine_gets_memory_that_is_not_its_matrix(routine, unfit):
    """Their addresses go to BLAS and LAPACK, which would read and write beyond their ends."""
    with pytest.raises(ValueError, match="not a square matrix"):
        routine(unfit)


@pytest.mark.parametrize(
    "unfit", [np.eye(4, dtype=np.float32), np.eye(8)[::2, ::2], np.eye(4).T[:, ::-1]]
)
def test_a_factor_is_made_in_place_of_a_float64_matrix_in_c_order_only(unfit):
    with pytest.raises(ValueError, match="not a square matrix of float64 in C order"):
        cholesky_factor(unfit)


def test_read_only_memory_is_not_written():
    A = np.eye(4)
    A.flags.writeable = False
    with pytest.raises(ValueError, match="not a square matrix"):
        cholesky_factor(A)
    with pytest.raises(ValueError, match="cannot add"):
        add_outer(A, np.ones(4), np.ones(4))
