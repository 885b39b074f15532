"""From the sums of a pass to the objective, its gradient, and the next posterior q.

There are three updates of q: `NaturalUpdate` moves it towards the sum of the refined sites (EP and
natural-gradient VI), `FactorUpdate` is the paper's minibatch scheme with stored factors, and
`GradientUpdate` leaves q = N(m, R Rᵀ) to an optimiser (VI only).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

import numpy as np

from cavity.gp.linalg import (
    add_outer,
    add_to_diagonal,
    lower,
    stacked,
    symmetric,
    times_lower,
    times_transposed_lower,
    triangle,
)
from cavity.gp.posterior import MapFunction, NaturalParameters, Posterior
from cavity.gp.prior import ParameterGradient, Prior
from cavity.gp.tiles import Sums
from cavity.inference.history import StepInfo
from cavity.inference.rule import Rule
from cavity.inference.sweep import SweepOptions
from cavity.typing import FLOAT64, Array, Dtype

NO_LEAF_GRADIENTS: Mapping[int, Array] = {}
"""The gradients of leaves, by leaf, of a model without leaves."""


class Evaluation(NamedTuple):
    """The result of a pass at a point."""

    sums: Sums
    """Sums over all rows; those of a minibatch are scaled up."""
    share: float
    """Share of the pass's rows among all rows; `sums` times this are the sums of the pass itself."""
    prior: Prior
    slope: Array
    """Gradient by kernel and inducing points, then by the parameters of q that the optimiser moves."""
    info: StepInfo
    by_leaf: Mapping[int, Array] = NO_LEAF_GRADIENTS
    """Gradient [m_k, d] by the inducing points of each leaf that the pass has met."""


class Gradients(NamedTuple):
    """Derivatives of the objective."""

    parameters: ParameterGradient
    """By the kernel and the inducing points for all rows."""
    q: Array
    """By the parameters of q that the optimiser moves."""
    leaves: Mapping[int, Array] = NO_LEAF_GRADIENTS
    """By the inducing points [m_k, d] of leaves."""


def objective(sums: Sums, posterior: Posterior, rule: Rule) -> float:
    """log Z_q or the ELBO at the q of the pass, from sums over all rows."""
    return rule.complexity(posterior) + sums.objective


def gradient(sums: Sums, prior: Prior, posterior: Posterior, gamma: float = 0.0) -> ParameterGradient:
    """Gradient of the objective by the kernel's theta and by Z.

    gamma: the ratio γ/ν̃, for sums without a whitened gradient; see `whitened_gradient_of_sites`.
    """
    assert sums.theta is not None
    assert sums.Z is not None
    whitened = sums.whitened_gradient
    if whitened is None:
        whitened = whitened_gradient_of_sites(sums, posterior, gamma)
    twice = whitened + whitened.T
    twice += posterior.prior_minus_second_moment()
    twice *= 0.5
    through_K = prior.pull_back(twice)
    return ParameterGradient(sums.theta + through_K.theta, sums.Z + through_K.Z)


def whitened_gradient_of_sites(sums: Sums, posterior: Posterior, gamma: float) -> Array:
    """The rows' part of the gradient through K_mm [m, m], from the sums of undamped sites.

    Where h = −ν̃ and γ = gν̃ in all rows, Σ PᵀA follows from Λ = Σ ν̃AAᵀ:

        Σ_c μ_c (Σ α_c A)ᵀ − B_c⁻¹Λ_c + ½ g Λ_c

    This takes m×m products instead of a product with all rows, in the precision of the covariance.
    """
    assert sums.mean_gradient is not None
    dtype = posterior.covariance.dtype
    total: Array = (posterior.mean.T @ sums.mean_gradient).astype(dtype, copy=False)
    for covariance, precision in zip(posterior.covariance, sums.precision, strict=True):
        narrow = precision.astype(dtype, copy=False)
        total -= covariance @ narrow
        if gamma:
            total += (0.5 * gamma) * narrow
    return total


