"""The rejected candidate for many classes: C binary probits on one kernel, normalised afterwards.

Each latent function is trained on its own class against all others; the evidences add up, and with
them the gradient by kernel and inducing points. `docs/classes.md` compares it with what is built in.
"""

from dataclasses import dataclass

import numpy as np

from cavity.gp.likelihoods import Likelihood, Probit
from cavity.inference.ep import ExpectationPropagation
from cavity.inference.vi import Variational

PROBIT = Probit()


@dataclass(frozen=True)
class OneVsRest(Likelihood):
    """C independent binary probits."""

    n_latents: int

    def tilted(self, labels, mean, variance):
        """Evidence and derivatives, class by class [C, t]."""
        y = self._signs(labels)
        tilted = PROBIT.tilted_margin(y * mean, variance)
        return tilted._replace(slope=y * tilted.slope)

    def expected(self, labels, mean, variance):
        """Expectations, class by class [C, t]."""
        y = self._signs(labels)
        expected = PROBIT.expected_margin(y * mean, variance)
        return expected._replace(slope=y * expected.slope)

    def log_predictive(self, labels, mean, variance):
        """Log probabilities [t] of the labels."""
        return self.predict_log_proba(mean, variance)[np.arange(len(labels)), labels]

    def predict_log_proba(self, mean, variance):
        """Log Φ(m/√(1 + v)), normalised over the classes [t, C]."""
        log_p = PROBIT.log_predictive_margin(mean, variance).T
        largest = log_p.max(axis=1, keepdims=True)
        return log_p - np.log(np.exp(log_p - largest).sum(axis=1))[:, None] - largest

    def decision_score(self, mean, variance):
        """The log probabilities."""
        return self.predict_log_proba(mean, variance)

    def _signs(self, labels):
        """±1 [C, t]: whether a row is of a class."""
        return np.where(np.arange(self.n_latents)[:, None] == labels, 1.0, -1.0)


class OneVsRestPropagation(ExpectationPropagation):
    """EP, class by class; a label's score is normalised over the classes."""

    def terms(self, labels, at, cavity):
        """Terms of t rows; see `Rule`."""
        score = self.likelihood.log_predictive(labels, cavity.mean, at.residual + cavity.variance)
        return super().terms(labels, at, cavity)._replace(log_predictive=score)


def one_vs_rest_rule(method, n_classes):
    """The rule of a method, "ep" or "vi"."""
    return {"ep": OneVsRestPropagation, "vi": Variational}[method](OneVsRest(n_classes))
