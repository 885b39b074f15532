"""What training and prediction need from a likelihood p(y | f), for two classes and for many.

A likelihood is given t rows at a time: their labels [t] as class codes 0, 1, …, and the moments [C, t]
of C independent normal latent values. Two classes have one latent function, C = 1. More have one each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import numpy as np

from cavity.typing import Array, IntArray


class Expected(NamedTuple):
    """Expectations under N(mean, variance); derivatives are by the latent value, or by the margin."""

    log_likelihood: Array
    """F = E[log p]; [1, t] if all latent values of a row enter one likelihood."""
    slope: Array
    """E[∂ log p] = ∂F/∂mean"""
    curvature: Array
    """E[∂² log p] = 2 ∂F/∂variance, ≤ 0"""


class Tilted(NamedTuple):
    """The distribution p·N(mean, variance)/Z; derivatives are by the mean."""

    log_evidence: Array
    """log Z; [1, t] if all latent values of a row enter one likelihood."""
    slope: Array
    """α = ∂ log Z; the tilted mean is mean + α·variance"""
    curvature: Array
    """β = −∂² log Z, ≥ 0"""
    gamma: Array
    """γ = β − α² = −∂²Z/Z, without cancellation"""
    variance_ratio: Array
    """1 − β·variance, in (0, 1]: the tilted variance over the variance, without cancellation"""


class Likelihood(ABC):
    """A log-concave likelihood of a class given its latent values."""

    n_latents: int
    """Number C of latent functions."""
    translation_invariant: ClassVar[bool] = False
    """Whether p(y | f) stays the same when all C latent values rise by the same amount."""

    @abstractmethod
    def tilted(self, labels: IntArray, mean: Array, variance: Array) -> Tilted:
        """Evidence and its derivatives, for labels [t] and moments [C, t]; for EP."""

    @abstractmethod
    def expected(self, labels: IntArray, mean: Array, variance: Array) -> Expected:
        """Expectations of log p and its derivatives, for labels [t] and moments [C, t]; for VI."""

    @abstractmethod
    def log_predictive(self, labels: IntArray, mean: Array, variance: Array) -> Array:
        """Log probabilities [t] of the labels [t], for moments [C, t]."""

    @abstractmethod
    def predict_log_proba(self, mean: Array, variance: Array) -> Array:
        """Log probabilities [t, n_classes] of all classes, for moments [C, t]."""

    @abstractmethod
    def decision_score(self, mean: Array, variance: Array) -> Array:
        """Score [t] that rises with the probability of the second of two classes; moments [C, t].

        With more classes, scores [t, C]: the largest belongs to the most probable class.
        """

    def proba_given_latents(self, f: Array) -> Array:
        """p(y | f) [n_classes, t] at latent values f [C, t]: a prediction without variance."""
        return np.exp(self.predict_log_proba(f, np.zeros_like(f))).T
