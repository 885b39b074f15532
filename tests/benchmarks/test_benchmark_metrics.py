import numpy as np
import pytest
from benchmarks.metrics import CLIP, log_probabilities, scores


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
