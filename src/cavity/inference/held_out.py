"""Scores on held-out rows: they judge states and configurations, and calibrate the predictions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cavity.engines.protocol import Engine
from cavity.gp.calibration import (
    Calibration,
    LatentParts,
    LogLoss,
    cross_fitted_losses,
    fit_calibration,
)
from cavity.gp.likelihoods import Likelihood
from cavity.gp.model import Model
from cavity.gp.posterior import Posterior
from cavity.gp.prior import Prior
from cavity.typing import Array, IntArray


class HeldOutScore(NamedTuple):
    """How probable the labels of held-out rows are, after calibration on other held-out rows."""

    log_loss: float
    """Mean negative log probability of a label, in nats."""
    standard_error: float
    n_rows: int


NOT_SCORED = HeldOutScore(np.nan, np.nan, 0)
"""The score if no rows are held out."""


class HeldOutMoments(NamedTuple):
    """Latent moments of a state at held-out rows, with the labels and weights of these rows."""

    likelihood: Likelihood
    parts: LatentParts
    labels: IntArray
    """[n]: class codes."""
    weight: Array | None

    @classmethod
    def of(
        cls,
        engine: Engine,
        likelihood: Likelihood,
        prior: Prior,
        posterior: Posterior,
        most: int | None = None,
    ) -> HeldOutMoments:
        """Moments at the engine's held-out rows, or at the first `most` of them."""
        assert engine.held_out is not None
        rows = engine.held_out.rows
        if most is not None and most < len(rows.labels):
            rows = rows.take(slice(most))
        model = Model.from_prior(prior, posterior, engine.scaling, likelihood)
        return cls(likelihood, model.latent_parts(rows.X, engine.threads.map), rows.labels, rows.weight)

    def calibration(self, residual_scale: float) -> Calibration:
        """The two numbers that make these labels most probable."""
        return fit_calibration(self.likelihood, self.parts, self.labels, self.weight, residual_scale)

    def log_loss(self, calibration: Calibration) -> float:
        """Mean negative log probability of these labels with a calibration."""
        moments = calibration.moments(self.parts)
        log_proba = self.likelihood.log_predictive(self.labels, *moments)
        return -float(np.average(log_proba, weights=self.weight))

    def score(self, residual_scale: float) -> HeldOutScore:
        """The mean log loss of these labels, each calibrated on the other half of the rows."""
        found = LogLoss.of(self.losses(residual_scale), self.counts)
        return HeldOutScore(found.mean, found.standard_error, len(self.labels))

    def losses(self, residual_scale: float) -> Array:
        """The losses [n] of which the score is the mean."""
        return cross_fitted_losses(self.likelihood, self.parts, self.labels, self.counts, residual_scale)

    @property
    def counts(self) -> Array:
        """[n]: the weights of the rows."""
        return np.ones(len(self.labels)) if self.weight is None else self.weight
