"""Probabilities and special functions of the graph against those of the package."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from onnx_serving import run_columns
from scipy.special import erfcx

from cavity.export.onnx.graph import Graph
from cavity.export.onnx.model import probabilities, scaled_erfc
from cavity.gp.likelihoods import Logit, Probit


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
