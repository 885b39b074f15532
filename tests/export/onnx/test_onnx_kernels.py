"""Kernels of the graph against scikit-learn's, and the way to add one."""

import pytest
from numpy.testing import assert_allclose
from onnx_serving import run_columns
from sklearn.gaussian_process.kernels import RBF, DotProduct, ExpSineSquared

from cavity.export.onnx import Covariances, register
from cavity.export.onnx.graph import Graph
from cavity.export.onnx.model import covariances
from support import KERNELS, points, table

X, _ = table(20)
Z = points(4)


def served(kernel, rows=X, at=Z):
    graph = Graph()
    K = covariances(kernel, graph.input("X", float, ["N", rows.shape[1]]), at)
    graph.output(K.cross, "cross", float, ["N", len(at)])
    graph.output(K.diagonal, "diagonal", float, ["N", 1])
    return run_columns(graph.model("", {}), {"X": rows})


@pytest.mark.parametrize("name", KERNELS)
def test_values_are_scikit_learns(name):
    K = served(KERNELS[name])
    assert_allclose(K["cross"], KERNELS[name](X, Z), rtol=1e-10, atol=1e-13)
    assert_allclose(K["diagonal"][:, 0], KERNELS[name].diag(X), rtol=1e-10)


def test_a_large_offset_does_not_cancel():
    far = 1e7
    K = served(RBF([0.7, 1.3]), X + far, Z + far)
    assert_allclose(K["cross"], RBF([0.7, 1.3])(X + far, Z + far), rtol=1e-7)


def test_a_kernel_without_a_form_says_how_to_give_it_one():
    with pytest.raises(TypeError, match=r"cavity.export.onnx.register\(ExpSineSquared, your_function\)"):
        served(2.0 * ExpSineSquared())


def test_a_subclass_that_computes_something_else_does_not_inherit():
    class Sharper(RBF):
        def __call__(self, X, Y=None, eval_gradient=False):
            return super().__call__(X, Y) ** 2

    class Renamed(RBF):
        pass

    assert_allclose(served(Renamed(1.0))["cross"], RBF(1.0)(X, Z))
    with pytest.raises(TypeError, match="Sharper"):
        served(Sharper(1.0))


def test_a_registered_kernel_can_be_part_of_any_other():
    class Tripled(DotProduct):
        def __call__(self, X, Y=None, eval_gradient=False):
            return 3.0 * super().__call__(X, Y)

        def diag(self, X):
            return 3.0 * super().diag(X)

    @register(Tripled)
    def emit(kernel, X, Z):
        bias = kernel.sigma_0**2
        return Covariances(3 * (X @ Z.T + bias), 3 * ((X * X).sum() + bias))

    kernel = RBF(1.0) * Tripled(0.5)
    assert_allclose(served(kernel)["cross"], RBF(1.0)(X, Z) * Tripled(0.5)(X, Z))
    assert_allclose(served(kernel)["diagonal"][:, 0], kernel.diag(X))
