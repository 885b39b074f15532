"""The checker must tell right from wrong, and name what is wrong."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, DotProduct, WhiteKernel

from cavity.gp.kernels import bind, check_kernel, register
from cavity.gp.kernels.check import theta_names

ARD = [0.5, 1.0, 2.0]


class Copied(RBF):
    """An RBF kernel whose bound form each test spoils in its own way."""

    def __call__(self, X, Y=None, eval_gradient=False):
        return super().__call__(X, Y, eval_gradient)


class Faithful:
    def __init__(self, kernel, Z):
        self._bound = bind(RBF(kernel.length_scale), Z)

    def cross(self, X):
        return self._bound.cross(X)

    def pull_back(self, tape, G):
        return self._bound.pull_back(tape, G)

    def diagonal(self, X):
        return self._bound.diagonal(X)

    def pull_back_diagonal(self, tape, g):
        return self._bound.pull_back_diagonal(tape, g)


class WrongLengthscale(Faithful):
    def pull_back(self, tape, G):
        dtheta, dZ = super().pull_back(tape, G)
        return dtheta * [1.0, 1.01, 1.0], dZ


class WrongInducingPoint(Faithful):
    def pull_back(self, tape, G):
        dtheta, dZ = super().pull_back(tape, G)
        dZ[2, 1] *= -1
        return dtheta, dZ


class WrongDiagonalGradient(Faithful):
    def pull_back_diagonal(self, tape, g):
        return super().pull_back_diagonal(tape, g) + np.array([0.0, 0.0, 0.1])


class WrongShape(Faithful):
    def pull_back(self, tape, G):
        dtheta, dZ = super().pull_back(tape, G)
        return dtheta[:1], dZ


class WrongDtype(Faithful):
    def cross(self, X):
        K, tape = super().cross(X)
        return K.astype(np.float64), tape


class WrongValue(Faithful):
    def cross(self, X):
        K, tape = super().cross(X)
        return 1.001 * K, tape


class WrongDiagonal(Faithful):
    def diagonal(self, X):
        k, tape = super().diagonal(X)
        return 1.001 * k, tape


class Overwriting(Faithful):
    def pull_back(self, tape, G):
        gradients = super().pull_back(tape, G)
        G *= 2
        return gradients


def test_a_registered_kernel_passes_alone_and_inside_an_expression():
    register(Copied, Faithful)
    check_kernel(Copied(ARD))
    check_kernel(2.0 * Copied(ARD) + WhiteKernel())


@pytest.mark.parametrize(
    ("binder", "message"),
    [
        (WrongLengthscale, r"pull_back disagrees .* in length_scale\[1\]"),
        (WrongInducingPoint, r"pull_back disagrees .* in Z\[2, 1\]"),
        (WrongDiagonalGradient, r"pull_back_diagonal disagrees .* in length_scale\[2\]"),
        (WrongShape, r"gradient of shape \(1,\)"),
        (WrongDtype, r"cross\(X\) .* dtype float64, expected .* float32"),
        (WrongValue, r"cross\(X\) .* differs from scikit-learn"),
        (WrongDiagonal, r"diagonal\(X\) .* differs from scikit-learn"),
        (Overwriting, r"modified G"),
    ],
)
def test_a_wrong_kernel_is_told_what_is_wrong(binder, message):
    register(Copied, binder)
    with pytest.raises(AssertionError, match=message):
        check_kernel(Copied(ARD))


def test_names_follow_theta():
    kernel = 2.0 * RBF(ARD, "fixed") + RBF([1.0, 2.0]) * DotProduct()
    assert theta_names(kernel) == [
        "k1__k1__constant_value",
        "k2__k1__length_scale[0]",
        "k2__k1__length_scale[1]",
        "k2__k2__sigma_0",
    ]
