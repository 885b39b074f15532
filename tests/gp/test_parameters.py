"""Kernel and inducing points as one bounded vector, and the weak prior on it."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from cavity.gp.parameters import Hyperprior, ParameterSpace
from cavity.gp.prior import ParameterGradient
from reference import central_differences
from support import KERNELS, points


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("learn_kernel", [True, False])
@pytest.mark.parametrize("learn_inducing", [True, False])
def test_a_vector_and_back(kernel, learn_kernel, learn_inducing):
    space = ParameterSpace(kernel, points(), learn_kernel, learn_inducing)
    n_free = learn_kernel * len(kernel.theta) + learn_inducing * 6
    assert space.start.shape == (n_free,)
    assert space.bounds.shape == (n_free, 2)
    same, Z = space.unpack(space.start)
    assert_allclose(same.theta, kernel.theta)
    assert_array_equal(Z, points())
    moved, Z = space.unpack(space.start + 0.1)
    assert_allclose(moved.theta, kernel.theta + 0.1 * learn_kernel)
    assert_allclose(Z, points() + 0.1 * learn_inducing)
    assert_allclose(kernel.theta, same.theta)  # the kernel that was given has not moved


def test_gradient_has_the_order_of_the_vector():
    kernel = ConstantKernel(1.0) * RBF([1.0, 2.0])
    space = ParameterSpace(kernel, points())
    packed = space.pack_gradient(ParameterGradient(np.arange(3.0), 10 + np.arange(6.0).reshape(3, 2)))
    assert_array_equal(packed, [0, 1, 2, 10, 11, 12, 13, 14, 15])


def test_projection_keeps_the_kernel_in_its_bounds_and_the_points_free():
    kernel = ConstantKernel(1.0, (0.5, 2.0)) * RBF(1.0, (0.1, 10.0))
    space = ParameterSpace(kernel, points())
    projected = space.project(np.full(8, 100.0))
    assert_allclose(np.exp(projected[:2]), [2.0, 10.0])
    assert_array_equal(projected[2:], 100.0)
    assert_array_equal(space.project(space.start), space.start)


def test_a_kernel_outside_its_bounds_starts_at_the_nearest_bound():
    space = ParameterSpace(ConstantKernel(5.0, (0.5, 2.0)) * RBF(1.0), points())
    kernel, _ = space.unpack(space.start)
    assert_allclose(kernel.k1.constant_value, 2.0)


X = np.array([0.5, 1.0, 100.0])
PRIOR = Hyperprior(np.array([0.0, 2.0, 0.0]), np.array([1.0, 0.5, np.inf]))


def test_density_is_gaussian_up_to_a_constant():
    expected = norm.logpdf(0.5) - norm.logpdf(0.0) + norm.logpdf(1.0, 2.0, 0.5) - norm.logpdf(0, 0, 0.5)
    assert_allclose(PRIOR.log_density(X), expected)


def test_gradient_is_the_derivative_of_the_density():
    assert_allclose(PRIOR.gradient(X), central_differences(PRIOR.log_density, X), atol=1e-8)


def test_an_infinite_deviation_is_flat():
    flat = Hyperprior(np.zeros(3), np.full(3, np.inf))
    assert flat.log_density(X) == 0.0
    assert_array_equal(flat.gradient(X), 0.0)
