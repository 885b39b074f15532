import numpy as np
import pytest
from benchmarks.metrics import (
    CLIP,
    calibration_error_by_chance,
    expected_calibration_error,
    latent_scores,
    log_probabilities,
    scores,
)
from scipy.stats import norm


def test_scores_of_known_probabilities():
    y = np.array([1, -1, 1, -1])
    got = scores(log_probabilities(np.array([0.8, 0.2, 0.4, 0.4])), y)
    assert got["nll"] == pytest.approx(-np.mean(np.log([0.8, 0.8, 0.4, 0.6])))
    assert got["error"] == 0.25
    # Two confidences, .8 (both right) and .6 (one of two right).
    assert got["ece"] == pytest.approx((2 * 0.2 + 2 * 0.1) / 4)


def test_log_probabilities_survive_where_probabilities_do_not():
    log_p = np.array([[-800.0, 0.0]])
    assert scores(log_p, np.array([-1]))["nll"] == 800.0
    assert scores(log_probabilities(np.array([1.0])), np.array([-1]))["nll"] == -np.log(CLIP)


def test_wrong_shape_is_refused():
    with pytest.raises(ValueError, match="shape"):
        scores(np.zeros((3, 1)), np.ones(3, dtype=int))


def test_many_classes_are_scored_by_their_columns():
    p = np.array([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7]])
    found = scores(np.log(p), np.array([0, 1]))
    assert found["error"] == 0.5
    assert np.isclose(found["nll"], -np.log([0.7, 0.2]).mean())


def test_scores_against_the_true_function():
    f = np.array([-2.0, 0.0, 1.0, 30.0])
    p = norm.cdf(f[:3])
    q = np.array([0.3, 0.5, 0.6])
    log_q = np.vstack([np.log(np.column_stack([1 - q, q])), [-460.0, 0.0]])
    found = latent_scores(f, mean=f / 2.0 + 1.0, variance=np.array([1.0, 0.25, 1.0, 1.0]), log_p=log_q)
    assert found["slope"] == pytest.approx(2.0)
    assert found["coverage"] == 0.25  # the distances are 2, 1, .5 and 14
    assert found["width"] == pytest.approx(2 * 1.96 * 3.5 / 4)
    by_label = p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))
    assert found["excess"] == pytest.approx(by_label.sum() / 4)
    true = np.column_stack([norm.logcdf(-f), norm.logcdf(f)])
    assert latent_scores(f, f, np.ones(4), true)["excess"] == pytest.approx(0.0, abs=1e-15)


def test_the_calibration_error_by_chance_is_the_mean_over_drawn_labels():
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.5, 1.0, size=600)
    drawn = [
        expected_calibration_error(confidence, rng.uniform(size=600) < confidence) for _ in range(400)
    ]
    assert calibration_error_by_chance(confidence) == pytest.approx(np.mean(drawn), rel=0.05)