@dataclass(frozen=True)
class GaussianSpace:
    """Maps whitened means [C, m] and lower triangular factors [C, m, m] to one vector and back."""

    n_latents: int
    m: int

    def pack(self, mean: Array, factors: Array) -> Array:
        """One vector: all means, then the lower triangles row by row."""
        return np.concatenate([mean.ravel(), *map(triangle, factors)])

    def unpack(self, q: Array) -> tuple[Array, Array]:
        """Means and factors of a vector."""
        split = self.n_latents * self.m
        factors = stacked([lower(half) for half in q[split:].reshape(self.n_latents, -1)])
        return q[:split].reshape(self.n_latents, self.m), factors

    def posterior(self, q: Array) -> Posterior:
        """The distribution of a vector."""
        return Posterior.from_moments(*self.unpack(q))

    def moments(self, q: Array, dtype: Dtype) -> Posterior:
        """The distribution of a vector for a variational pass, the covariance in `dtype`."""
        return Posterior.from_factors(*self.unpack(q), dtype)


def bound_gradient(
    q: Array, sums: Sums, prior: Prior, space: GaussianSpace, dtype: Dtype = FLOAT64
) -> tuple[ParameterGradient, Array]:
    """Gradient of the ELBO by theta and Z at a fixed whitened q, and by the vector q.

    It needs the undamped sums of a pass at this q without the whitened gradient. With Λ = −Σ βAAᵀ, the
    precision of natural-gradient sites, and a = Σ αA, their gradient by the means,

        ∂/∂m = a − m,   ∂/∂S = ½(S⁻¹ − I − Λ),   ∂/∂R = tril(2 ∂/∂S · R) = diag(1/R) − tril(R + ΛR).

    Otherwise only A = L⁻¹k depends on theta and Z: dA = L⁻¹dk − L⁻¹dL A, L⁻¹dL = Φ(L⁻¹dK L⁻ᵀ), where
    Φ keeps the lower triangle and half of the diagonal. The pass has the part through dk; the part
    through dL needs Σ GAᵀ for the rows' derivatives G by A, and as G = αm + β(S − I)A that is

        Σ GAᵀ = m aᵀ + Λ − SΛ.

    Products are computed in `dtype`; in minibatches that is the precision of Λ.
    """
    assert sums.theta is not None
    assert sums.Z is not None
    assert sums.mean_gradient is not None
    mean, factors = space.unpack(q)
    whole = np.zeros((space.m, space.m), dtype)
    by_factors = []
    for m_c, a_c, precision, R in zip(mean, sums.mean_gradient, sums.precision, factors, strict=True):
        narrow, narrow_R = precision.astype(dtype, copy=False), R.astype(dtype, copy=False)
        product = times_lower(narrow, narrow_R)  # ΛR
        by_factor = -R
        by_factor -= product
        add_to_diagonal(by_factor, 1.0 / R.diagonal())
        by_factors.append(by_factor)
        add_outer(whole, m_c.astype(dtype), a_c.astype(dtype))
        whole += narrow
        whole -= times_transposed_lower(product, narrow_R, overwrite=True).T  # SΛ
    whole *= 0.5
    # The symmetric part of Φ: half of the lower triangle, mirrored.
    through_K = prior.pull_back(symmetric(triangle(whole)))
    by_parameters = ParameterGradient(sums.theta + through_K.theta, sums.Z + through_K.Z)
    return by_parameters, space.pack(sums.mean_gradient - mean, stacked(by_factors))


PosteriorForm: TypeAlias = Any
"""The q of an update: `NaturalParameters`, or one vector in `GradientUpdate`. Only that
reads it."""


