"""Scores on held-out rows: they judge states and configurations, and calibrate the predictions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cavity.data.source import RawRows, tile_rows
from cavity.engines.protocol import Engine
from cavity.gp.calibration import Calibration, cross_fitted_log_loss, fit_calibration
from cavity.gp.likelihoods import Likelihood
from cavity.gp.posterior import Posterior, marginals
from cavity.gp.prior import Prior
from cavity.typing import Array, IntArray


class HeldOutScore(NamedTuple):
    """How probable the labels of held-out rows are, after calibration on other held-out rows."""

    log_loss: float
    """Mean negative log probability of a label, in nats."""
    standard_error: float
    n_rows: int


class HeldOutMoments(NamedTuple):
    """Moments of the latent functions at held-out rows, with their labels and weights."""

    mean: Array
    """[C, n]: e."""
    variance: Array
    """[C, n]: v, what is not known about the inducing values."""
    residual: Array
    """[n]: s, what the inducing values leave unexplained."""
    labels: IntArray
    weight: Array | None

    def calibration(self, likelihood: Likelihood, residual_scale: float) -> Calibration:
        """The two numbers that make these labels most probable."""
        return fit_calibration(likelihood, *self, residual_scale)

    def log_loss(self, likelihood: Likelihood, calibration: Calibration) -> float:
        """Mean negative log probability of these labels with a calibration."""
        moments = calibration.moments(self.mean, self.variance, self.residual)
        log_proba = likelihood.log_predictive(self.labels, *moments)
        return -float(np.average(log_proba, weights=self.weight))

    def score(self, likelihood: Likelihood, residual_scale: float) -> HeldOutScore:
        """The mean log loss of these labels, each calibrated on the other half of the rows."""
        log_loss, error = cross_fitted_log_loss(likelihood, *self, residual_scale)
        return HeldOutScore(log_loss, error, len(self.labels))


def held_out_moments(
    engine: Engine, prior: Prior, posterior: Posterior, most: int | None = None
) -> HeldOutMoments:
    """Moments at the engine's held-out rows, or at the first `most` of them."""
    assert engine.held_out is not None
    rows = engine.held_out.rows
    if most is not None and most < len(rows.labels):
        rows = rows.take(slice(most))
    return moments_at(rows, engine, prior, posterior)


def moments_at(rows: RawRows, engine: Engine, prior: Prior, posterior: Posterior) -> HeldOutMoments:
    """Moments at some rows in the units of the user."""
    size = tile_rows(len(prior.Z), engine.n_features, prior.dtype, engine.n_latents)

    def moments(start: int) -> tuple[Array, Array, Array]:
        inputs = engine.standardizer.apply(rows.X[start : start + size], prior.dtype)
        at = marginals(inputs, prior, posterior)
        return at.mean, at.variance, at.residual

    parts = list(engine.threads.map(moments, range(0, len(rows.labels), size)))
    mean, variance, residual = (np.concatenate(part, axis=-1) for part in zip(*parts, strict=True))
    return HeldOutMoments(mean, variance, residual.astype(float), rows.labels, rows.weight)
