"""A fitted model: everything that predictions need, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from cavity.data.scaling import Standardizer
from cavity.data.source import tile_rows
from cavity.gp.kernels import bind, noise_free
from cavity.gp.likelihoods import Likelihood
from cavity.gp.posterior import MapFunction, Posterior, marginals
from cavity.gp.prior import Prior
from cavity.typing import Array, ArrayOrSparse, Dtype

if TYPE_CHECKING:
    from sklearn.gaussian_process.kernels import Kernel


_HEADROOM = 1e-12
"""Largest prior variance of a row, as a share of the largest number: products of it stay finite."""


@dataclass(frozen=True)
class Model:
    """Kernel, inducing points, q and likelihood: closed-form predictions at any inputs."""

    kernel: Kernel
    Z: Array
    """[m, d], standardised."""
    posterior: Posterior
    standardizer: Standardizer
    likelihood: Likelihood
    dtype: Dtype
    jitter: float
    """Relative jitter of K: the posterior's whitened coordinates depend on it."""
    inverse_temperature: float = 1.0
    """Factor on the posterior's latent means, which calibrates the probabilities."""

    @classmethod
    def from_prior(
        cls,
        prior: Prior,
        posterior: Posterior,
        standardizer: Standardizer,
        likelihood: Likelihood,
        *,
        inverse_temperature: float = 1.0,
        dtype: Dtype | None = None,
    ) -> Model:
        """The model of a posterior under its prior; `dtype` None keeps the prior's precision."""
        return cls(
            prior.kernel,
            prior.Z,
            posterior,
            standardizer,
            likelihood,
            dtype or prior.dtype,
            prior.jitter,
            inverse_temperature,
        )

    def __getstate__(self) -> dict[str, object]:
        return {field.name: vars(self)[field.name] for field in fields(self)}  # no caches

    @cached_property
    def prior(self) -> Prior:
        """The prior at the inducing points."""
        return Prior(self.kernel, self.Z, self.dtype, self.jitter)

    def latent_moments(self, X: ArrayOrSparse, map_function: MapFunction = map) -> tuple[Array, Array]:
        """Mean and variance [C, n] of the latent functions at raw inputs X [n, d].

        map_function: `map` or a parallel equivalent, which goes over tiles of rows.
        """
        n = X.shape[0]
        size = tile_rows(len(self.Z), X.shape[1], self.dtype, self.likelihood.n_latents)
        prior = self.prior

        def moments(start: int) -> tuple[Array, Array]:
            at = marginals(self._inputs(X[start : start + size]), prior, self.posterior)
            return self.inverse_temperature * at.mean, at.variance + at.residual

        parts = list(map_function(moments, range(0, n, size)))
        return np.hstack([mean for mean, _ in parts]), np.hstack([var for _, var in parts])

    def joint_moments(self, X: ArrayOrSparse) -> tuple[Array, Array]:
        """Means [C, n] and full covariances [C, n, n] at raw inputs X [n, d]; O(n²) memory."""
        inputs = self._inputs(X).astype(np.float64)
        prior = Prior(self.kernel, self.Z, np.dtype(np.float64), self.jitter)
        A = prior.rows_kernel.cross(inputs)[0] @ prior.L_inverse.T
        K = bind(self.kernel, inputs).cross(inputs)[0]
        conditional = K - A @ A.T
        covariance = np.stack([conditional + A @ S @ A.T for S in self.posterior.covariance])
        return self.inverse_temperature * self.posterior.mean @ A.T, covariance

    def sample(
        self, X: ArrayOrSparse, n_samples: int, rng: np.random.Generator | np.random.RandomState
    ) -> Array:
        """Joint draws [C, n, n_samples] of the latent functions at raw inputs X [n, d]; O(n²) memory.

        They are free of the kernel's white noise, and independent of each other.
        """
        mean, covariance = self.joint_moments(X)
        # Relative to the largest entry, because the squares of far rows' variances are out of range.
        largest = np.maximum(np.abs(covariance).max(axis=(1, 2)), np.finfo(float).tiny)
        values, vectors = np.linalg.eigh(covariance / largest[:, None, None])
        roots = vectors * np.sqrt(largest[:, None] * np.maximum(values, 0.0))[:, None]
        return np.asarray(mean[:, :, None] + roots @ rng.standard_normal((*mean.shape, n_samples)))

    def noise_variance(self, X: ArrayOrSparse) -> Array:
        """Variance [n] of the kernel's white noise at raw inputs X [n, d]."""
        return self._prior_variance(X)[1]

    def remaining_variance_share(self, X: ArrayOrSparse, variance: Array) -> Array:
        """Share [C, n] of the prior variance that is left at raw inputs X [n, d], white noise aside.

        variance: [C, n], of the latent functions at X.
        """
        size = tile_rows(1, X.shape[1], self.dtype)
        share = np.ones_like(variance)
        with np.errstate(all="ignore"):
            for start in range(0, X.shape[0], size):
                rows = slice(start, start + size)
                prior, noise = self._prior_variance(X[rows])
                known = prior > 0.0  # elsewhere there is no function to learn, and the share stays 1
                remaining = variance[:, rows] - noise
                np.divide(remaining, prior, out=share[:, rows], where=known)
        return np.clip(share, 0.0, 1.0)

    def _prior_variance(self, X: ArrayOrSparse) -> tuple[Array, Array]:
        """Prior variances [t] of the latent function and of the white noise, at raw inputs X [t, d]."""
        inputs, point = self._inputs(X), self.Z[:1].astype(self.dtype)
        smooth = bind(noise_free(self.kernel), point).diagonal(inputs)[0].astype(np.float64)
        both = bind(self.kernel, point).diagonal(inputs)[0].astype(np.float64)
        return smooth, both - smooth

    def _inputs(self, X: ArrayOrSparse) -> Array:
        """Standardised rows [t, d] of raw inputs X [t, d], dense or sparse."""
        dense = X.toarray() if sparse.issparse(X) else np.asarray(X)
        # Squared distances must stay finite, also in units of small lengthscales: a row beyond these
        # bounds is infinitely far anyway.
        largest = float(np.finfo(self.dtype).max)
        farthest = min(1e-4 * largest**0.5, largest**0.25 * (1.0 + float(np.abs(self.Z).max())))
        with np.errstate(all="ignore"):
            inputs = np.clip(self.standardizer.apply(dense, self.dtype), -farthest, farthest)
            # So must the prior variance, which in powers of a linear kernel grows faster than squares.
            # A row is brought nearer along its direction, which decides what such a kernel predicts.
            far = np.arange(len(inputs))
            while len(far):
                variance = self.prior.rows_kernel.diagonal(inputs[far])[0]
                far = far[~(variance < _HEADROOM * largest) & (np.abs(inputs[far]).max(axis=1) > 1.0)]
                inputs[far] *= 0.5
        return inputs
