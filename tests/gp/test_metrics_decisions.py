"""Decisions: thresholds and costs, against a search over all labels."""

import numpy as np
import pytest
from sklearn.metrics import precision_score, recall_score

from cavity.gp.metrics import Decision, ScoreSums


def problem(n_classes, n=500):
    rng = np.random.default_rng(n_classes)
    proba = rng.dirichlet(np.ones(n_classes), n)
    labels = np.array([rng.choice(n_classes, p=row) for row in proba])
    return np.log(proba), labels


@pytest.mark.parametrize("n_classes", [2, 4])
def test_costs_lead_to_the_label_of_least_expected_cost(n_classes):
    log_proba, _ = problem(n_classes)
    costs = np.random.default_rng(0).uniform(0.1, 9.0, (n_classes, n_classes))
    np.fill_diagonal(costs, 0.0)
    for row, code in zip(log_proba, Decision(costs=costs).codes(log_proba), strict=True):
        expected = [
            sum(np.exp(row[i]) * costs[i, j] for i in range(n_classes)) for j in range(n_classes)
        ]
        assert code == int(np.argmin(expected))


@pytest.mark.parametrize("positive", [0, 1])
def test_costs_of_two_classes_are_a_threshold(positive):
    log_proba, _ = problem(2)
    by_cost = Decision(positive, costs=np.array([[0.0, 3.0], [0.5, 0.0]]))
    by_threshold = Decision(positive, threshold=by_cost.least_probability)
    assert np.array_equal(by_cost.codes(log_proba), by_threshold.codes(log_proba))
    assert by_cost.least_probability == pytest.approx([0.5 / 3.5, 3.0 / 3.5][positive])


def test_a_probability_equal_to_the_threshold_is_enough():
    assert Decision(threshold=0.25).codes(np.log([[0.75, 0.25]])).tolist() == [1]


@pytest.mark.parametrize("positive", [0, 1])
def test_scores_are_those_of_the_decision_and_the_positive_class(positive):
    log_proba, labels = problem(2)
    costs = np.array([[0.0, 3.0], [0.5, 0.0]])
    decision = Decision(positive, costs=costs)
    sums = ScoreSums(2, decision)
    sums.add(log_proba, labels)
    found, predicted = sums.scores(np.array([1, 1])), decision.codes(log_proba)
    assert found["precision"] == pytest.approx(precision_score(labels, predicted, pos_label=positive))
    assert found["recall"] == pytest.approx(recall_score(labels, predicted, pos_label=positive))
    assert found["error"] == pytest.approx(np.mean(predicted != labels))
    assert found["cost"] == pytest.approx(costs[labels, predicted].mean())
    # Where each class is as likely as the other, the cheaper mistake is made.
    assert found["baseline"]["cost"] == pytest.approx(0.5 * np.mean(labels == 1))
    other = ScoreSums(2, Decision(1 - positive))
    other.add(log_proba, labels)
    assert other.scores(np.array([1, 1]))["auc"] == pytest.approx(found["auc"], abs=1e-4)
