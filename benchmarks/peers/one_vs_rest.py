"""One-vs-rest: C binary probits on one kernel, in place of the built-in likelihood of many classes.

Each latent function is trained on its own class against all others, and the probabilities are normalised
afterwards. The evidences add up, and with them the gradient by kernel and inducing points.
`docs/classes.md` compares it with the built-in likelihood.
"""

from dataclasses import dataclass

import numpy as np

from cavity.gp.likelihoods import Likelihood, Probit
from cavity.gp.model import Model
from cavity.inference import open_rows, resolve
from cavity.inference.checkpoint import Checkpointer
from cavity.inference.history import Progress
from cavity.inference.rule import ExpectationPropagation, Variational
from cavity.inference.start import chosen_start, hold_out_rows, learn_scaling, prepare
from cavity.inference.train import train

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


RULES = {"ep": OneVsRestPropagation, "vi": Variational}


class OneVsRestClassifier:
    """A classifier with C binary probits, trained through the steps of `cavity.inference`."""

    def __init__(self, method, *, random_state, n_jobs, **fields):
        """method: "ep" or "vi"; fields: those of `cavity.inference.resolve`."""
        self.method, self.n_jobs = method, n_jobs
        self.fields = {**fields, "seed": random_state}

    def fit(self, X, y):
        """Train on X [n, d] and y [n] as an estimator of the same configuration does."""
        with open_rows(X, y, n_jobs=self.n_jobs) as rows:
            config = resolve(rows.n_rows, rows.n_classes, method=self.method, **self.fields)
            rule = RULES[self.method](OneVsRest(rows.n_classes))
            scaling = learn_scaling(rows.source, config, rows.backend)
            problem = prepare(
                rows.source,
                config,
                rows.backend,
                scaling=scaling,
                start=chosen_start(rows.source, scaling, config),
                held_out=hold_out_rows(rows.source, config, rows.backend),
                rule=rule,
            )
            no_checkpoints = Checkpointer(None, config.checkpoint_interval, dict)
            result = train(problem, config, Progress(), no_checkpoints)
        point = result.point
        self.n_iter_ = result.n_iter
        self.inverse_temperature_ = point.calibration.inverse_temperature
        self.residual_variance_scale_ = point.calibration.residual_variance_scale
        self.inducing_points_ = scaling.invert(point.prior.Z)
        self.model_ = Model.from_prior(
            point.prior,
            point.posterior,
            scaling,
            rule.likelihood,
            inverse_temperature=self.inverse_temperature_,
            residual_variance_scale=self.residual_variance_scale_,
        )
        return self

    def predict_log_proba(self, X):
        """Log probabilities [n, C]."""
        return self.model_.likelihood.predict_log_proba(*self.model_.latent_moments(X))
