"""Decisions: which class is predicted, given probabilities and what mistakes cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cavity.typing import Array, IntArray


@dataclass(frozen=True)
class Decision:
    """How probabilities become labels: the likeliest class, unless a threshold or costs are given.

    >>> log_proba = np.log([[0.7, 0.3], [0.9, 0.1]])
    >>> Decision().codes(log_proba).tolist(), Decision(threshold=0.3).codes(log_proba).tolist()
    ([0, 0], [1, 0])

    If it costs 5 to miss a row of the second class, and 1 to take another row for it, the second class
    is worth predicting from a probability of 1/6 on:

    >>> decision = Decision(costs=np.array([[0.0, 1.0], [5.0, 0.0]]))
    >>> decision.codes(log_proba).tolist(), round(decision.least_probability, 3)
    ([1, 0], 0.167)
    """

    positive: int = 1
    """Code of the positive one of two classes, to which the threshold belongs."""
    threshold: float | None = None
    """Probability from which on the positive one of two classes is predicted."""
    costs: Array | None = None
    """[C, C]: cost of predicting a class (second index) for a row of another (first index)."""

    def codes(self, log_proba: Array) -> IntArray:
        """The predicted classes [t] at log probabilities [t, C]."""
        if self.threshold is not None:
            found = np.exp(log_proba[:, self.positive]) >= self.threshold
            return np.where(found, self.positive, 1 - self.positive)
        if self.costs is not None:
            # The expected cost of predicting j is Σ_i p_i C_ij.
            return np.asarray((np.exp(log_proba) @ self.costs).argmin(axis=1))
        return np.asarray(log_proba.argmax(axis=1))

    @property
    def least_probability(self) -> float:
        """Probability from which on the positive one of two classes is predicted.

        There p c(positive, other) = (1 − p) c(other, positive); c(i, j) is the cost of j for a row of i.
        """
        if self.threshold is not None:
            return self.threshold
        if self.costs is None:
            return 0.5
        missed = float(self.costs[self.positive, 1 - self.positive])
        wrong = float(self.costs[1 - self.positive, self.positive])
        return wrong / (wrong + missed)
