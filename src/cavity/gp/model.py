"""A fitted model: everything that predictions need, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from cavity.data.routing import by_leaf
from cavity.data.scaling import Scaling
from cavity.data.source import even_parts, rows_to_look_at, tile_rows
from cavity.gp.arrowhead import LocalPart, LocalPosterior
from cavity.gp.calibration import SMALLEST_CENTRE, Calibration, LatentParts
from cavity.gp.kernels import BoundKernel, bind, noise_free
from cavity.gp.leaves import LocalPrior
from cavity.gp.likelihoods import Likelihood
from cavity.gp.mean_function import MeanFunction
from cavity.gp.posterior import MapFunction, Marginals, Posterior, marginals
from cavity.gp.prior import Prior
from cavity.typing import FLOAT64, AnyArray, Array, ArrayOrSparse, Dtype, IntArray

if TYPE_CHECKING:
    from sklearn.gaussian_process.kernels import Kernel


_HEADROOM = 1e-12
"""Largest prior variance of a row, as a share of the largest number: products of it stay finite."""


@dataclass(frozen=True)
class Model:
    """Kernel, inducing points, q and likelihood: closed-form predictions at any inputs.

    The latent value at x has the mean c·e and the variance c²(v + b·s + σ²): e and v are the moments of
    what the inducing points say of x, s is the residual variance that they leave unexplained, σ² is the
    kernel's white noise, and c and b are `inverse_temperature` and `residual_variance_scale`. With
    an offset or a mean function o(x) the mean is c·(o + e).
    """

    kernel: Kernel
    Z: Array
    """[m, d], standardised."""
    posterior: Posterior
    scaling: Scaling
    likelihood: Likelihood
    dtype: Dtype
    jitter: float
    """Relative jitter of K: the posterior's whitened coordinates depend on it."""
    inverse_temperature: float = 1.0
    """Factor c on the latent functions, which calibrates the probabilities."""
    residual_variance_scale: float = 1.0
    """Factor b on the residual variance, which calibrates them too."""
    mean_function: MeanFunction | None = None
    """What is added to the latent functions at every row; None adds nothing."""
    needs_offset: bool = False
    """Whether the rows of the fit had offsets of their own, so that predictions need them too."""
    local: LocalPart | None = None
    """The leaves with inducing points of their own, if there are any. The kernel is then the sum of
    those of g and r. Z and posterior are the global inducing points and the q of the values there."""

    @classmethod
    def from_prior(
        cls,
        prior: Prior,
        posterior: Posterior,
        scaling: Scaling,
        likelihood: Likelihood,
        *,
        inverse_temperature: float = 1.0,
        residual_variance_scale: float = 1.0,
        mean_function: MeanFunction | None = None,
        needs_offset: bool = False,
    ) -> Model:
        """The model of a posterior under its prior, in the precision of the prior."""
        local, of_all_rows = None, posterior
        if isinstance(prior, LocalPrior):
            assert isinstance(posterior, LocalPosterior)
            local = LocalPart(prior.leaves, posterior.naturals.leaves, prior.leaf_jitter)
            of_all_rows = posterior.of_global_values()
        model = cls(
            prior.kernel,
            prior.Z,
            of_all_rows,
            scaling,
            likelihood,
            prior.dtype,
            prior.jitter,
            inverse_temperature,
            residual_variance_scale,
            mean_function,
            needs_offset,
            local,
        )
        # What is known need not be computed again: K_mm is factored once.
        vars(model)["whole_posterior"] = posterior
        vars(model)["prior"] = prior
        return model

    def __getstate__(self) -> dict[str, object]:
        return {field.name: vars(self)[field.name] for field in fields(self)}  # no caches

    @cached_property
    def prior(self) -> Prior:
        """The prior at the inducing points."""
        return self._prior_in(self.dtype)

    def _prior_in(self, dtype: Dtype) -> Prior:
        if self.local is None:
            return Prior(self.kernel, self.Z, dtype, self.jitter)
        local = self.local
        return LocalPrior(self.kernel, self.Z, dtype, local.leaves, self.jitter, local.jitter)

    @cached_property
    def whole_posterior(self) -> Posterior:
        """The posterior of all inducing values, those of leaves included."""
        return self.posterior if self.local is None else self.local.naturals.posterior()

    @property
    def inducing_points(self) -> Array:
        """All inducing points in the units of the inputs: those for all rows, then those of leaves."""
        local = () if self.local is None else self.local.leaves.points
        return self.scaling.invert(np.concatenate([self.Z, *local]))

    @property
    def views(self) -> list[Posterior]:
        """The marginals of q in the views of all leaves; none if there are no leaves."""
        if self.local is None:
            return []
        return [self.whole_posterior.view(leaf) for leaf in range(len(self.local.leaves))]

    @property
    def calibration(self) -> Calibration:
        """The two numbers that calibrate the predictions."""
        return Calibration(self.inverse_temperature, self.residual_variance_scale)

    def latent_moments(
        self, X: ArrayOrSparse, map_function: MapFunction = map, *, offset: Array | None = None
    ) -> tuple[Array, Array]:
        """Mean and variance [C, n] of the latent functions at raw inputs X [n, d], calibrated.

        map_function: `map` or a parallel equivalent, which goes over tiles of rows; offset: [C, n], what
        is added to the latent functions, for models whose rows had such offsets.
        """
        return self.calibration.moments(self.latent_parts(X, map_function, offset=offset))

    def latent_parts(
        self, X: ArrayOrSparse, map_function: MapFunction = map, *, offset: Array | None = None
    ) -> LatentParts:
        """Parts of the latent moments before calibration; the mean includes offset or mean function."""

        def parts(inputs: Array, leaf: int | None) -> LatentParts:
            at, _, noise = self._marginals(inputs, leaf)
            return LatentParts(at.mean, at.variance + noise, at.residual)

        offset = self._offset(X, offset)
        found = LatentParts(*self._over_tiles(parts, X, map_function))
        return found if offset is None else found._replace(mean=found.mean + offset)

    def _offset(self, X: ArrayOrSparse, offset: Array | None) -> Array | None:
        """What is added to the latent means at raw inputs X [n, d]: [C, n], or None for nothing."""
        if self.needs_offset and offset is None:
            raise ValueError(
                "this model was fitted with an offset for each row, and predictions need one too: pass "
                "offset=[...] to the method of the classifier that predicts"
            )
        return offset if self.mean_function is None else self.mean_function(X)

    def remaining_variance_share(self, X: ArrayOrSparse, map_function: MapFunction = map) -> Array:
        """Share [C, n] of the prior variance that is left at raw inputs X [n, d], white noise aside.

        It is (v + b·s)/(|A|² + b·s), where |A|² = k(x, x) − s is the prior variance of what the inducing
        points say, and v its posterior variance. Both sides are those of the calibrated model, but b is
        at least 0.018. Far away |A|² and v vanish, and the share tends to 1 for any b > 0. For b = 0 it
        would be v/|A|², which depends on the direction of A alone and not on the distance. Rows that b
        is fitted to lie among the training rows, and do not say that nothing is unknown elsewhere.
        """
        b = max(self.residual_variance_scale, SMALLEST_CENTRE)

        def share(inputs: Array, leaf: int | None) -> tuple[Array]:
            at, k, _ = self._marginals(inputs, leaf)
            residual = b * at.residual
            prior = np.maximum(k - at.residual, 0.0) + residual
            left = np.ones_like(at.variance)
            np.divide(at.variance + residual, prior, out=left, where=prior > 0.0)
            return (np.clip(left, 0.0, 1.0),)

        return self._over_tiles(share, X, map_function)[0]

    def joint_moments(self, X: ArrayOrSparse, *, offset: Array | None = None) -> tuple[Array, Array]:
        """Means [C, n] and full covariances [C, n, n] at raw inputs X [n, d]; O(n²) memory.

        They are calibrated, and without the kernel's white noise. offset: as in `latent_moments`.
        """
        offset = self._offset(X, offset)
        inputs = self._inputs(X).astype(np.float64)
        prior = self._prior_in(FLOAT64)
        A = prior.rows_kernel.cross(inputs)[0] @ prior.L_inverse.T
        K = bind(prior.own_kernel, inputs).cross(inputs)[0]
        c, b = self.inverse_temperature, self.residual_variance_scale
        conditional = b * (K - A @ A.T)
        if self.local is None:
            mean: Array = self.posterior.mean @ A.T
            covariance: Array = np.stack([A @ S @ A.T for S in self.posterior.covariance])
        else:
            mean, covariance = self._local_moments(self._leaf_of(X), inputs, A, b)
        covariance += conditional
        return c * (mean if offset is None else mean + offset), c**2 * covariance

    def _local_moments(self, leaf: IntArray, inputs: Array, A: Array, b: float) -> tuple[Array, Array]:
        """Joint means [C, n] and covariances [C, n, n] of rows in leaves, but for the residual of g.

        leaf: [n]; inputs: [n, d], scaled; A: [n, m], whitened kernel rows of g. Given u_0, the values of
        different leaves are independent (`LeafConditional`): rows of different leaves vary together
        through u_0 alone.
        """
        prior, q, n = self._prior_in(FLOAT64), self.whole_posterior, len(leaf)
        assert isinstance(prior, LocalPrior)
        assert isinstance(q, LocalPosterior)
        m, C = A.shape[1], len(q.mean)
        mean, through, covariance = np.zeros((C, n)), np.zeros((C, n, m)), np.zeros((C, n, n))
        for number, rows in by_leaf(leaf):
            local, block = prior.leaf(number), np.ix_(rows, rows)
            A_local = local.rows_kernel.cross(inputs[rows])[0] @ local.L_inverse.T
            K = bind(prior.kernel.k2, inputs[rows]).cross(inputs[rows])[0]
            mean[:, rows] = q.view(number).mean @ np.hstack([A[rows], A_local]).T
            own = q.naturals.conditionals[number]
            for c, (root, J) in enumerate(zip(own.roots, own.slopes, strict=True)):
                through[c, rows] = A[rows] - A_local @ J
                half = A_local @ root.T
                covariance[c][block] = b * (K - A_local @ A_local.T) + half @ half.T
        for c, F in enumerate(through):
            covariance[c] += F @ q.covariance[c] @ F.T
        return mean, covariance

    def sample(
        self,
        X: ArrayOrSparse,
        n_samples: int,
        rng: np.random.Generator | np.random.RandomState,
        *,
        offset: Array | None = None,
    ) -> Array:
        """Joint draws [C, n, n_samples] of the latent functions at raw inputs X [n, d]; O(n²) memory.

        They are free of the kernel's white noise, and independent of each other.
        """
        mean, covariance = self.joint_moments(X, offset=offset)
        # Relative to the largest entry, because the squares of far rows' variances are out of range.
        largest = np.maximum(np.abs(covariance).max(axis=(1, 2)), np.finfo(float).tiny)
        values, vectors = np.linalg.eigh(covariance / largest[:, None, None])
        roots = vectors * np.sqrt(largest[:, None] * np.maximum(values, 0.0))[:, None]
        return np.asarray(mean[:, :, None] + roots @ rng.standard_normal((*mean.shape, n_samples)))

    def noise_variance(self, X: ArrayOrSparse) -> Array:
        """Variance [n] of the kernel's white noise at raw inputs X [n, d], calibrated."""
        return self.inverse_temperature**2 * self._prior_variance(self._inputs(X))[1]

    def _over_tiles(
        self,
        compute: Callable[[Array, int | None], tuple[Array, ...]],
        X: ArrayOrSparse,
        map_function: MapFunction,
    ) -> list[Array]:
        """What `compute` makes of scaled inputs [t, d], for tiles of raw inputs X [n, d], joined.

        If there are leaves, all rows of a tile are in one of them, and `compute` is told which.
        """
        size = tile_rows(self.prior.width, X.shape[1], self.dtype, self.likelihood.n_latents)
        if self.local is not None:
            return self._over_leaves(compute, X, map_function, size)

        def of_tile(start: int) -> tuple[Array, ...]:
            return compute(self._inputs(X[start : start + size]), None)

        parts = list(map_function(of_tile, range(0, X.shape[0], size)))
        return [np.hstack(part) for part in zip(*parts, strict=True)]

    def _over_leaves(
        self,
        compute: Callable[[Array, int | None], tuple[Array, ...]],
        X: ArrayOrSparse,
        map_function: MapFunction,
        size: int,
    ) -> list[Array]:
        """`_over_tiles` for a model with leaves."""
        self.whole_posterior  # noqa: B018  (computed once, before threads ask for it)
        tiles = [
            (leaf, rows[part])
            for leaf, rows in by_leaf(self._leaf_of(X))
            for part in even_parts(len(rows), -(-len(rows) // size))
        ]

        def of_tile(tile: tuple[int, IntArray]) -> tuple[Array, ...]:
            leaf, rows = tile
            return compute(self._inputs(X[rows]), leaf)

        parts = list(map_function(of_tile, tiles))
        back = np.argsort(np.concatenate([rows for _, rows in tiles]))
        return [np.hstack(part)[..., back] for part in zip(*parts, strict=True)]

    def _leaf_of(self, X: ArrayOrSparse) -> IntArray:
        """The leaf [n] that each of the raw inputs X [n, d] falls into."""
        assert self.local is not None
        size, routing = rows_to_look_at(X.shape[1]), self.local.leaves.routing
        parts = [routing(_dense(X[i : i + size])) for i in range(0, X.shape[0], size)]
        return np.concatenate(parts)

    def _marginals(self, inputs: Array, leaf: int | None) -> tuple[Marginals, Array, Array]:
        """Uncalibrated moments at scaled inputs [t, d] of a leaf, and the prior variances [t] there.

        These are the variances of the latent function and of the white noise. The noise is taken out of
        the residual.
        """
        if leaf is None:
            at = marginals(inputs, self.prior, self.posterior)
        else:
            assert isinstance(self.prior, LocalPrior)
            at = marginals(inputs, self.prior.view(leaf), self.whole_posterior.view(leaf))
        smooth, noise = self._prior_variance(inputs)
        return replace(at, residual=np.maximum(at.residual - noise, 0.0)), smooth, noise

    def _prior_variance(self, inputs: Array) -> tuple[Array, Array]:
        """Prior variances [t] of the latent function and of the white noise, at scaled inputs [t, d]."""
        smooth, both = (bound.diagonal(inputs)[0].astype(np.float64) for bound in self._variances)
        return smooth, both - smooth

    @cached_property
    def _variances(self) -> tuple[BoundKernel, BoundKernel]:
        """The kernel without its white noise and with it, bound to one point: for k(x, x) alone."""
        point = self.Z[:1].astype(self.dtype)
        return bind(noise_free(self.kernel), point), bind(self.kernel, point)

    def _inputs(self, X: ArrayOrSparse) -> Array:
        """Standardised rows [t, d] of raw inputs X [t, d], dense or sparse."""
        dense = _dense(X)
        # Squared distances must stay finite, also in units of small lengthscales: a row beyond these
        # bounds, which leave room for all inducing points, is infinitely far anyway.
        largest, reach = float(np.finfo(self.dtype).max), float(np.abs(self.Z).max())
        farthest = min(1e-4 * largest**0.5, largest**0.25 * (1.0 + reach))
        farthest = min(max(farthest, 2.0 * reach), largest)
        with np.errstate(all="ignore"):
            inputs = np.clip(self.scaling.apply(dense, self.dtype), -farthest, farthest)
            # So must the prior variance, which in powers of a linear kernel grows faster than squares.
            # A row is brought nearer along its direction, which decides what such a kernel predicts.
            variance = self.prior.rows_kernel.diagonal(inputs)[0]
            far = np.flatnonzero(~(variance < _HEADROOM * largest))
            while len(far):
                far = far[np.abs(inputs[far]).max(axis=1) > 1.0]
                inputs[far] *= 0.5
                variance = self.prior.rows_kernel.diagonal(inputs[far])[0]
                far = far[~(variance < _HEADROOM * largest)]
        return inputs


def _dense(X: ArrayOrSparse) -> AnyArray:
    return np.asarray(X.toarray() if sparse.issparse(X) else X)
