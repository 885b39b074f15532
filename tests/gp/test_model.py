"""Predictions of a fitted model: tiles, joint moments, draws and noise."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process.kernels import RBF, Matern, RationalQuadratic, WhiteKernel

from cavity.data.scaling import Scaling
from cavity.gp.calibration import SMALLEST_CENTRE, Calibration
from cavity.gp.likelihoods import NoisyArgmax, Probit
from cavity.gp.model import Model
from cavity.gp.posterior import NaturalParameters, Posterior, marginals
from cavity.gp.prior import Prior
from support import points, set_tile_rows

NOISE = 0.3
SMOOTH = RBF(0.8)
X = points(9, seed=3)


def model(n_latents=1, dtype=np.float64, kernel=SMOOTH, **options):
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(n_latents, 4, 4))
    naturals = NaturalParameters(factor @ factor.transpose(0, 2, 1), rng.normal(size=(n_latents, 4)))
    prior = Prior(2.0 * kernel + WhiteKernel(NOISE), points(4), np.dtype(dtype))
    likelihood = Probit() if n_latents == 1 else NoisyArgmax(n_latents)
    posterior = Posterior.from_naturals(naturals)
    return Model.from_prior(prior, posterior, Scaling.identity(2), likelihood, **options)


@pytest.mark.parametrize("n_latents", [1, 3])
def test_joint_moments_have_the_marginals_without_the_noise(n_latents):
    at = model(n_latents, inverse_temperature=0.7, residual_variance_scale=0.3)
    mean, variance = at.latent_moments(X)
    joint_mean, covariance = at.joint_moments(X)
    assert_allclose(joint_mean, mean, rtol=1e-6)
    assert_allclose(np.diagonal(covariance, axis1=1, axis2=2) + 0.7**2 * NOISE, variance, rtol=1e-6)


@pytest.mark.parametrize("n_latents", [1, 3])
def test_calibration_scales_functions_and_residuals(n_latents):
    at = model(n_latents, inverse_temperature=1.3, residual_variance_scale=0.05)
    q = marginals(X, at.prior, at.posterior)  # its residual includes the noise
    mean, variance = at.latent_moments(X)
    assert_allclose(mean, 1.3 * q.mean, rtol=1e-12)
    assert_allclose(variance, 1.3**2 * (q.variance + 0.05 * (q.residual - NOISE) + NOISE), rtol=1e-12)
    parts = at.latent_parts(X)
    assert_allclose(parts.mean, q.mean, rtol=1e-12)
    assert_allclose(parts.variance, q.variance + NOISE, rtol=1e-12)
    assert_allclose(parts.residual, q.residual - NOISE, rtol=1e-12)
    assert at.calibration == Calibration(1.3, 0.05)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("b", [0.0, 1e-12, 0.01, 1.0, 7.0])
@pytest.mark.parametrize("n_latents", [1, 3])
def test_the_share_of_variance_left_is_that_of_the_calibrated_model(n_latents, b, dtype):
    at = model(n_latents, dtype, residual_variance_scale=b)
    exact = model(n_latents)
    near = exact.Z + 0.2
    q = marginals(near, exact.prior, exact.posterior)
    residual = max(b, SMALLEST_CENTRE) * (q.residual - NOISE)
    share = (q.variance + residual) / ((q.A**2).sum(axis=1) + residual)
    assert share.min() < 0.8
    assert_allclose(at.remaining_variance_share(near), share, rtol=1e-4 if dtype == np.float32 else 1e-6)
    for far in (8.0, 30.0, 1e30):
        assert_allclose(at.remaining_variance_share(near + far), 1.0, atol=1e-9)


@pytest.mark.parametrize("b", [0.0, 1e-12, 0.004, 1.0, 7.0])
@pytest.mark.parametrize(
    "kernel",
    [
        RBF(0.8),
        Matern(0.8, nu=0.5),
        Matern(0.8, nu=1.5),
        Matern(0.8, nu=2.5),
        RationalQuadratic(0.8, alpha=1.0),
        Matern(0.8, nu=0.5) * RBF(3.0),
        Matern(0.8, nu=1.5) + RBF(3.0),
    ],
    ids=str,
)
def test_far_rows_have_all_variance_left_whatever_the_calibration(kernel, b):
    at = model(kernel=kernel, residual_variance_scale=b)
    assert at.remaining_variance_share(at.Z).min() < 0.5
    directions = np.random.default_rng(1).normal(size=(20, 2))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    shares = np.stack([at.remaining_variance_share(r * directions)[0] for r in (15, 30, 100, 1e6)])
    assert shares[0].min() >= 0.9
    assert (np.diff(shares, axis=0) >= -1e-9).all()
    assert shares[-1].min() >= 0.999


def test_without_calibration_it_is_the_share_of_the_kernels_variance():
    at = model(3)
    variance = at.latent_moments(X)[1] - NOISE
    assert_allclose(at.remaining_variance_share(X), variance / 2.0, rtol=1e-12)


def test_tiles_and_the_way_they_are_mapped_change_nothing(monkeypatch):
    at = model()
    whole, share = at.latent_moments(X), at.remaining_variance_share(X)
    set_tile_rows(monkeypatch, 4)
    calls = []

    def counting_map(function, items):
        calls.extend(items)
        return map(function, items)

    for part, expected in zip(at.latent_moments(X, counting_map), whole, strict=True):
        assert_allclose(part, expected, rtol=1e-12)
    assert calls == [0, 4, 8]
    assert_allclose(at.remaining_variance_share(X, counting_map), share, rtol=1e-12)
    assert calls == 2 * [0, 4, 8]


@pytest.mark.parametrize("n_latents", [1, 3])
def test_draws_have_the_joint_moments(n_latents):
    at = model(n_latents)
    draws = at.sample(X, 40_000, np.random.default_rng(0))
    assert draws.shape == (n_latents, len(X), 40_000)
    mean, covariance = at.joint_moments(X)
    assert_allclose(draws.mean(axis=2), mean, atol=0.05)
    for drawn, expected in zip(draws, covariance, strict=True):
        assert_allclose(np.cov(drawn), expected, atol=0.08)
    assert_array_equal(draws, at.sample(X, 40_000, np.random.default_rng(0)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_noise_is_that_of_the_white_kernel(dtype):
    assert_allclose(model(dtype=dtype).noise_variance(X), NOISE, rtol=1e-6)


def test_a_model_keeps_the_prior_and_posterior_that_it_is_made_from():
    """K_mm is factored once."""
    at = model(dtype=np.float32)
    again = Model.from_prior(at.prior, at.posterior, at.scaling, at.likelihood)
    assert again.prior is at.prior
    unpickled = pickle.loads(pickle.dumps(at))
    assert unpickled.prior is not at.prior
    assert_array_equal(unpickled.latent_moments(X), at.latent_moments(X))
