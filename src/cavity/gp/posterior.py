"""The posterior q(u) over whitened inducing values, and the moments of rows that follow from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import cached_property, partial
from typing import Protocol, TypeVar

import numpy as np

from cavity.gp.linalg import (
    WORTH_A_THREAD,
    add_to_diagonal,
    cholesky_factor,
    cholesky_in_place,
    gram_of_lower,
    inverse_lower,
    row_dots,
    solved_by_cholesky,
    stacked,
    times_lower,
    times_transposed_lower,
)
from cavity.gp.prior import Prior, RowPrior
from cavity.typing import FLOAT64, Array, Dtype

Item = TypeVar("Item")
Result = TypeVar("Result")


class MapFunction(Protocol):
    """`map`, or a parallel equivalent that keeps the order."""

    def __call__(self, function: Callable[[Item], Result], items: Iterable[Item], /) -> Iterable[Result]:
        """Apply a function to every item; the results come in the order of the items."""
        ...


@dataclass(frozen=True)
class NaturalParameters:
    """Natural parameters of the summed sites: Λ = Σ ν̃ AAᵀ [C, m, m] and η = Σ μ̃ A [C, m].

    Those of q are I + Λ and η: the prior's identity is left out.
    """

    precision: Array
    shift: Array

    @classmethod
    def zeros(cls, n_latents: int, m: int) -> NaturalParameters:
        """No sites: q is the prior."""
        return cls(np.zeros((n_latents, m, m)), np.zeros((n_latents, m)))

    @property
    def parts(self) -> tuple[Array, Array]:
        """Precision and shift."""
        return self.precision, self.shift

    def mapped(self, T: Array) -> NaturalParameters:
        """The same factors on T⁻¹u: precision TᵀΛT, shift Tᵀη, for T [m, m]."""
        return NaturalParameters(np.stack([T.T @ P @ T for P in self.precision]), self.shift @ T)

    def carried(self, T: Array, D: Array) -> NaturalParameters:
        """The factors as factors on other values v, where u given v is N(Tv, D); T [m, k], D [m, m].

        The factor sees v through the noise D, so its precision becomes Tᵀ(Λ⁻¹ + D)⁻¹T, in which
        (Λ⁻¹ + D)⁻¹ = (I + ΛD)⁻¹Λ exists for every Λ (Bui, Nguyen & Turner, 2017).
        """
        return self.seen_through(np.linalg.inv(np.eye(len(D)) + self.precision @ D), T)

    def seen_through(self, noisy: Array, T: Array) -> NaturalParameters:
        """The factors on v in `carried`, given noisy = (I + ΛD)⁻¹ of all factors that are carried."""
        precision = T.T @ (noisy @ self.precision) @ T
        symmetrised = 0.5 * (precision + precision.transpose(0, 2, 1))
        return NaturalParameters(symmetrised, np.einsum("cij,cj->ci", noisy, self.shift) @ T)

    def under(self, before: Prior, after: Prior) -> NaturalParameters:
        """The same factors on the values at the inducing points, under another kernel."""
        return self.mapped(before.L_inverse @ after.L)

    def scaled(self, factor: float) -> NaturalParameters:
        """The sites counted `factor` times."""
        return NaturalParameters(factor * self.precision, factor * self.shift)

    def __add__(self, other: NaturalParameters) -> NaturalParameters:
        return NaturalParameters(self.precision + other.precision, self.shift + other.shift)

    def posterior(self, map_function: MapFunction = map, dtype: Dtype = FLOAT64) -> Posterior:
        """The q of these sites; see `Posterior.from_naturals`."""
        return Posterior.from_naturals(self, map_function, dtype)

    def mixed_with(self, other: NaturalParameters, gain: float) -> NaturalParameters:
        """(1 − gain)·self + gain·other."""
        precision, shift = gain * other.precision, gain * other.shift
        precision += (1.0 - gain) * self.precision
        shift += (1.0 - gain) * self.shift
        return NaturalParameters(precision, shift)


@dataclass(frozen=True)
class Posterior:
    """Posterior of the whitened inducing values of C latent functions.

    q(u_c) = N(mean_c, covariance_c), and the prior is N(0, I).
    """

    mean: Array
    """[C, m]"""
    covariance: Array
    """[C, m, m], in float64 or in the precision of the tiles that it was made for"""
    half_log_determinant: float
    """½ Σ log|covariance|."""
    naturals: NaturalParameters
    """The summed sites that give this q."""
    factors: Array | None = None
    """R [C, m, m], lower triangular with covariance RRᵀ. Set only in a q for a variational pass, which
    needs neither covariance nor naturals: these are then empty."""

    def __getstate__(self) -> dict[str, object]:
        return {field.name: vars(self)[field.name] for field in fields(self)}  # no caches

    @classmethod
    def from_naturals(
        cls, naturals: NaturalParameters, map_function: MapFunction = map, dtype: Dtype = FLOAT64
    ) -> Posterior:
        """The posterior of summed sites: q ∝ N(u | 0, I) · exp(ηᵀu − ½ uᵀΛu).

        `map_function` goes over the latent functions if m is large enough for that to pay. The precision
        is factored, and the mean solved for, in float64; the covariance is in `dtype`.
        """
        solve = partial(_solved, dtype=dtype)
        over = map_function if naturals.shift.shape[1] >= WORTH_A_THREAD else map
        parts = list(over(solve, list(zip(naturals.precision, naturals.shift, strict=True))))
        means, covariances, log_roots = zip(*parts, strict=True)
        return cls(stacked(means), stacked(covariances), sum(log_roots), naturals)

    @classmethod
    def from_moments(cls, mean: Array, factors: Array) -> Posterior:
        """N(mean_c, R_c R_cᵀ) for mean [C, m] and lower triangular factors R [C, m, m]."""
        precision = stacked([gram_of_lower(inverse_lower(R)) for R in factors])
        shift = np.matmul(precision, mean[:, :, None])[:, :, 0]
        naturals = NaturalParameters(precision - np.eye(mean.shape[1]), shift)
        covariance = np.matmul(factors, factors.transpose(0, 2, 1))
        return cls(mean, covariance, _sum_of_logs(factors), naturals)

    @classmethod
    def from_factors(cls, mean: Array, factors: Array, dtype: Dtype) -> Posterior:
        """N(mean_c, R_c R_cᵀ) for a variational pass over tiles in `dtype`: no product, no inverse."""
        nothing = NaturalParameters.zeros(len(mean), 0)
        log_root = _sum_of_logs(factors)
        return cls(mean, nothing.precision, log_root, nothing, factors.astype(dtype, copy=False))

    def view(self, leaf: int) -> Posterior:
        """The marginal of the inducing values that rows of a leaf depend on, if there are leaves."""
        raise NotImplementedError("this posterior has no local inducing points")

    def mean_in(self, dtype: Dtype) -> Array:
        """The mean in the precision of the tiles, converted once for all of them."""
        return self._mean32 if dtype == np.float32 else self.mean

    def project(self, A: Array) -> tuple[list[Array], Array]:
        """Products A·covariance_c for A [t, m], and the variances of Aᵀu_c [C, t] in float64."""
        if self.factors is None:
            S = self._covariance32 if A.dtype == np.float32 else self.covariance
            products = [A @ S_c for S_c in S]
            return products, stacked([row_dots(A, product) for product in products])
        factors = self._factors32 if A.dtype == np.float32 else self.factors
        roots = [times_lower(A, R) for R in factors]
        variance = stacked([row_dots(root, root) for root in roots])
        pairs = zip(roots, factors, strict=True)
        return [times_transposed_lower(root, R, overwrite=True) for root, R in pairs], variance

    def variance(self, A: Array) -> Array:
        """Variances [C, t] of Aᵀu_c alone, at half the flops of `project`."""
        roots = self._roots32 if A.dtype == np.float32 else self._roots
        products = (times_lower(A, R) for R in roots)
        return stacked([row_dots(root, root) for root in products])

    @cached_property
    def _roots(self) -> Array:
        """Lower triangular R [C, m, m] with covariance RRᵀ."""
        return stacked([_root(S) for S in self.covariance]) if self.factors is None else self.factors

    @cached_property
    def _roots32(self) -> Array:
        return self._roots.astype(np.float32)

    @cached_property
    def _mean32(self) -> Array:
        return self.mean.astype(np.float32)

    @cached_property
    def _covariance32(self) -> Array:
        return self.covariance.astype(np.float32, copy=False)

    @cached_property
    def _factors32(self) -> Array:
        assert self.factors is not None
        return self.factors.astype(np.float32, copy=False)

    @property
    def log_partition(self) -> float:
        """Σ_c −½ log|B| + ½ ηᵀB⁻¹η: the log-normaliser of q minus that of the prior."""
        return self.half_log_determinant + 0.5 * float(np.sum(self.naturals.shift * self.mean))

    @property
    def divergence(self) -> float:
        """KL[q ‖ prior]."""
        if self.factors is None:
            trace = np.trace(self.covariance, axis1=1, axis2=2, dtype=np.float64).sum()
        else:
            trace = sum(row_dots(R, R).sum() for R in self.factors)
        return 0.5 * float(trace + np.sum(self.mean**2) - self.mean.size) - self.half_log_determinant

    def prior_minus_second_moment(self) -> Array:
        """M_w = Σ_c (I − covariance_c − mean_c mean_cᵀ) [m, m]: the paper's M, whitened.

        The result has the precision of the covariance.
        """
        n_latents = len(self.mean)
        mean = self.mean.astype(self.covariance.dtype, copy=False)
        M: Array = np.multiply.outer(-mean[0], mean[0]) if n_latents == 1 else -mean.T @ mean
        for covariance in self.covariance:
            M -= covariance
        add_to_diagonal(M, n_latents)
        return M


@dataclass(frozen=True)
class Marginals:
    """Moments of the latent values of t rows under q, and the products they were made from."""

    A: Array
    """[t, m] whitened kernel rows."""
    Q: list[Array]
    """C arrays [t, m]: A B_c⁻¹; none for rows that are only predicted."""
    mean: Array
    """[C, t]"""
    variance: Array
    """[C, t], of Aᵀu alone, without the residual."""
    residual: Array
    """[t]: k(x, x) − |A|² ≥ 0."""


def marginals(X: Array, prior: Prior | RowPrior, posterior: Posterior) -> Marginals:
    """Moments of the latent values at X [t, d] under q, for predictions."""
    K, _ = prior.rows_kernel.cross(X)
    diagonal, _ = prior.rows_kernel.diagonal(X)
    A, residual = whitened(K, diagonal, prior)
    return Marginals(A, [], _mean(A, posterior), posterior.variance(A), residual)


def whitened(K: Array, diagonal: Array, prior: Prior | RowPrior) -> tuple[Array, Array]:
    """From kernel rows K [t, m] and k(x, x) [t]: whitened rows A [t, m], residual k(x, x) − |A|² [t]."""
    A = times_transposed_lower(K, prior.whitener)
    return A, np.maximum(diagonal - row_dots(A, A), 0.0)


def marginals_from_whitened(A: Array, residual: Array, posterior: Posterior) -> Marginals:
    """The moments from whitened kernel rows A [t, m] and residual variances [t]."""
    Q, variance = posterior.project(A)
    return Marginals(A, Q, _mean(A, posterior), np.maximum(variance, 0.0), residual)


def _mean(A: Array, posterior: Posterior) -> Array:
    """Means [C, t] at whitened kernel rows A [t, m], in float64."""
    return (posterior.mean_in(A.dtype) @ A.T).astype(np.float64, copy=False)


def _root(S: Array) -> Array:
    """Lower triangular R [m, m] with RRᵀ = S [m, m], which may be singular within rounding."""
    L = cholesky_factor(np.array(S, dtype=np.float64, order="C"))
    if L is not None:
        return np.tril(L)
    values, vectors = np.linalg.eigh(S.astype(np.float64, copy=False))
    half = vectors * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(np.linalg.qr(half.T, mode="r")).T


def _solved(naturals: tuple[Array, Array], dtype: Dtype) -> tuple[Array, Array, float]:
    """For P [m, m] and η [m]: B⁻¹η, B⁻¹ and ½ log|B⁻¹|, where B = I + P."""
    precision, shift = naturals
    L = cholesky_in_place(_plus_identity(precision))
    covariance = gram_of_lower(inverse_lower(L.astype(dtype, copy=False)))
    return solved_by_cholesky(L, shift), covariance, -_sum_of_logs([L])


def _plus_identity(P: Array) -> Array:
    B = P.copy()
    add_to_diagonal(B, 1.0)
    return B


def _sum_of_logs(factors: Iterable[Array]) -> float:
    return sum(float(np.log(np.abs(np.diagonal(R))).sum()) for R in factors)
