"""Kernels and probabilities of the graph against those of scikit-learn and of the package."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from onnx_serving import run_columns
from scipy.special import erfcx, log_ndtr
from scipy.stats import norm
from sklearn.gaussian_process.kernels import RBF, DotProduct, ExpSineSquared

from cavity.export.onnx import Covariances, register
from cavity.export.onnx.graph import Graph
from cavity.export.onnx.model import covariances, noisy_argmax, probabilities, scaled_erfc
from cavity.gp.likelihoods import Logit, Probit
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


def test_scaled_erfc_is_exact_to_rounding():
    x = np.concatenate([[0.0], np.geomspace(1e-12, 1e12, 500)])[:, None]
    graph = Graph()
    graph.output(scaled_erfc(graph.input("x", float, ["N", 1])), "y", float, ["N", 1])
    served = run_columns(graph.model("", {}), {"x": x})["y"]
    assert_allclose(served, erfcx(x), rtol=5e-14)


@pytest.mark.parametrize("likelihood", [Probit(), Logit()])
def test_probabilities_are_exact_in_the_tails_too(likelihood):
    mean, variance = map(np.ravel, np.meshgrid(np.linspace(-35, 35, 71), [0.0, 1e-6, 0.1, 1, 30, 1e4]))
    graph = Graph()
    moments = [graph.input(name, float, ["N", 1]) for name in ("mean", "variance")]
    graph.output(probabilities(likelihood, *moments, 1.0), "p", float, ["N", 2])
    columns = {"mean": mean[:, None], "variance": variance[:, None]}
    served = run_columns(graph.model("", {}), columns)["p"]
    expected = np.exp(likelihood.predict_log_proba(mean[None], variance[None]))
    assert_allclose(served, expected, rtol=1e-11)


def test_a_likelihood_without_a_form_is_named():
    graph = Graph()
    x = graph.input("x", float, ["N", 1])
    with pytest.raises(TypeError, match="'object'"):
        probabilities(object(), x, x, 1.0)


def integral(mean, variance):
    """p [C] for one row."""
    root = np.sqrt(1.0 + variance)
    t = np.linspace((mean - 9 * root).min(), (mean + 9 * root).max(), 4_001)[:, None]
    z = (t - mean) / root
    log_cdf = log_ndtr(z)
    others = log_cdf.sum(axis=1, keepdims=True) - log_cdf
    return np.exp(norm.logpdf(z) - np.log(root) + others).sum(axis=0) * (t[1] - t[0])


@pytest.mark.parametrize(("n_classes", "largest"), [(3, 0.0), (3, 1e3), (10, 30.0), (40, 1.0)])
def test_probabilities_are_the_integrals(n_classes, largest):
    rng = np.random.default_rng(0)
    mean = rng.normal(size=(20, n_classes)) * rng.choice([0.0, 1.0, 5.0, 20.0], size=(20, 1))
    variance = largest * rng.uniform(size=mean.shape) ** 4
    graph = Graph()
    moments = [graph.input(name, float, ["N", n_classes]) for name in ("mean", "variance")]
    graph.output(noisy_argmax(*moments, n_classes, largest), "p", float, ["N", n_classes])
    p = run_columns(graph.model("", {}), {"mean": mean, "variance": variance})["p"]
    assert_allclose(p, [integral(*row) for row in zip(mean, variance, strict=True)], atol=1e-7)
    assert_allclose(p.sum(axis=1), 1.0)
