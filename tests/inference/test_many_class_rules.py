"""The rules of three classes and more: what they make of the noisy argmax."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from cavity.gp.likelihoods import NoisyArgmax
from cavity.inference.ep import ExpectationPropagation
from cavity.inference.vi import Variational

LIKELIHOOD = NoisyArgmax(3)
LABELS = np.array([2, 0, 1])
RESIDUAL = np.array([0.0, 0.3, 1.0])
CAVITY_MEAN = np.array([[0.7, -0.2, 3.0], [1.0, 0.0, -2.0], [-0.5, 0.4, 0.1]])
CAVITY_VARIANCE = np.array([[2.0, 1.0, 0.3], [0.5, 4.0, 1.0], [1.0, 1.5, 0.2]])
PRECISION = np.array([[0.4, 0.0, 2.0], [0.1, 0.3, 0.0], [0.7, 0.2, 1.0]])
SHIFT = np.array([[1.0, 0.0, -1.0], [-0.3, 0.2, 0.0], [0.5, -0.4, 2.0]])


@pytest.mark.parametrize(
    "rule", [ExpectationPropagation(LIKELIHOOD), Variational(LIKELIHOOD)], ids=["ep", "vi"]
)
def test_log_predictive_leaves_the_sites_of_all_classes_out(rule):
    """q is made from cavities and sites: the cavities alone must predict."""
    variance = 1 / (1 / CAVITY_VARIANCE + PRECISION)
    mean = variance * (CAVITY_MEAN / CAVITY_VARIANCE + SHIFT)
    terms = rule(LABELS, mean, variance, RESIDUAL, PRECISION, SHIFT, 0.999)
    log_proba = LIKELIHOOD.predict_log_proba(CAVITY_MEAN, RESIDUAL + CAVITY_VARIANCE)
    assert_allclose(terms.log_predictive, log_proba[np.arange(3), LABELS], atol=1e-6)
