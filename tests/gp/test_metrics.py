"""Scores against scikit-learn's, chunks against all rows at once, and reliability bins."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest
from sklearn.metrics import (
    average_precision_score,
    brier_score_loss,
    confusion_matrix,
    f1_score,
    log_loss,
    roc_auc_score,
    zero_one_loss,
)

from cavity.gp.metrics import ScoreSums, binomial_band, calibration_error, reliability_bins, score


def forecasts(n=500, c=2, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(c, size=n)
    logits = rng.normal(size=(n, c)) + 1.5 * np.eye(c)[labels]
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)), labels


@pytest.mark.parametrize("c", [2, 4])
def test_scores_are_those_of_scikit_learn(c):
    log_proba, labels = forecasts(c=c)
    proba = np.exp(log_proba)
    scores = score(log_proba, labels, np.bincount(labels))
    assert scores["nll"] == pytest.approx(log_loss(labels, proba))
    assert scores["error"] == pytest.approx(zero_one_loss(labels, proba.argmax(axis=1)))
    if c == 2:
        assert scores["brier"] == pytest.approx(brier_score_loss(labels, proba[:, 1]))
    else:
        brier = np.square(proba - np.eye(c)[labels]).sum(axis=1).mean()
        assert scores["brier"] == pytest.approx(brier)
    expected = roc_auc_score(labels, proba[:, 1] if c == 2 else proba, multi_class="ovr")
    assert scores["auc"] == pytest.approx(expected, abs=1e-5)
    assert scores["confusion"] == confusion_matrix(labels, proba.argmax(axis=1)).tolist()
    precision = average_precision_score(
        labels if c == 2 else np.eye(c)[labels], proba[:, 1] if c == 2 else proba
    )
    assert scores["average_precision"] == pytest.approx(precision, abs=1e-3)
    f1 = f1_score(labels, proba.argmax(axis=1), average="binary" if c == 2 else "macro")
    assert scores["f1"] == pytest.approx(f1)
    if c == 2:
        highest = np.argsort(-proba[:, 1])[:50]
        assert scores["lift_10"] == pytest.approx(labels[highest].mean() / labels.mean())
    else:
        assert scores["lift_10"] is None
    gap = [part["weight"] * abs(part["confidence"] - part["accuracy"]) for part in scores["reliability"]]
    assert sum(part["weight"] for part in scores["reliability"]) == len(labels)
    assert sum(gap) / len(labels) == pytest.approx(scores["calibration_error"])


def test_rows_that_tie_lift_nothing():
    scores = score(np.log(np.full((40, 2), 0.5)), np.arange(40) % 2, np.array([1, 1]))
    assert scores["lift_10"] == pytest.approx(1.0)
    assert scores["average_precision"] == pytest.approx(0.5)


def test_chunks_add_up():
    log_proba, labels = forecasts(c=3)
    sums = ScoreSums(3)
    for rows in np.array_split(np.arange(len(labels)), 7):
        sums.add(log_proba[rows], labels[rows])
    counts = np.bincount(labels)
    for name, value in score(log_proba, labels, counts).items():
        if isinstance(value, float):
            assert sums.scores(counts)[name] == pytest.approx(value)


@pytest.mark.parametrize("c", [2, 4])
def test_a_weight_counts_copies(c):
    log_proba, labels = forecasts(c=c)
    copies = np.random.default_rng(1).integers(0, 4, size=len(labels))
    counts = np.bincount(labels)
    copied = score(log_proba.repeat(copies, axis=0), labels.repeat(copies), counts)
    sums = ScoreSums(c)
    kept = copies > 0
    sums.add(log_proba[kept], labels[kept], copies[kept].astype(float))
    weighted = sums.scores(counts)
    assert weighted.pop("rows") == kept.sum()
    assert copied.pop("rows") == copies.sum() == weighted["weight"]
    assert np.array_equal(weighted.pop("confusion"), copied.pop("confusion"))
    for part, other in zip(weighted.pop("reliability"), copied.pop("reliability"), strict=True):
        assert part == pytest.approx(other)
    for name, value in copied.items():
        assert weighted[name] == pytest.approx(value)


def test_fractions_of_rows_count_too():
    log_proba, labels = forecasts()
    halves, whole = ScoreSums(2), ScoreSums(2)
    halves.add(log_proba, labels, np.full(len(labels), 0.5))
    whole.add(log_proba, labels)
    counts = np.bincount(labels)
    for name in ("nll", "error", "brier", "calibration_error", "auc", "baseline"):
        assert halves.scores(counts)[name] == pytest.approx(whole.scores(counts)[name])
    assert halves.scores(counts)["weight"] == len(labels) / 2


def test_a_forecaster_who_is_right_as_often_as_it_says():
    labels = (np.arange(1_000) < 700).astype(int)
    scores = score(np.log(np.tile([0.3, 0.7], (1_000, 1))), labels, np.array([300, 700]))
    assert scores["calibration_error"] == pytest.approx(0.0, abs=1e-12)
    assert scores["nll"] == pytest.approx(scores["baseline"]["nll"], rel=1e-4)
    assert scores["error"] == scores["baseline"]["error"] == pytest.approx(0.3)
    assert scores["brier"] == pytest.approx(scores["baseline"]["brier"])


def test_a_forecaster_who_is_too_sure():
    labels = (np.arange(100) < 50).astype(int)
    scores = score(np.log(np.tile([0.1, 0.9], (100, 1))), labels, np.array([1, 1]))
    assert scores["calibration_error"] == pytest.approx(0.4)


def test_one_class_has_no_curve():
    log_proba, _ = forecasts(n=5)
    assert score(log_proba, np.ones(5, int), np.array([1, 1]))["auc"] is None


def test_probabilities_of_nought_and_one_are_ranked_too():
    said = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    with np.errstate(divide="ignore"):
        scores = score(np.log(said), np.array([0, 1, 1]), np.array([1, 1]))
    assert scores["auc"] == 1.0


def test_the_sums_do_not_grow_with_the_rows():
    sums = ScoreSums(2)
    log_proba, labels = forecasts(n=1_000)
    sums.add(log_proba, labels)
    size = sum(getattr(value, "nbytes", 0) for value in vars(sums).values())
    for _ in range(3):
        sums.add(log_proba, labels)
    assert sum(getattr(value, "nbytes", 0) for value in vars(sums).values()) == size


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
