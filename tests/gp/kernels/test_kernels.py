"""What every kernel must satisfy: scikit-learn's values, true gradients, and its manners."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import KERNELS
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    Exponentiation,
    Matern,
    Product,
    RationalQuadratic,
    Sum,
    WhiteKernel,
)

from cavity.gp.kernels import BoundKernel, bind, check_kernel

every_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)


def draw(n=9, m=5, d=3, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    X, Z = rng.normal(size=(n, d)), rng.normal(size=(m, d))
    return X.astype(dtype), Z.astype(dtype), rng.normal(size=(n, m)).astype(dtype)


@every_kernel
@pytest.mark.parametrize(("dtype", "rtol"), [(np.float64, 1e-12), (np.float32, 1e-5)])
def test_values_are_those_of_scikit_learn(kernel, dtype, rtol):
    X, Z, _ = draw(dtype=dtype)
    X[3] = Z[2]  # a row that is an inducing point
    bound = bind(kernel, Z)
    X64, Z64 = X.astype(float), Z.astype(float)
    for value, expected in (
        (bound.cross(X)[0], kernel(X64, Z64)),
        (bound.cross(Z)[0], kernel(Z64, Z64)),
        (bound.diagonal(X)[0], kernel.diag(X64)),
    ):
        assert value.dtype == dtype
        assert_allclose(value, expected, rtol=rtol, atol=rtol * max(1.0, np.abs(expected).max()))


@every_kernel
def test_gradients_are_those_of_finite_differences(kernel):
    check_kernel(kernel, rtol=1e-7)


@every_kernel
def test_float32_gradients_are_those_of_float64(kernel):
    X, Z, G = draw(n=50)
    truth_theta, truth_Z = pull_back(kernel, X, Z, G)
    dtheta, dZ = pull_back(kernel, *(A.astype(np.float32) for A in (X, Z, G)))
    assert dtheta.dtype == dZ.dtype == np.float64
    # Rounding grows with the summands, which may cancel in the sum: |G| keeps them from it.
    sizes = pull_back(kernel, X, Z, np.abs(G))
    for actual, expected, size in ((dtheta, truth_theta, sizes[0]), (dZ, truth_Z, sizes[1])):
        assert_allclose(actual, expected, rtol=0.0, atol=5e-6 * np.abs(size).max(initial=1.0))


@every_kernel
def test_gradient_has_the_free_hyperparameters_only(kernel):
    X, Z, G = draw()
    bound = bind(kernel, Z)
    _, tape = bound.cross(X)
    _, diagonal_tape = bound.diagonal(X)
    assert bound.pull_back(tape, G)[0].shape == kernel.theta.shape
    assert bound.pull_back_diagonal(diagonal_tape, G[:, 0]).shape == kernel.theta.shape


@every_kernel
def test_nothing_given_is_modified_and_a_tape_can_be_used_again(kernel):
    X, Z, G = draw()
    copies = [A.copy() for A in (X, Z, G)]
    bound = bind(kernel, Z)
    K, tape = bound.cross(X)
    value = K.copy()
    first, second = bound.pull_back(tape, G), bound.pull_back(tape, G)
    for A, B in zip((X, Z, G, K, *first), (*copies, value, *second), strict=True):
        assert_array_equal(A, B)


@every_kernel
def test_later_changes_to_kernel_and_inducing_points_are_not_seen(kernel):
    kernel = kernel.clone_with_theta(kernel.theta)
    X, Z, _ = draw()
    bound = bind(kernel, Z)
    before = bound.cross(X)[0].copy()
    Z += 1.0
    kernel.theta = kernel.theta + 1.0
    assert_array_equal(bound.cross(X)[0], before)


@every_kernel
@pytest.mark.parametrize(("n", "m", "d"), [(1, 4, 3), (5, 1, 3), (1, 1, 3), (0, 4, 3)])
def test_single_rows_and_inducing_points(kernel, n, m, d):
    X, Z, G = draw(n, m, d)
    bound = bind(kernel, Z)
    K, tape = bound.cross(X)
    assert K.shape == (n, m)
    dtheta, dZ = bound.pull_back(tape, G)
    assert dZ.shape == (m, d)
    assert np.all(np.isfinite(dtheta))


@every_kernel
def test_follows_the_protocol(kernel):
    assert isinstance(bind(kernel, draw()[1]), BoundKernel)


def test_threads_share_a_bound_kernel():
    X, Z, G = draw(n=200, m=20)
    bound = bind(2.0 * RBF([1.0, 2.0, 3.0]) + WhiteKernel(), Z)

    def both(rows):
        K, tape = bound.cross(X[rows])
        return K, *bound.pull_back(tape, G[rows])

    tiles = [slice(i, i + 10) for i in range(0, 200, 10)]
    with ThreadPoolExecutor(4) as pool:
        for threaded, tile in zip(pool.map(both, tiles), tiles, strict=True):
            for A, B in zip(threaded, both(tile), strict=True):
                assert_array_equal(A, B)


POSITIVE = st.floats(0.2, 5.0)
FIXED = st.sampled_from(["fixed", (1e-5, 1e5)])
LENGTHS = POSITIVE | st.lists(POSITIVE, min_size=2, max_size=2)
LEAF = st.one_of(
    st.builds(ConstantKernel, POSITIVE, FIXED),
    st.builds(WhiteKernel, POSITIVE, FIXED),
    st.builds(RBF, LENGTHS, FIXED),
    st.builds(Matern, LENGTHS, FIXED, st.sampled_from([0.5, 1.5, 2.5, np.inf])),
    st.builds(RationalQuadratic, POSITIVE, POSITIVE, FIXED, FIXED),
    st.builds(DotProduct, POSITIVE, FIXED),
)
EXPRESSION = st.recursive(
    LEAF,
    lambda inside: st.one_of(
        st.builds(Sum, inside, inside),
        st.builds(Product, inside, inside),
        st.builds(Exponentiation, inside, st.just(2)),
    ),
    max_leaves=5,
)


@settings(max_examples=60, deadline=None)
@given(EXPRESSION)
def test_any_expression(kernel):
    rng = np.random.default_rng(1)
    check_kernel(kernel, rng.normal(size=(6, 2)), rng.normal(size=(3, 2)), rtol=1e-4)


def pull_back(kernel, X, Z, G):
    bound = bind(kernel, Z)
    return bound.pull_back(bound.cross(X)[1], G)
