"""Training with a share κ of the residual is EP under the covariance Q + κ·diag(s), to the gradient."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_iris
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from cavity import SEPClassifier
from cavity.gp.likelihoods import NoisyArgmax
from cavity.gp.posterior import marginals
from cavity.inference.converge import converge
from cavity.inference.rule import ExpectationPropagation
from cavity.inference.sweep import SweepOptions
from reference import (
    central_differences,
    expectation_propagation,
    fitc_covariance,
    fitc_cross_covariance,
    predict,
)
from support import KERNELS, make, make_engine, make_prior, points, signs, table, value_and_gradient

every_share = pytest.mark.parametrize("share", [0.0, 0.1, 0.6])
X, CODES = load_iris(return_X_y=True)


def shared_point(engine, prior, share, tol=1e-12):
    point = converge(
        engine, prior, engine.rule, tol=tol, max_sweeps=2000, options=SweepOptions(residual_scale=share)
    )
    assert point.converged
    return point


@every_share
@pytest.mark.parametrize("name", ["rbf-ard", "noisy"])
def test_evidence_leave_one_out_and_means_against_dense_ep(name, share):
    kernel = KERNELS[name]
    rows, labels = table()
    elsewhere, _ = table(10, seed=7)
    engine, prior = make_engine(rows, labels), make_prior(kernel, points())
    point = shared_point(engine, prior, share)

    fitc, residual = fitc_covariance(kernel, rows, prior.Z, prior.jitter)
    K = fitc - (1.0 - share) * np.diag(residual)
    oracle = expectation_propagation(K, signs(labels))
    assert_allclose(point.objective, oracle.log_evidence, atol=1e-8)
    assert_allclose(engine.log_predictive, oracle.log_predictive, atol=1e-8)

    # Elsewhere the function is that of the whole kernel.
    cross = fitc_cross_covariance(kernel, elsewhere, rows, prior.Z, prior.jitter)
    mean, variance, _ = predict(oracle, K, cross, kernel.diag(elsewhere))
    at = marginals(elsewhere, prior, point.posterior)
    assert_allclose(at.mean[0], mean, atol=1e-8)
    assert_allclose(at.variance[0] + at.residual, variance, atol=1e-8)


@every_share
@pytest.mark.parametrize("n_classes", [2, 3])
def test_gradient_at_the_fixed_point(n_classes, share):
    rows, labels = table()
    rule = ExpectationPropagation()
    if n_classes == 3:
        rule = ExpectationPropagation(NoisyArgmax(3))
        labels = np.digitize(np.sin(2 * rows[:, 0]) + rows[:, 1], [-0.5, 0.5])
    kernel, Z = ConstantKernel(1.5) * RBF([0.7, 1.3]), points()
    engine = make_engine(rows, labels, rule=rule)
    shared_point(engine, make_prior(kernel, Z), share, 1e-11)

    def value(theta, moved):
        prior = make_prior(kernel.clone_with_theta(theta), moved)
        return shared_point(engine, prior, share, 1e-9).objective

    _, gradient = value_and_gradient(engine, make_prior(kernel, Z), residual_scale=share)
    by_theta = central_differences(lambda theta: value(theta, Z), kernel.theta, 1e-4)
    by_Z = central_differences(lambda moved: value(kernel.theta, moved), Z, 1e-4)
    assert_allclose(gradient.theta, by_theta, atol=1e-5)
    assert_allclose(gradient.Z, by_Z, atol=1e-5)


MINIBATCHES = {"n_inducing": 8, "batch_size": 128, "max_epochs": 4, "random_state": 0, "n_jobs": 1}


def test_the_evidence_is_that_of_the_share():
    """The value of the fit and the value at its own theta are both those of its configuration."""
    model = make(SEPClassifier, **MINIBATCHES, residual_scale=0.1).fit(X, CODES)
    again = model.log_marginal_likelihood(model.kernel_.theta)
    assert_allclose(again, model.log_marginal_likelihood_value_, rtol=1e-4)
    model.config_ = replace(model.config_, residual_scale=1.0)
    assert abs(model.log_marginal_likelihood(model.kernel_.theta) / again - 1.0) > 1e-3


class TestStream:
    def test_without_a_fit_nothing_is_calibrated_and_s_counts_in_full(self):
        assert make(SEPClassifier, **MINIBATCHES).partial_fit(X, CODES).config_.residual_scale == 1.0

    def test_after_a_fit_it_goes_on_as_that_one(self):
        model = make(SEPClassifier, **MINIBATCHES, residual_scale=0.0).fit(X, CODES)
        assert model.set_params(config=None).partial_fit(X, CODES).config_.residual_scale == 0.0
