"""q(u) against textbook formulas for Gaussians."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from cavity.gp.posterior import NaturalParameters, Posterior
from reference import log_normaliser


@pytest.fixture
def naturals():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(2, 7, 4))
    return NaturalParameters(np.einsum("cij,cik->cjk", A, A), rng.normal(size=(2, 4)))


def test_moments_solve_the_normal_equations(naturals):
    q = Posterior.from_naturals(naturals)
    for c in range(2):
        B = np.eye(4) + naturals.precision[c]
        assert_allclose(q.covariance[c], np.linalg.inv(B), atol=1e-12)
        assert_allclose(q.mean[c], np.linalg.solve(B, naturals.shift[c]), atol=1e-12)


def test_log_partition_is_the_log_normaliser_of_q_over_that_of_the_prior(naturals):
    expected = sum(
        log_normaliser(np.eye(4) + P, h) for P, h in zip(naturals.precision, naturals.shift, strict=True)
    )
    assert_allclose(Posterior.from_naturals(naturals).log_partition, expected)


def test_divergence_is_that_of_two_gaussians(naturals):
    q = Posterior.from_naturals(naturals)
    expected = sum(
        0.5 * (np.trace(S) + m @ m - 4 - np.linalg.slogdet(S)[1])
        for m, S in zip(q.mean, q.covariance, strict=True)
    )
    assert_allclose(q.divergence, expected)
    assert q.divergence > 0


def test_without_sites_q_is_the_prior():
    q = Posterior.from_naturals(NaturalParameters.zeros(2, 3))
    assert_array_equal(q.mean, np.zeros((2, 3)))
    assert_array_equal(q.covariance, [np.eye(3)] * 2)
    assert q.divergence == q.log_partition == 0.0
    assert_array_equal(q.prior_minus_second_moment(), np.zeros((3, 3)))


def test_prior_minus_second_moment_sums_over_latent_functions(naturals):
    q = Posterior.from_naturals(naturals)
    expected = sum(np.eye(4) - S - np.outer(m, m) for m, S in zip(q.mean, q.covariance, strict=True))
    assert_allclose(q.prior_minus_second_moment(), expected)


def test_mixing_is_linear(naturals):
    nothing = NaturalParameters.zeros(2, 4)
    mixed = nothing.mixed_with(naturals, 0.25)
    assert_allclose(mixed.precision, 0.25 * naturals.precision)
    assert_allclose(mixed.shift, 0.25 * naturals.shift)
    assert_array_equal(naturals.mixed_with(nothing, 0.0).shift, naturals.shift)


def test_naturals_to_moments_and_back(naturals):
    q = Posterior.from_naturals(naturals)
    again = Posterior.from_moments(q.mean, np.linalg.cholesky(q.covariance))
    assert_allclose(again.naturals.precision, naturals.precision, atol=1e-10)
    assert_allclose(again.naturals.shift, naturals.shift, atol=1e-10)
    assert_allclose(again.covariance, q.covariance, atol=1e-12)
    assert_allclose(again.log_partition, q.log_partition)
    assert_allclose(again.divergence, q.divergence)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_factors_alone_say_the_same_of_a_pass_as_the_covariance(naturals, dtype):
    whole = Posterior.from_naturals(naturals)
    q = Posterior.from_factors(whole.mean, np.linalg.cholesky(whole.covariance), np.dtype(dtype))
    A = np.random.default_rng(1).normal(size=(5, 4)).astype(dtype)
    products, variance = q.project(A)
    for c, product in enumerate(products):
        assert product.dtype == dtype
        assert_allclose(product, A @ whole.covariance[c], rtol=1e-5, atol=1e-6)
        assert_allclose(variance[c], np.diag(A @ whole.covariance[c] @ A.T), rtol=1e-5)
    assert_allclose(q.divergence, whole.divergence, rtol=1e-6)
    assert_array_equal(q.mean_in(np.dtype(dtype)), whole.mean.astype(dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_variance_alone_is_that_of_the_projection(naturals, dtype):
    whole = Posterior.from_naturals(naturals)
    factors = np.linalg.cholesky(whole.covariance)
    A = np.random.default_rng(1).normal(size=(5, 4)).astype(dtype)
    for q in (whole, Posterior.from_factors(whole.mean, factors, np.dtype(dtype))):
        assert_allclose(q.variance(A), q.project(A)[1], rtol=1e-5 if dtype == np.float32 else 1e-12)


def test_variance_of_a_singular_covariance_is_exact_within_rounding():
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 6)))[0]
    S = (basis * [1.0, 0.3, 1e-9, 0.0, 0.0, -1e-17]) @ basis.T
    q = Posterior(np.zeros((1, 6)), S[None], 0.0, NaturalParameters.zeros(1, 6))
    assert_allclose(q.variance(basis.T), [[1.0, 0.3, 1e-9, 0.0, 0.0, 0.0]], atol=1e-15)


def test_scaling_repeats_every_site(naturals):
    assert_array_equal(naturals.scaled(3.0).precision, 3.0 * naturals.precision)
    assert_array_equal(naturals.scaled(3.0).shift, 3.0 * naturals.shift)
