"""The multinomial probit of the graph against a fine integral."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from onnx_serving import run_columns
from scipy.special import log_ndtr
from scipy.stats import norm

from cavity.export.onnx.graph import Graph
from cavity.export.onnx.model import noisy_argmax


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
