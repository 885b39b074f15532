"""A fitted model: everything prediction needs, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from cavity.data.scaling import Standardizer
from cavity.engines.local import tile_rows
from cavity.engines.protocol import Engine
from cavity.engines.threads import Threads
from cavity.gp.kernels import bind, noise_free
from cavity.gp.posterior import Posterior
from cavity.gp.prior import Prior
from cavity.inference.rule import Rule
from cavity.inference.sweep import marginals
from cavity.typing import Array, Dtype


@dataclass(frozen=True)
class Model:
    """Kernel, inducing points and q: closed-form predictions at any inputs."""

    kernel: Any
    Z: Array
    """[m, d], standardised."""
    posterior: Posterior
    standardizer: Standardizer
    rule: Rule
    dtype: Dtype
    jitter: float
    """Relative jitter of K: it belongs to the whitened coordinates of the posterior."""
    inverse_temperature: float = 1.0
    """Factor on the latent means of the posterior, by which its probabilities are calibrated."""

    @classmethod
    def at(
        cls,
        prior: Prior,
        posterior: Posterior,
        engine: Engine,
        rule: Rule,
        *,
        inverse_temperature: float = 1.0,
        dtype: Dtype | None = None,
    ) -> Model:
        """What q over a prior predicts, of rows as an engine sees them; in its precision, or another."""
        return cls(
            prior.kernel,
            prior.Z,
            posterior,
            engine.standardizer,
            rule,
            dtype or prior.dtype,
            prior.jitter,
            inverse_temperature,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # no caches

    @cached_property
    def prior(self) -> Prior:
        """The prior at the inducing points."""
        return Prior(self.kernel, self.Z, self.dtype, self.jitter)

    def latent_moments(self, X: Any, threads: Threads) -> tuple[Array, Array]:
        """Mean and variance [C, n] of the latent functions at raw inputs X [n, d], tile by tile."""
        n = X.shape[0]
        size = tile_rows(len(self.Z), X.shape[1], self.dtype, self.rule.n_latents)
        prior = self.prior

        def moments(start: int) -> tuple[Array, Array]:
            at = marginals(self._inputs(X[start : start + size]), prior, self.posterior)
            return self.inverse_temperature * at.mean, at.variance + at.residual

        parts = list(threads.map(moments, range(0, n, size)))
        return np.hstack([mean for mean, _ in parts]), np.hstack([var for _, var in parts])

    def joint_moments(self, X: Any) -> tuple[Array, Array]:
        """Means [C, n] and full covariances [C, n, n] at raw inputs X [n, d]; O(n²) memory."""
        inputs = self._inputs(X).astype(np.float64)
        prior = Prior(self.kernel, self.Z, np.dtype(np.float64), self.jitter)
        A = prior.rows_kernel.cross(inputs)[0] @ prior.L_inverse.T
        K = bind(self.kernel, inputs).cross(inputs)[0]
        conditional = K - A @ A.T
        covariance = np.stack([conditional + A @ S @ A.T for S in self.posterior.covariance])
        return self.inverse_temperature * self.posterior.mean @ A.T, covariance

    def remaining_variance_share(self, X: Any, variance: Array) -> Array:
        """Share [L, n] of the prior variance that is left at raw inputs X [n, d], white noise aside.

        variance: [L, n], of the latent functions at X.
        """
        size = tile_rows(1, X.shape[1], self.dtype)
        point = self.Z[:1].astype(self.dtype)
        noisy, smooth = bind(self.kernel, point), bind(noise_free(self.kernel), point)
        share = np.ones_like(variance)
        for start in range(0, X.shape[0], size):
            rows = slice(start, start + size)
            inputs = self._inputs(X[rows])
            prior = smooth.diagonal(inputs)[0].astype(np.float64)
            noise = noisy.diagonal(inputs)[0].astype(np.float64) - prior
            known = prior > 0.0  # else there is no function to learn
            remaining = variance[:, rows] - noise
            np.divide(remaining, prior, out=share[:, rows], where=known)
        return np.clip(share, 0.0, 1.0)

    def _inputs(self, X: Any) -> Array:
        dense = X.toarray() if hasattr(X, "toarray") else np.asarray(X)
        # Squared distances must stay finite: beyond this bound a row is infinitely far anyway.
        farthest = 1e-4 * np.sqrt(np.finfo(self.dtype).max)
        return np.clip(self.standardizer.apply(dense, self.dtype), -farthest, farthest)
