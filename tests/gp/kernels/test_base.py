"""Binding and registering kernels: what is accepted, inherited and refused."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, CompoundKernel, ExpSineSquared, Kernel, Matern

from cavity.gp.kernels import bind, register

Z = np.zeros((3, 2))


@pytest.mark.parametrize("kernel", [CompoundKernel([RBF()]), ExpSineSquared(), 2.0, None])
def test_unknown_types_are_named_with_the_way_out(kernel):
    with pytest.raises(TypeError, match=f"{type(kernel).__name__}.*cavity.gp.kernels.register"):
        bind(kernel, Z)


def test_unknown_type_inside_an_expression():
    with pytest.raises(TypeError, match="ExpSineSquared"):
        bind(2.0 * RBF() + ExpSineSquared(), Z)


def test_a_subclass_inherits_unless_it_computes_something_else():
    class Renamed(RBF):
        pass

    class Changed(RBF):
        def __call__(self, X, Y=None, eval_gradient=False):
            return 2 * super().__call__(X, Y, eval_gradient)

    bind(Renamed(), Z)
    with pytest.raises(TypeError, match="Changed"):
        bind(Changed(), Z)


@pytest.mark.parametrize("bad", [[[0.0]], np.zeros((2, 2), dtype=int), np.zeros((2, 2), "f2")])
def test_inducing_points_must_be_floats(bad):
    with pytest.raises(TypeError, match="Z must be an array of float32 or float64"):
        bind(RBF(), bad)


def test_inducing_points_must_be_a_matrix():
    with pytest.raises(ValueError, match=r"Z must have shape \[m, d\], got \(3,\)"):
        bind(RBF(), np.zeros(3))


def test_register_returns_what_it_registers():
    class Mine(Kernel):
        pass

    def binder(kernel, Z):
        return bind(RBF(), Z)

    assert register(Mine, binder) is binder
    assert register(Mine)(binder) is binder


def test_other_smoothness_is_refused_with_the_options():
    with pytest.raises(ValueError, match=r"nu=0\.7 .* must be one of 0\.5, 1\.5, 2\.5, inf"):
        bind(2.0 * Matern(nu=0.7), np.zeros((3, 2)))
