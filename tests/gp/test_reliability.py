import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from cavity.gp.metrics import binomial_band, calibration_error, reliability_bins


@given(st.integers(1, 200), st.data())
def test_bands_are_clopper_and_pearsons(trials, data):
    successes = data.draw(st.integers(0, trials))
    truth = binomtest(successes, trials).proportion_ci(0.95, method="exact")
    low, high = binomial_band(np.array(float(successes)), np.array(trials))
    assert low == pytest.approx(truth.low, abs=1e-9)
    assert high == pytest.approx(truth.high, abs=1e-9)


@pytest.mark.parametrize("share", [0.03, 0.4, 0.9])
def test_bands_cover_at_least_as_often_as_they_say(share):
    trials = 60
    successes = np.arange(trials + 1.0)
    low, high = binomial_band(successes, np.full(trials + 1, trials), 0.9)
    covered = (low <= share) & (share <= high)
    assert binom.pmf(successes, trials, share) @ covered >= 0.9


@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
def test_every_row_is_in_one_bin(strategy):
    rng = np.random.default_rng(0)
    p = np.concatenate([[0.0, 1.0, 0.5, 0.1], rng.beta(0.5, 0.5, 500)])
    true = rng.random(len(p)) < p
    bins = reliability_bins(p, true, n_bins=10, strategy=strategy)
    assert bins.count.sum() == len(p)
    assert bins.predicted @ bins.count == pytest.approx(p.sum())
    assert bins.frequency @ bins.count == pytest.approx(true.sum())
    assert (np.diff(bins.predicted) > 0).all()
    assert ((bins.low <= bins.frequency) & (bins.frequency <= bins.high)).all()


def test_calibrated_probabilities_have_a_small_error_and_others_a_large_one():
    rng = np.random.default_rng(1)
    p = rng.random(20_000)
    true = rng.random(len(p)) < p
    assert calibration_error(reliability_bins(p, true)) < 0.02
    assert calibration_error(reliability_bins(p**3, true)) > 0.1


def test_an_unknown_strategy_is_named():
    with pytest.raises(ValueError, match="strategy='equal'"):
        reliability_bins(np.array([0.5]), np.array([True]), strategy="equal")
