"""The oracles against each other: truth that nobody checked is no truth."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm
from sklearn.gaussian_process.kernels import RBF

from reference import (
    exact_log_evidence,
    expectation_propagation,
    fitc_covariance,
    log_evidence_of_factors,
    predict,
    projections,
)
from support import points, signs, table


def test_orthant_probability_of_two_rows_is_the_arcsine():
    K = np.array([[2.0, 1.2], [1.2, 1.5]])
    correlation = 1.2 / np.sqrt(3.0 * 2.5)
    for y, sign in (([1, 1], 1), ([1, -1], -1)):
        truth = 0.25 + sign * np.arcsin(correlation) / (2 * np.pi)
        assert_allclose(exact_log_evidence(K, np.array(y, dtype=float), 1e-8), np.log(truth), atol=1e-7)


def test_expectation_propagation_of_one_row_is_exact():
    # One probit factor: the tilted distribution is the posterior, and its moments are matched.
    K = np.array([[2.0]])
    ep = expectation_propagation(K, np.array([1.0]))
    assert_allclose(ep.log_evidence, np.log(0.5))
    mean, variance, _ = predict(ep, K, K, np.array([2.0]))
    grid = np.linspace(-15, 15, 200_001)
    weight = norm.pdf(grid, scale=np.sqrt(2.0)) * norm.cdf(grid)
    weight /= weight.sum()
    assert_allclose(mean, weight @ grid, rtol=1e-9)
    assert_allclose(variance, weight @ grid**2 - mean**2, rtol=1e-9)


def test_expectation_propagation_of_one_row_with_a_mean_is_exact():
    K, y = np.array([[2.0]]), np.array([-1.0])
    ep = expectation_propagation(K, y, prior_mean=0.7)
    assert_allclose(ep.log_evidence, norm.logcdf(-0.7 / np.sqrt(3.0)))
    mean, variance, _ = predict(ep, K, K, np.array([2.0]), 0.7, 0.7)
    grid = np.linspace(-15, 15, 200_001)
    weight = norm.pdf(grid, 0.7, np.sqrt(2.0)) * norm.cdf(-grid)
    weight /= weight.sum()
    assert_allclose(mean, weight @ grid, rtol=1e-9)
    assert_allclose(variance, weight @ grid**2 - mean**2, rtol=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_expectation_propagation_is_close_to_the_exact_evidence(seed):
    X, labels = table(4, seed=seed)
    K, y = 2.0 * RBF(1.0)(X), signs(labels)
    exact = exact_log_evidence(K, y)
    assert_allclose(expectation_propagation(K, y).log_evidence, exact, atol=0.01)
    assert abs(exact - 4 * np.log(0.5)) > 0.02, "a case that tells nothing"


def test_factors_on_inducing_values_have_the_evidence_of_sites_on_rows():
    X, labels = table()
    kernel, Z, y = RBF(0.8), points(), signs(labels)
    K, residual = fitc_covariance(kernel, X, Z, 1e-8)
    ep = expectation_propagation(K, y)
    precision = 1 / (1 / ep.precision + residual)
    shift = precision * ep.shift / ep.precision
    U, _ = projections(kernel, X, Z, 1e-8)
    value = log_evidence_of_factors(kernel, X, y, Z, 1e-8, U, precision, shift)
    assert_allclose(value, ep.log_evidence, atol=1e-9)
