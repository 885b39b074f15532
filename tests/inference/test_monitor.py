"""The monitor: what it takes for an improvement, for a plateau, and for noise."""

import numpy as np
import pytest

from cavity.inference.history import StepInfo
from cavity.inference.schedule import Monitor


def saw(score):
    return StepInfo(0.0, score, 0.0, 0.0)


def feed(monitor, scores):
    """Steps whose states are their numbers, from 0; the steps at which it called a plateau."""
    return [i for i, score in enumerate(scores) if monitor.plateau_after(i, saw(score))]


def test_scores_are_means_of_windows():
    monitor = Monitor(window=3, patience=None)
    feed(monitor, [1.0, 2.0, 6.0, 0.0, 0.0, 3.0, 9.0])
    assert monitor.scores == [3.0, 1.0]
    assert monitor.best == 2


def test_ones_own_score_is_asked_once_a_window():
    asked = []

    def score(state):
        asked.append(state)
        return float(state)

    monitor = Monitor(window=4, patience=None, score=score)
    feed(monitor, [0.0] * 12)
    assert asked == [3, 7, 11]
    assert monitor.scores == [3.0, 7.0, 11.0]


def test_a_plateau_is_called_after_so_many_windows_without_improvement():
    monitor = Monitor(window=1, patience=3, tol=1e-3)
    assert feed(monitor, [0.0, 1.0, 2.0] + [2.0] * 10)[0] == 5


def test_what_improves_is_no_plateau():
    assert feed(Monitor(window=1, patience=3, tol=1e-3), np.linspace(0.0, 1.0, 50)) == []


def test_improvements_below_tol_do_not_count():
    rising = np.concatenate([np.linspace(0, 1, 5), 1 + 1e-6 * np.arange(20)])
    assert feed(Monitor(window=1, patience=4, tol=1e-4), rising)


def test_without_patience_it_never_ends():
    assert feed(Monitor(window=1, patience=None), [1.0] + [0.0] * 50) == []


@pytest.mark.parametrize("fall", [0.08, 0.3, 5.0])
@pytest.mark.parametrize("windows_after", [1, 2, 5])
def test_a_collapse_at_the_end_brings_back_the_best_state(fall, windows_after):
    """Also if the score had risen a lot at the start: that was learning, not noise."""
    rng = np.random.default_rng(0)
    scores = -0.3 + 1e-3 * rng.normal(size=40)
    scores[0] = -0.69
    monitor = Monitor(window=1, patience=None)
    feed(monitor, [*scores, *np.full(windows_after, -0.3 - fall)])
    assert monitor.best == int(np.argmax(scores))
    assert monitor.best_or("last") == monitor.best


def test_a_last_state_within_the_noise_of_the_best_is_kept():
    """Its parameters had the longest training, and the best of many noisy scores is mostly luck."""
    rng = np.random.default_rng(0)
    monitor = Monitor(window=1, patience=None)
    feed(monitor, [*(-0.3 + 0.01 * rng.normal(size=40)), -0.3])
    assert monitor.best_or("last") == "last"


def test_without_any_score_the_last_state_is_all_there_is():
    monitor = Monitor(window=10, patience=None)
    feed(monitor, [0.0] * 9)
    assert monitor.best_or("last") == "last"


def test_nan_never_becomes_the_best():
    monitor = Monitor(window=1, patience=None)
    feed(monitor, [-0.5, -0.4, np.nan])
    assert monitor.best == 1
    assert monitor.best_or("last") == 1
