"""The weak prior on the parameters."""

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

from cavity.gp.parameters import Hyperprior
from reference import central_differences

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
