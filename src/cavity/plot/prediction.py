"""Predictions at inputs that the pictures make up: plain numbers, without the names of a data frame."""

from __future__ import annotations

from typing import Any

import numpy as np

from cavity.engines.threads import thread_count
from cavity.estimators.base import computing
from cavity.typing import Array


def log_proba_at(estimator: Any, X: Array) -> Array:
    """Log class probabilities [n, C] at X [n, d]."""
    with computing(thread_count(estimator.n_jobs)) as threads:
        mean, variance = estimator.model_.latent_moments(X, threads)
        return np.asarray(estimator.model_.rule.predict_log_proba(mean, variance))


def proba_at(estimator: Any, X: Array) -> Array:
    """Class probabilities [n, C] at X [n, d]."""
    return np.exp(log_proba_at(estimator, X))


def latent_draws(
    estimator: Any, X: Array, n_draws: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Joint draws [L, n, n_draws] of the latent functions at X [n, d], and the noise [L, n] on top.

    The noise is the variance of a white kernel, which no two rows share. Memory is O(n²).
    """
    model = estimator.model_
    with computing(thread_count(estimator.n_jobs)) as threads:
        mean, covariance = model.joint_moments(X)
        _, variance = model.latent_moments(X, threads)
        draws = []
        for of_latent, joint in zip(mean, covariance, strict=True):
            values, vectors = np.linalg.eigh(joint)
            root = vectors * np.sqrt(np.maximum(values, 0.0))
            draws.append(of_latent[:, None] + root @ rng.standard_normal((len(values), n_draws)))
    shared = np.stack([np.diag(joint) for joint in covariance])
    noise = np.asarray(variance, dtype=np.float64) - shared
    # Rounding alone, in the precision of the model, is no noise.
    return np.stack(draws), np.where(noise > 1e-3 * shared, noise, 0.0)
