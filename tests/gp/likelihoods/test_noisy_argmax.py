"""The multinomial probit against plain quadrature, sampling and finite differences."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.special import log_ndtr
from scipy.stats import norm

from cavity.gp.likelihoods.noisy_argmax import NoisyArgmax
from reference import central_differences

LIKELIHOOD = NoisyArgmax(3)  # its methods take the number of classes from the moments


def log_evidence(label, mean, variance, n_nodes=4001):
    """log Z by a very fine sum: mean, variance [C]."""
    b = 1.0 + np.asarray(variance)
    others = np.arange(len(b)) != label
    reach = 12.0 * np.sqrt(b.max())
    t = np.linspace(min(mean[label], mean.max()) - reach, mean.max() + reach, n_nodes)
    factors = log_ndtr((t[:, None] - mean[others]) / np.sqrt(b[others])).sum(axis=1)
    logs = norm.logpdf(t, mean[label], np.sqrt(b[label])) + factors
    return logs.max() + np.log(np.exp(logs - logs.max()).sum() * (t[1] - t[0]))


def random_row(seed, scale=2.0, widest=5.0):
    rng = np.random.default_rng(seed)
    n_classes = rng.integers(3, 9)
    mean = scale * rng.standard_normal(n_classes)
    return int(rng.integers(n_classes)), mean, rng.uniform(0.01, widest, n_classes)


def tilted(label, mean, variance):
    return LIKELIHOOD.tilted(np.array([label]), mean[:, None], variance[:, None])


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("scale", "widest"), [(1.0, 1.0), (3.0, 5.0), (6.0, 30.0), (20.0, 30.0)])
def test_evidence_and_its_derivatives(seed, scale, widest):
    label, mean, variance = random_row(seed, scale, widest)
    found = tilted(label, mean, variance)
    value = log_evidence(label, mean, variance)
    assert_allclose(found.log_evidence[0, 0], value, rtol=1e-6, atol=1e-6)
    slope = central_differences(lambda m: log_evidence(label, m, variance), mean, 1e-5)
    assert_allclose(found.slope[:, 0], slope, rtol=1e-4, atol=2e-6)
    step = 1e-3
    bend = [
        (tilted(label, mean + e, variance).slope - tilted(label, mean - e, variance).slope)[c, 0]
        / (2.0 * step)
        for c, e in enumerate(step * np.eye(len(mean)))
    ]
    assert_allclose(found.curvature[:, 0], -np.array(bend), atol=2e-5)


def test_tilted_moments_against_sampling():
    label, mean, variance = 1, np.array([0.3, -0.2, 0.5, 0.0]), np.array([0.5, 1.5, 0.2, 1.0])
    rng = np.random.default_rng(0)
    f = mean + np.sqrt(variance) * rng.standard_normal((400_000, 4))
    chosen = f[(f + rng.standard_normal(f.shape)).argmax(axis=1) == label]
    found = tilted(label, mean, variance)
    assert_allclose(np.exp(found.log_evidence[0, 0]), len(chosen) / len(f), atol=0.003)
    assert_allclose(chosen.mean(axis=0), mean + variance * found.slope[:, 0], atol=0.01)
    assert_allclose(chosen.var(axis=0), variance * found.variance_ratio[:, 0], rtol=0.02)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=6),
    st.floats(1e-6, 1e3),
    st.integers(0, 2),
)
def test_no_row_makes_an_improper_site(mean, variance, label):
    mean = np.array(mean)
    found = tilted(label, mean, np.full(len(mean), variance))
    assert all(np.isfinite(part).all() for part in found)
    assert (found.curvature >= 0.0).all()
    assert (found.variance_ratio > 0.0).all()
    assert_allclose(found.slope.sum(), 0.0, atol=1e-9 * np.abs(found.slope).max() + 1e-12)


class TestProbabilities:
    @pytest.mark.parametrize("seed", range(6))
    def test_each_is_the_evidence_of_its_label(self, seed):
        _, mean, variance = random_row(seed, 3.0, 10.0)
        log_p = LIKELIHOOD.predict_log_proba(mean[:, None], variance[:, None])[0]
        expected = [log_evidence(c, mean, variance) for c in range(len(mean))]
        assert_allclose(log_p, expected, rtol=1e-5, atol=1e-6)
        assert_allclose(np.exp(log_p).sum(), 1.0, atol=1e-12)

    @settings(max_examples=40, deadline=None)
    @given(
        st.lists(
            st.tuples(st.floats(-3.0, 3.0), st.floats(-3.0, 4.0)), min_size=3, max_size=8, unique=True
        )
    )
    @example([(0.77, -1.55), (0.31, 2.66), (0.0, 2.99)])
    def test_each_is_its_integral_where_some_classes_are_known_far_better(self, rows):
        """Variances from 1e-3 to 1e4: the narrowest factor decides how close the nodes must be."""
        mean, exponent = np.array(rows).T
        variance = 10.0**exponent
        mean = mean * np.sqrt(variance.max())
        log_p = LIKELIHOOD.predict_log_proba(mean[:, None], variance[:, None])[0]
        expected = [log_evidence(c, mean, variance, 20_001) for c in range(len(mean))]
        assert_allclose(np.exp(log_p), np.exp(expected), atol=1e-6)
        assert_allclose(log_p, expected, rtol=1e-4, atol=1e-6)

    def test_they_are_the_shares_of_draws(self):
        mean, variance = np.array([23.9, 9.65, 0.06]), np.array([0.028, 453.6, 972.8])
        rng = np.random.default_rng(0)
        noisy = mean + np.sqrt(1.0 + variance) * rng.standard_normal((400_000, 3))
        shares = np.bincount(noisy.argmax(axis=1)) / len(noisy)
        log_p = LIKELIHOOD.predict_log_proba(mean[:, None], variance[:, None])[0]
        assert_allclose(np.exp(log_p), shares, atol=0.004)

    def test_a_row_does_not_depend_on_the_others(self):
        """Rows that need many nodes and rows that need few, in any company."""
        rng = np.random.default_rng(0)
        variance = 10.0 ** rng.uniform(-3.0, 4.0, (4, 60))
        mean = np.sqrt(variance) * rng.standard_normal((4, 60))
        together = LIKELIHOOD.predict_log_proba(mean, variance)
        alone = [
            LIKELIHOOD.predict_log_proba(mean[:, i : i + 1], variance[:, i : i + 1])[0]
            for i in range(60)
        ]
        assert_allclose(together, alone, rtol=1e-12)

    def test_two_of_them_are_the_binary_probit(self):
        mean, variance = np.array([[0.4], [-0.7]]), np.array([[0.3], [1.1]])
        log_p = LIKELIHOOD.predict_log_proba(mean, variance)
        assert_allclose(np.exp(log_p[0, 0]), norm.cdf(1.1 / np.sqrt(3.4)), atol=1e-8)

    def test_without_knowledge_all_classes_are_equal(self):
        log_p = LIKELIHOOD.predict_log_proba(np.zeros((7, 1)), np.full((7, 1), 30.0))
        assert_allclose(np.exp(log_p), 1.0 / 7.0)

    def test_no_rows(self):
        assert LIKELIHOOD.predict_log_proba(np.empty((3, 0)), np.empty((3, 0))).shape == (0, 3)


class TestExpected:
    def at(self, label, mean, variance):
        return LIKELIHOOD.expected(np.array([label]), mean[:, None], variance[:, None])

    @pytest.mark.parametrize("seed", range(5))
    def test_it_bounds_the_expected_log_likelihood(self, seed):
        label, mean, variance = random_row(seed)
        rng = np.random.default_rng(seed)
        f = mean + np.sqrt(variance) * rng.standard_normal((20_000, len(mean)))
        labels = np.full(len(f), label)
        exact = LIKELIHOOD.tilted(labels, f.T, np.zeros_like(f.T)).log_evidence.mean()
        assert self.at(label, mean, variance).log_likelihood[0, 0] < exact

    def test_it_is_tight_where_the_label_is_clear(self):
        mean, variance = np.array([6.0, 0.0, 0.0]), np.full(3, 0.5)
        exact = log_evidence(0, mean, variance)
        assert_allclose(self.at(0, mean, variance).log_likelihood[0, 0], exact, atol=2e-3)

    @pytest.mark.parametrize("seed", range(5))
    def test_derivatives(self, seed):
        label, mean, variance = random_row(seed)
        found = self.at(label, mean, variance)

        def value(m, v):
            return self.at(label, m, v).log_likelihood[0, 0]

        slope = central_differences(lambda m: value(m, variance), mean)
        by_variance = central_differences(lambda v: value(mean, v), variance)
        assert_allclose(found.slope[:, 0], slope, atol=1e-6)
        assert_allclose(found.curvature[:, 0], 2.0 * by_variance, atol=1e-5)
