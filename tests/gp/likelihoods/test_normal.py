"""The normal distribution, Gauss rules and the logistic mixture, against digits and moments."""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.special import expit, factorial2, ndtr

from cavity.gp.likelihoods.binary import kolmogorov_density, logistic_mixture
from cavity.gp.likelihoods.normal import density_ratio, gauss_hermite, gauss_rule, log_cdf


@given(st.floats(-1e3, 1e3))
@example(-40.0)
@example(38.0)
@example(0.0)
def test_log_cdf_and_density_ratio(z):
    with mp.workdps(50):
        cdf = mp.erfc(-mp.mpf(z) / mp.sqrt(2)) / 2
        upper = mp.erfc(mp.mpf(z) / mp.sqrt(2)) / 2
        log_truth = float(mp.log(cdf) if z < 0 else mp.log1p(-upper))
        ratio_truth = float(mp.npdf(mp.mpf(z)) / cdf)
    # exp(−z²/2) magnifies the last digit of z² by z².
    rtol = 1e-13 * max(1, z * z)
    assert abs(log_cdf(np.array(z)) - log_truth) <= rtol * abs(log_truth) + 1e-300
    assert abs(density_ratio(np.array(z)) - ratio_truth) <= rtol * ratio_truth + 1e-300


def test_limits_beyond_any_data():
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        assert density_ratio(np.array(-1e12)) == pytest.approx(1e12, rel=1e-15)
        assert density_ratio(np.array(1e12)) == 0.0
        assert log_cdf(np.array(1e12)) == 0.0


@pytest.mark.parametrize("n_nodes", [1, 2, 5, 10, 20])
def test_gauss_hermite_has_the_normal_moments(n_nodes):
    nodes, weights = gauss_hermite(n_nodes)
    for power in range(0, 2 * n_nodes, 2):
        assert_allclose(weights @ nodes**power, factorial2(power - 1) if power else 1.0, rtol=1e-11)
        assert abs(weights @ nodes ** (power + 1)) <= 1e-11 * factorial2(power + 1)


def test_gauss_rule_of_a_uniform_distribution_is_gauss_legendre():
    edges = np.linspace(-1, 1, 100_001)
    middles = 0.5 * (edges[1:] + edges[:-1])
    nodes, weights = gauss_rule(middles, np.ones_like(middles), 6)
    legendre_nodes, legendre_weights = np.polynomial.legendre.leggauss(6)
    assert_allclose(nodes, legendre_nodes, atol=1e-9)
    assert_allclose(weights, legendre_weights / 2, atol=1e-9)


def test_gauss_rule_recovers_a_distribution_of_as_many_points():
    points, masses = np.array([-2.0, 0.5, 1.0, 7.0]), np.array([1.0, 2.0, 3.0, 4.0])
    nodes, weights = gauss_rule(points, masses, 4)
    assert_allclose(nodes, points, rtol=1e-12)
    assert_allclose(weights, masses / 10, rtol=1e-12)


def test_kolmogorov_density_is_a_density_with_its_known_mean():
    log_k = np.linspace(np.log(0.1), np.log(8.0), 4001)
    k = np.exp(log_k)
    mass = kolmogorov_density(k) * k * (log_k[1] - log_k[0])
    assert (mass >= 0).all()
    assert_allclose(mass.sum(), 1.0, rtol=1e-12)
    assert_allclose(mass @ k, np.sqrt(np.pi / 2) * np.log(2), rtol=1e-12)


def test_the_two_series_of_kolmogorovs_density_meet():
    below, above = kolmogorov_density(np.array([0.8, 0.8 + 1e-12]))
    assert_allclose(below, above, rtol=1e-10)


def test_mixture_of_normals_is_the_logistic_distribution():
    weights, scales = logistic_mixture()
    z = np.linspace(-60, 60, 24_001)
    x = z[:, None] / scales
    gauss = np.exp(-0.5 * x**2) / np.sqrt(2 * np.pi)
    assert (weights > 0).all()
    assert_allclose(weights.sum(), 1.0, rtol=1e-14)
    assert_allclose(ndtr(x) @ weights, expit(z), rtol=0, atol=2e-11)
    assert_allclose((gauss / scales) @ weights, expit(z) * expit(-z), rtol=0, atol=3e-11)
    log_sigmoid = ((x * ndtr(-x) - gauss) * scales) @ weights
    assert_allclose(log_sigmoid, -np.logaddexp(0, -z), rtol=1e-14, atol=1e-11)
