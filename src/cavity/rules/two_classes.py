"""What the rules of two classes share: one latent function, and a likelihood of its sign."""

from __future__ import annotations

from dataclasses import dataclass, field

from cavity.rules.cavity_rule import CavityRule
from cavity.rules.labels import class_log_proba
from cavity.rules.likelihoods import Likelihood, Probit
from cavity.typing import Array


@dataclass(frozen=True)
class TwoClassRule(CavityRule):
    """A likelihood, and how it predicts; a subclass says what it learns of a row."""

    likelihood: Likelihood = field(default_factory=Probit)
    n_latents: int = 1

    def predict_log_proba(self, mean: Array, variance: Array) -> Array:
        """Log probabilities [t, 2] of the two classes."""
        return class_log_proba(self.likelihood, mean[0], variance[0])

    def decision_score(self, mean: Array, variance: Array) -> Array:
        """The likelihood's score of the second class [t]."""
        return self.likelihood.score(mean[0], variance[0])
