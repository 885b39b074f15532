"""Distances under stress: offsets, duplicates, extreme lengthscales, many columns."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process.kernels import RBF, Matern, RationalQuadratic

from cavity.gp.kernels import bind, check_kernel
from cavity.gp.kernels.base import bind_rounded

FAMILIES = {
    "rbf": RBF,
    "rq": RationalQuadratic,
    "matern12": lambda length_scale: Matern(length_scale, nu=0.5),
    "matern32": lambda length_scale: Matern(length_scale, nu=1.5),
    "matern52": lambda length_scale: Matern(length_scale, nu=2.5),
}
every_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)


@every_family
def test_float32_survives_an_offset(family):
    rng = np.random.default_rng(0)
    # Multiples of 1/64, which 10,000 + x still represents: only the arithmetic is on trial.
    X, Z = (np.round(64 * rng.normal(size=(n, 4))) / 64 for n in (30, 8))
    G = rng.normal(size=(30, 8)).astype(np.float32)
    kernel = 2.0 * family(1.7)
    truth, tape = bind(kernel, Z).cross(X)
    truth_theta, truth_Z = bind(kernel, Z).pull_back(tape, G)
    bound = bind(kernel, (Z + 1e4).astype(np.float32))
    K, tape = bound.cross((X + 1e4).astype(np.float32))
    dtheta, dZ = bound.pull_back(tape, G)
    assert_allclose(K, truth, atol=2e-5)
    assert_allclose(dtheta, truth_theta, atol=1e-4)
    assert_allclose(dZ, truth_Z, atol=1e-4)


@every_family
@pytest.mark.parametrize("offset", [0.0, 1e4])
@pytest.mark.parametrize("d", [4, 80])
def test_rounded_points_are_as_good_as_points_bound_again(family, offset, d):
    rng = np.random.default_rng(0)
    X, Z = (np.round(64 * rng.normal(size=(n, d))) / 64 + offset for n in (30, 8))
    G, kernel = rng.normal(size=(30, 8)).astype(np.float32), 2.0 * family(np.sqrt(d))
    truth, tape = bind(kernel, Z).cross(X)
    truth_theta, truth_Z = bind(kernel, Z).pull_back(tape, G)
    rounded = bind_rounded(kernel, Z, np.dtype(np.float32), bind(kernel, Z))
    K, tape = rounded.cross(X.astype(np.float32))
    dtheta, dZ = rounded.pull_back(tape, G)
    assert K.dtype == np.float32
    assert rounded.diagonal(X)[0].dtype == np.float32
    assert_allclose(K, truth, atol=2e-5)
    assert_allclose(dtheta, truth_theta, atol=2e-4)
    assert_allclose(dZ, truth_Z, atol=2e-4)


@every_family
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [1, 8, 784])
def test_a_point_correlates_fully_with_itself(family, dtype, d):
    Z = np.random.default_rng(d).normal(3.0, 2.0, size=(60, d)).astype(dtype)
    K, _ = bind(family(d**0.5), Z).cross(Z)
    assert_allclose(np.diag(K), 1.0, atol=200 * np.finfo(dtype).eps)
    assert K.max() <= 1.0


@every_family
def test_duplicates_leave_a_factorisable_matrix(family):
    Z = np.random.default_rng(0).normal(size=(40, 3))
    Z = np.vstack([Z, Z])
    K, _ = bind(3.0 * family(5.0), Z).cross(Z)
    np.linalg.cholesky(K + 3e-6 * np.eye(80))


@every_family
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("length_scale", [1e-5, 1e5])
def test_extreme_lengthscales_stay_finite(family, dtype, length_scale):
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(6, 3)).astype(dtype)
    X = np.vstack([rng.normal(size=(10, 3)).astype(dtype), Z])
    bound = bind(2.0 * family(length_scale), Z)
    K, tape = bound.cross(X)
    dtheta, dZ = bound.pull_back(tape, rng.normal(size=K.shape).astype(dtype))
    assert np.all((K >= 0) & (K <= 2.0 + 1e-6))
    assert np.all(np.isfinite(dtheta))
    assert np.all(np.isfinite(dZ))


@every_family
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [3, 80])
def test_rows_at_the_end_of_the_range_are_far_and_nothing_else(family, dtype, d):
    rng = np.random.default_rng(0)
    Z, largest = rng.normal(size=(6, d)).astype(dtype), np.finfo(dtype).max
    ends = np.array([largest, -largest, 0.6 * largest**0.5, 0.0], dtype=dtype)
    X = np.vstack(
        [Z, ends[:2, None] * np.ones(d, dtype), ends[2] * np.eye(1, d), rng.choice(ends, (6, d))]
    )
    bound = bind(2.0 * family(1e-2 * d**0.5), Z)
    with np.errstate(all="ignore"):
        K, tape = bound.cross(X.astype(dtype))
        gradients = bound.pull_back(tape, np.ones_like(K))
    assert_array_equal(K[:6], bound.cross(Z)[0])
    assert np.all((K[6:] >= 0) & (K[6:] < 1e-30))
    assert all(np.isfinite(gradient).all() for gradient in gradients)


@every_family
def test_one_column(family):
    check_kernel(family(0.8), np.linspace(-2, 2, 9)[:, None], np.array([[0.1], [1.3]]))


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
def test_coincident_points_pull_nowhere(nu):
    Z = np.random.default_rng(0).normal(size=(1, 4))
    bound = bind(Matern(2.0, nu=nu), Z)
    _, tape = bound.cross(Z)
    dtheta, dZ = bound.pull_back(tape, np.ones((1, 1)))
    assert_allclose(dtheta, 0.0, atol=1e-14)
    assert_allclose(dZ, 0.0, atol=1e-14)


def test_moving_the_inducing_points_moves_both_sides():
    rng = np.random.default_rng(0)
    Z, G = rng.normal(size=(5, 2)), rng.normal(size=(5, 5))
    G += G.T
    kernel = 2.0 * RBF([0.8, 1.4])
    bound = bind(kernel, Z)
    _, dZ = bound.pull_back(bound.cross(Z)[1], G)
    step = np.zeros_like(Z)
    step[3, 1] = 1e-5
    up, down = ((G * kernel(z, z)).sum() for z in (Z + step, Z - step))
    assert_allclose(2 * dZ[3, 1], (up - down) / 2e-5, rtol=1e-7)


def test_length_scale_must_fit_the_columns():
    with pytest.raises(ValueError, match=r"length_scale of RBF.* has 3 entries.* 2 columns"):
        bind(2.0 * RBF([1.0, 2.0, 3.0]), np.zeros((4, 2)))


def test_a_long_tailed_mixture_of_one_scale_is_an_rbf():
    # (1 + u)^(−α) → exp(−αu) as α → ∞, and the gradient by α vanishes: no cancellation may show.
    rng = np.random.default_rng(0)
    X, Z, G = (rng.normal(size=shape).astype(np.float32) for shape in ((9, 3), (5, 3), (9, 5)))
    bound = bind(RationalQuadratic(1.3, alpha=1e5), Z)
    K, tape = bound.cross(X)
    dtheta, _ = bound.pull_back(tape, G)
    assert_allclose(K, bind(RBF(1.3), Z).cross(X)[0], atol=1e-4)
    assert abs(dtheta[0]) < 1e-3


@pytest.mark.parametrize("d", [3, 80])
def test_a_bound_kernel_travels_with_one_copy_of_its_points(d):
    rng = np.random.default_rng(0)
    X, Z = (rng.normal(size=(n, d)).astype(np.float32) for n in (10, 40))
    bound = bind(2.0 * RBF(3.0), Z)
    data = pickle.dumps(bound)
    assert len(data) < Z.nbytes + 2_000
    assert_array_equal(pickle.loads(data).cross(X)[0], bound.cross(X)[0])
