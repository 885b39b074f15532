"""Triangular products against NumPy's plain ones."""

import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from cavity.engines.threads import blas_threads
from cavity.gp.linalg import (
    add_outer,
    cholesky_factor,
    gram_of_lower,
    times_lower,
    times_transposed_lower,
    transposed_lower_times,
)

SIZES, DTYPES = st.integers(1, 200), st.sampled_from([np.float32, np.float64])


def lower(m, dtype):
    return np.tril(np.random.default_rng(m).normal(size=(m, m))).astype(dtype)


@given(n=st.integers(0, 20), m=SIZES, dtype=DTYPES, order=st.sampled_from("CF"))
def test_triangular_products_are_plain_products(n, m, dtype, order):
    K = np.random.default_rng(0).normal(size=(n, m)).astype(dtype, order=order)
    L = np.array(lower(m, dtype), order=order)
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
    K, L = np.random.default_rng(0).normal(size=(n, m)).astype(dtype), lower(m, dtype)
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
    L = np.tril(lower(m, np.float64), -1) + m * np.eye(m)
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
    with pytest.raises(ValueError, match="no outer sum"):
        add_outer(A, x, y)


@given(m=SIZES, dtype=DTYPES)
def test_a_gram_is_symmetric_and_a_plain_product(m, dtype):
    L = lower(m, dtype)
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
    with pytest.raises(ValueError, match="no triangular product"):
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
    L = lower(1500, np.float64)
    thread.start()
    try:
        with blas_threads(1):
            # Another process may have the other core for a while, but not every time.
            most = max(ticks_during_a_product() for _ in range(10))
    finally:
        over.set()
        thread.join()
    assert most >= 5
