"""Edges of sums, products and powers that finite differences do not reach."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Exponentiation, WhiteKernel

from cavity.gp.kernels import bind
from cavity.gp.kernels.basic import Scaled


@pytest.mark.parametrize("kernel", [2.0 * RBF(), RBF() * ConstantKernel(2.0)])
def test_a_constant_is_folded_into_a_stationary_kernel(kernel):
    assert isinstance(bind(kernel, np.zeros((3, 2))), Scaled)


def test_the_root_of_an_underflowed_kernel_has_a_finite_gradient():
    X, Z = np.zeros((1, 1)), np.array([[0.5], [100.0]])
    bound = bind(Exponentiation(RBF(1.0), 0.5), Z)
    K, tape = bound.cross(X)
    dtheta, dZ = bound.pull_back(tape, np.ones_like(K))
    assert K[0, 1] == 0
    assert np.all(np.isfinite(dtheta))
    assert np.all(np.isfinite(dZ))


def test_constants_take_no_memory():
    K, _ = bind(ConstantKernel(2.0), np.zeros((3, 2))).cross(np.zeros((1000, 2)))
    assert K.strides == (0, 0)


def test_inducing_values_are_noise_free():
    Z = np.eye(3)
    bound = bind(RBF() + WhiteKernel(5.0), Z)
    np.testing.assert_allclose(np.diag(bound.cross(Z)[0]), 1.0)
    np.testing.assert_allclose(bound.diagonal(Z)[0], 6.0)