class PosteriorUpdate(Protocol):
    """How a trainer represents q and moves it; each update has its own type of `q`."""

    def start(self, posterior: Posterior, prior: Prior) -> PosteriorForm:
        """The q to start from."""
        ...

    @property
    def is_whitened(self) -> bool:
        """Whether q is a distribution of the whitened u, so that its moments need no prior."""
        ...

    def options(self, options: SweepOptions, damping: float) -> SweepOptions:
        """The options of a pass with a damping."""
        ...

    def posterior(self, q: PosteriorForm, prior: Prior | None = None) -> Posterior:
        """Moments of q in the whitened coordinates of a prior; a whitened q does not need the prior."""
        ...

    def moments(self, q: PosteriorForm, dtype: Dtype, prior: Prior | None = None) -> Posterior:
        """Moments of q for a pass, with the covariance only in `dtype`.

        The naturals may be missing, if no rule needs them.
        """
        ...

    def located(self, prior: Prior, q: PosteriorForm) -> Prior:
        """The prior at the inducing points that are a part of q: those of leaves."""
        ...

    def with_sites(self, q: PosteriorForm, naturals: NaturalParameters) -> PosteriorForm:
        """q with other summed sites."""
        ...

    def gradients(self, q: PosteriorForm, sums: Sums, prior: Prior, posterior: Posterior) -> Gradients:
        """Gradient by kernel and inducing points, and by the parameters of q that the optimiser
        moves."""
        ...

    def moved(
        self, q: PosteriorForm, evaluation: Evaluation, gain: float, move: Array, rate: float
    ) -> PosteriorForm:
        """The next q, from the result of a pass and the optimiser's move.

        rate: the factor on the optimiser's step that the move has already.
        """
        ...

    def retreated(self, q: PosteriorForm, before: PosteriorForm) -> PosteriorForm:
        """The q to continue with after a pass at q has failed; `before` is the q before the last
        step."""
        ...

    def as_arrays(self, q: PosteriorForm) -> dict[str, Array]:
        """q as arrays for a file."""
        ...

    def from_arrays(self, arrays: dict[str, Array], like: PosteriorForm) -> PosteriorForm:
        """q from a file; `like` is another q of the same sizes."""
        ...


@dataclass(frozen=True)
class NaturalUpdate:
    """q is the sum of sites: a step replaces a share of it, the gain, by the refined sites."""

    is_whitened: ClassVar[bool] = True
    map_latents: MapFunction = map
    """Maps a function over the latent functions: an engine's threads, if there are several."""
    gamma: float | None = None
    """The ratio γ/ν̃, if it is the same in all rows: then the gradient through K_mm follows from the
    summed sites. None means that it is summed over the rows."""

    def start(self, posterior: Posterior, prior: Prior) -> PosteriorForm:
        """The summed sites of the posterior."""
        return posterior.naturals

    def options(self, options: SweepOptions, damping: float) -> SweepOptions:
        """The options with this damping; the whitened gradient follows from the sites only if they are
        undamped."""
        whitened_gradient = self.gamma is None or damping != 1.0
        if (damping, whitened_gradient) == (options.damping, options.whitened_gradient):
            return options
        return _pass_options(options, damping, whitened_gradient)

    def posterior(self, q: PosteriorForm, prior: Prior | None = None) -> Posterior:
        """Moments of q."""
        return self.moments(q, FLOAT64, prior)

    def moments(self, q: PosteriorForm, dtype: Dtype, prior: Prior | None = None) -> Posterior:
        """Moments of q, the covariance in the precision of the tiles."""
        found: Posterior = q.posterior(self.map_latents, dtype)
        return found

    def located(self, prior: Prior, q: PosteriorForm) -> Prior:
        """The prior itself."""
        return prior

    def with_sites(self, q: PosteriorForm, naturals: NaturalParameters) -> PosteriorForm:
        """The summed sites."""
        return naturals

    def gradients(self, q: PosteriorForm, sums: Sums, prior: Prior, posterior: Posterior) -> Gradients:
        """The objective's gradient with fixed factors on f̄; the optimiser moves no part of q."""
        return Gradients(gradient(sums, prior, posterior, self.gamma or 0.0), np.zeros(0))

    def moved(
        self, q: PosteriorForm, evaluation: Evaluation, gain: float, move: Array, rate: float
    ) -> PosteriorForm:
        """(1 − gain)·q + gain·refined."""
        return q.mixed_with(evaluation.sums.naturals, gain)

    def retreated(self, q: PosteriorForm, before: PosteriorForm) -> PosteriorForm:
        """The q before the last step."""
        return before

    def as_arrays(self, q: PosteriorForm) -> dict[str, Array]:
        """Precision and shift."""
        return {"precision": q.precision, "shift": q.shift}

    def from_arrays(self, arrays: dict[str, Array], like: PosteriorForm) -> PosteriorForm:
        """Precision and shift."""
        return NaturalParameters(arrays["precision"], arrays["shift"])


