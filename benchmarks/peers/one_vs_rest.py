"""The rejected candidate for many classes: C binary probits on one kernel, normalised afterwards.

Each latent function is trained on its own class against all others; the evidences add up, and with
them the gradient by kernel and inducing points. `docs/classes.md` compares it with what is built in.
"""

from dataclasses import dataclass, field

import numpy as np

from cavity.gp.likelihoods import Probit
from cavity.inference.ep import propagated_terms, variational_terms
from cavity.inference.rule import CavityRule


@dataclass(frozen=True)
class _OneVsRest(CavityRule):
    n_latents: int
    likelihood: Probit = field(default_factory=Probit)

    def _signs(self, labels):
        """±1 [C, t]: whether a row is of a class."""
        return np.where(np.arange(self.n_latents)[:, None] == labels, 1.0, -1.0)

    def predict_log_proba(self, mean, variance):
        """Log Φ(m/√(1 + v)), normalised over the classes [t, C]."""
        log_p = self.likelihood.log_predictive(mean, variance).T
        return (
            log_p
            - np.log(np.exp(log_p - log_p.max(axis=1, keepdims=True)).sum(axis=1))[:, None]
            - (log_p.max(axis=1, keepdims=True))
        )

    def decision_score(self, mean, variance):
        """The log probabilities."""
        return self.predict_log_proba(mean, variance)

    def _label_score(self, labels, cavity, residual):
        log_p = self.predict_log_proba(cavity.mean, residual + cavity.variance)
        return log_p[np.arange(len(labels)), labels]


@dataclass(frozen=True)
class OneVsRestPropagation(_OneVsRest):
    """EP, class by class."""

    def terms(self, labels, at, cavity):
        """Terms of t rows; see `CavityRule`."""
        y = self._signs(labels)
        tilted = self.likelihood.tilted(y * cavity.mean, at.residual + cavity.variance)
        tilted = tilted._replace(slope=y * tilted.slope)
        terms = propagated_terms(*at, cavity, tilted)
        return terms._replace(log_predictive=self._label_score(labels, cavity, at.residual))

    def complexity(self, posterior):
        """The log-normaliser of q."""
        return posterior.log_partition


@dataclass(frozen=True)
class OneVsRestVariational(_OneVsRest):
    """VI, class by class."""

    def terms(self, labels, at, cavity):
        """Terms of t rows; see `CavityRule`."""
        y = self._signs(labels)
        expected = self.likelihood.expected(y * at.mean, at.residual + at.variance)
        score = self._label_score(labels, cavity, at.residual)
        return variational_terms(at.mean, expected._replace(slope=y * expected.slope), score)

    def complexity(self, posterior):
        """−KL[q ‖ prior]."""
        return -posterior.divergence
