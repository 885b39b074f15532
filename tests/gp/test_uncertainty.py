"""The entropy split against quadrature and sampling."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.special import log_softmax, softmax, xlogy

from cavity.gp.likelihoods import Logit, NoisyArgmax, Probit
from cavity.gp.uncertainty import entropy, predictive_uncertainty

LIKELIHOODS = {"probit": Probit(), "logit": Logit()}
CDF = {"probit": mpmath.ncdf, "logit": lambda z: 1 / (1 + mpmath.exp(-z))}
REACH = {"probit": 12.0, "logit": 80.0}


def expected_entropy(likelihood, mean, deviation):
    """E[H[p(y | f)]] by adaptive quadrature, piecewise over the width of the narrower factor."""
    low, high = (
        max(mean - 9 * deviation, -REACH[likelihood]),
        min(mean + 9 * deviation, REACH[likelihood]),
    )
    if low >= high:
        return 0.0

    def integrand(f):
        p, q = CDF[likelihood](f), CDF[likelihood](-f)
        density = mpmath.npdf(f, mean, deviation)
        return -(p * mpmath.log(p) + q * mpmath.log(q)) * density

    pieces = int(np.ceil((high - low) / min(4.0 * deviation, 4.0)))
    return float(mpmath.quad(integrand, np.linspace(low, high, pieces + 1).tolist(), maxdegree=5))


@pytest.mark.parametrize("likelihood", ["probit", "logit"])
@pytest.mark.parametrize("deviation", [1e-3, 0.1, 0.39, 0.41, 1.0, 3.0, 20.0, 100.0])
def test_noise_is_the_expected_entropy(likelihood, deviation):
    means = np.array([0.0, -0.7, 2.0, 5.0, -30.0, 300.0])
    noise = predictive_uncertainty(
        LIKELIHOODS[likelihood], means[None], np.full((1, 6), deviation**2)
    ).aleatoric
    oracle = [expected_entropy(likelihood, mean, deviation) for mean in means]
    assert_allclose(noise, oracle, atol=1e-12)


def test_the_ends_of_an_interval_do_not_cross_by_rounding():
    mean, variance = np.zeros((1, 2)), np.array([[0.0, 5.349433562663021e-302]])
    interval = predictive_uncertainty(Logit(), mean, variance).interval
    assert (interval.lower <= interval.upper).all()


@pytest.mark.parametrize("likelihood", [Probit(), Logit()])
@given(data=st.data())
@settings(max_examples=50)
def test_parts_are_not_negative_and_add_up(likelihood, data):
    n = data.draw(st.integers(1, 20))
    mean = data.draw(st.lists(st.floats(-1e6, 1e6), min_size=n, max_size=n))
    variance = data.draw(st.lists(st.floats(0.0, 1e8), min_size=n, max_size=n))
    total, noise, knowledge, (lower, upper) = predictive_uncertainty(
        likelihood, np.array([mean]), np.array([variance])
    )
    assert (noise >= 0.0).all()
    assert (knowledge >= 0.0).all()
    assert (total <= np.log(2.0) + 1e-12).all()
    assert_allclose(noise + knowledge, total, atol=1e-15)
    assert ((lower >= 0.0) & (lower <= upper) & (upper <= 1.0)).all()
    assert_allclose(lower[:, 0], 1.0 - upper[:, 1], atol=1e-15)


def test_a_known_function_leaves_noise_and_an_unknown_one_want_of_knowledge():
    mean, variance = np.zeros((1, 2)), np.array([[0.0, 1e8]])
    total, noise, knowledge, _ = predictive_uncertainty(Probit(), mean, variance)
    assert_allclose(total, np.log(2.0))
    assert knowledge[0] < 1e-12
    assert noise[1] < 1e-3


def test_a_row_does_not_depend_on_the_others():
    rng = np.random.default_rng(0)
    mean, variance = rng.normal(size=(1, 9_000)), rng.exponential(size=(1, 9_000))
    likelihood = Logit()
    together = np.array(predictive_uncertainty(likelihood, mean, variance)[:3])
    alone = np.array(predictive_uncertainty(likelihood, mean[:, 7:8], variance[:, 7:8])[:3])
    assert_allclose(together[:, 7:8], alone, atol=1e-14)


class Softmax:
    """Three latents; predictive probabilities by plain sampling."""

    n_latents = 3

    def predict_log_proba(self, mean, variance):
        draws = np.random.default_rng(5).normal(size=(100_000 if variance.any() else 1, 3))
        p = np.zeros(mean.T.shape)
        for chunk in np.array_split(draws, max(1, len(draws) // 10_000)):
            f = mean.T[:, None] + np.sqrt(variance.T)[:, None] * chunk
            p += np.exp(log_softmax(f, axis=2)).sum(axis=1)
        return np.log(p / len(draws))

    def proba_given_latents(self, f):
        return softmax(f, axis=0)


@pytest.mark.parametrize("likelihood", [Softmax(), NoisyArgmax(3)], ids=["softmax", "argmax"])
def test_many_latents_against_sampling(likelihood):
    mean = np.array([[0.0, 3.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 30.0]])
    variance = np.array([[1.0, 0.5, 1e-3], [4.0, 2.0, 1e-3], [100.0, 0.1, 1e-3]])
    total, noise, knowledge, _ = predictive_uncertainty(likelihood, mean, variance)
    draws = np.random.default_rng(1).normal(size=(3, 20_000))
    for row in range(3):
        f = mean[:, [row]] + np.sqrt(variance[:, [row]]) * draws
        sampled = entropy(likelihood.predict_log_proba(f, np.zeros_like(f))).mean()
        assert_allclose(noise[row], sampled, atol=8e-3)
    assert (knowledge >= 0.0).all()
    assert_allclose(total, noise + knowledge)


def test_ten_latents_are_within_two_hundredths_of_a_nat():
    rng = np.random.default_rng(0)
    mean, variance = 2.0 * rng.normal(size=(10, 30)), rng.uniform(0.05, 5.0, size=(10, 30))
    noise = predictive_uncertainty(NoisyArgmax(10), mean, variance).aleatoric
    draws = rng.normal(size=(10, 10_000))
    for row in range(30):
        p = NoisyArgmax(10).proba_given_latents(mean[:, [row]] + np.sqrt(variance[:, [row]]) * draws)
        sampled = -xlogy(p, p).sum(axis=0)
        assert abs(noise[row] - sampled.mean()) < 0.02 + 3.0 * sampled.std() / 100.0


@pytest.mark.parametrize("n_classes", [3, 10, 50])
def test_points_of_the_noisy_argmax(n_classes):
    rng = np.random.default_rng(0)
    f = rng.normal(size=(n_classes, 200)) * rng.choice([0.0, 0.3, 1.0, 8.0], size=200)
    expected = np.exp(NoisyArgmax(n_classes).predict_log_proba(f, np.zeros_like(f)))
    assert_allclose(NoisyArgmax(n_classes).proba_given_latents(f).T, expected, atol=1e-6)


@pytest.mark.parametrize("likelihood", [Probit(), Logit(), NoisyArgmax(4)])
def test_an_interval_holds_its_share_of_the_posterior(likelihood):
    """The probabilities of drawn latent values are below and above it equally often."""
    rng = np.random.default_rng(0)
    mean = rng.normal(size=(likelihood.n_latents, 3))
    variance = rng.uniform(0.1, 2.0, size=mean.shape)
    ends = predictive_uncertainty(likelihood, mean, variance, 0.8).interval
    f = mean[:, :, None] + np.sqrt(variance)[:, :, None] * rng.normal(size=(*mean.shape, 20_000))
    p = likelihood.proba_given_latents(f.reshape(len(mean), -1)).reshape(-1, 3, 20_000)
    assert_allclose(np.mean(p < ends.lower.T[:, :, None], axis=2), 0.1, atol=0.02)
    assert_allclose(np.mean(p > ends.upper.T[:, :, None], axis=2), 0.1, atol=0.02)


def test_many_rows_are_cut_into_parts_that_do_not_matter():
    """The interval of a row of many classes is the same alone and among 2,000."""
    rng = np.random.default_rng(0)
    mean, variance = rng.normal(size=(3, 2_000)), rng.uniform(0.1, 2.0, size=(3, 2_000))
    whole = predictive_uncertainty(NoisyArgmax(3), mean, variance).interval
    alone = predictive_uncertainty(NoisyArgmax(3), mean[:, 1_500:1_501], variance[:, 1_500:1_501])
    assert_allclose(whole.lower[1_500], alone.interval.lower[0], atol=1e-14)
    assert_allclose(whole.upper[1_500], alone.interval.upper[0], atol=1e-14)


def test_an_interval_needs_a_level_between_zero_and_one():
    for level in (0.0, 1.0, 90, np.nan):
        with pytest.raises(ValueError, match="use a number such as"):
            predictive_uncertainty(Probit(), np.zeros((1, 1)), np.ones((1, 1)), level)