@dataclass(frozen=True)
class FactorUpdate(NaturalUpdate):
    """The paper's minibatch scheme: q is the sum of stored factors on f̄, replaced one by one.

    There is no averaging: a minibatch's old factors are subtracted and its refined ones are added. In
    the coordinates of f̄, the other factors do not change while kernel and inducing points move.
    """

    is_whitened: ClassVar[bool] = False

    def start(self, posterior: Posterior, prior: Prior) -> NaturalParameters:
        """The factors of the posterior, on f̄."""
        return posterior.naturals.mapped(prior.L_inverse)

    def moments(self, q: NaturalParameters, dtype: Dtype, prior: Prior | None = None) -> Posterior:
        """Moments of q, the covariance in the precision of the tiles."""
        assert prior is not None
        return super().moments(q.mapped(prior.L), dtype)

    def moved(
        self, q: NaturalParameters, evaluation: Evaluation, gain: float, move: Array, rate: float
    ) -> NaturalParameters:
        """q without the replaced factors of the minibatch and with the refined ones."""
        sums = evaluation.sums
        assert sums.replaced_precision is not None
        assert sums.replaced_shift is not None
        change = NaturalParameters(
            sums.precision - sums.replaced_precision, sums.shift - sums.replaced_shift
        )
        return q + change.mapped(evaluation.prior.L_inverse).scaled(evaluation.share)

    def retreated(self, q: NaturalParameters, before: NaturalParameters) -> NaturalParameters:
        """The current q: it is the sum of the rows' factors, which have been replaced already."""
        return q


@dataclass(frozen=True)
class GradientUpdate:
    """q is a whitened mean and a factor of the covariance, which the optimiser moves (VI only)."""

    space: GaussianSpace
    is_whitened: ClassVar[bool] = True

    def start(self, posterior: Posterior, prior: Prior) -> Array:
        """Mean and Cholesky factor of the posterior."""
        return self.space.pack(posterior.mean, np.linalg.cholesky(posterior.covariance))

    def options(self, options: SweepOptions, damping: float) -> SweepOptions:
        """The options without damping, since the sums of undamped sites are the gradient by q."""
        return _pass_options(options, damping=1.0, whitened_gradient=False)

    def posterior(self, q: Array, prior: Prior | None = None) -> Posterior:
        """Moments of q."""
        return self.space.posterior(q)

    def moments(self, q: Array, dtype: Dtype, prior: Prior | None = None) -> Posterior:
        """Moments of q without its naturals, which would need an inverse."""
        return self.space.moments(q, dtype)

    def located(self, prior: Prior, q: Array) -> Prior:
        """The prior itself."""
        return prior

    def with_sites(self, q: Array, naturals: NaturalParameters) -> Array:
        """Raise an error: this q is not made of sites."""
        raise NotImplementedError("a posterior that the optimiser moves is not made of sites")

    def gradients(self, q: Array, sums: Sums, prior: Prior, posterior: Posterior) -> Gradients:
        """The bound's gradient at a fixed whitened q, and by q."""
        assert posterior.factors is not None
        return Gradients(*bound_gradient(q, sums, prior, self.space, posterior.factors.dtype))

    def moved(self, q: Array, evaluation: Evaluation, gain: float, move: Array, rate: float) -> Array:
        """q plus the optimiser's move."""
        return q + move

    def retreated(self, q: Array, before: Array) -> Array:
        """The q before the last step."""
        return before

    def as_arrays(self, q: Array) -> dict[str, Array]:
        """The vector."""
        return {"moments": q}

    def from_arrays(self, arrays: dict[str, Array], like: Array) -> Array:
        """The vector."""
        return arrays["moments"]


@lru_cache(maxsize=8)  # called in every step
def _pass_options(options: SweepOptions, damping: float, whitened_gradient: bool) -> SweepOptions:
    """The options of a pass with this damping and form of the gradient."""
    return replace(options, damping=damping, whitened_gradient=whitened_gradient)
