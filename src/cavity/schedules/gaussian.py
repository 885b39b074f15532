"""q = N(m, R Rᵀ) as free parameters, and the bound's gradient by them from the sums of a pass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cavity.linalg import add_to_diagonal, stacked
from cavity.packed import lower, symmetric, triangle
from cavity.posterior import Posterior
from cavity.prior import ParameterGradient, Prior
from cavity.sums import Sums
from cavity.triangular import add_outer, times_lower, times_transposed_lower
from cavity.typing import FLOAT64, Array, Dtype


@dataclass(frozen=True)
class GaussianSpace:
    """How whitened means [C, m] and lower triangular factors [C, m, m] map to one vector."""

    n_latents: int
    m: int

    def pack(self, mean: Array, factors: Array) -> Array:
        """The vector: all means, then the lower triangles row by row."""
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
        """The same for a variational pass over tiles of a precision."""
        return Posterior.from_factors(*self.unpack(q), dtype)


def bound_gradient(
    q: Array, sums: Sums, prior: Prior, space: GaussianSpace, dtype: Dtype = FLOAT64
) -> tuple[ParameterGradient, Array]:
    """Derivative of the ELBO by theta and Z with the whitened q held, and by the vector q.

    From undamped sums of a pass at this q that has left the bracket to the sites. With Λ = −Σ βAAᵀ, that
    of natural-gradient sites, and a = Σ αA, their pull,

        ∂/∂m = a − m,   ∂/∂S = ½(S⁻¹ − I − Λ),   ∂/∂R = tril(2 ∂/∂S · R) = diag(1/R) − tril(R + ΛR).

    Of the rest only A = L⁻¹k moves with theta and Z: dA = L⁻¹dk − L⁻¹dL A, L⁻¹dL = Φ(L⁻¹dK L⁻ᵀ), where
    Φ keeps the lower triangle and half of the diagonal. The pass has the part through dk; the part
    through dL needs Σ GAᵀ for the rows' derivatives G by A, and as G = αm + β(S − I)A that is

        Σ GAᵀ = m aᵀ + Λ − SΛ.

    Products are formed in `dtype`: in minibatches that of the tiles, which have made Λ.
    """
    assert sums.theta is not None
    assert sums.Z is not None
    assert sums.pull is not None
    mean, factors = space.unpack(q)
    whole = np.zeros((space.m, space.m), dtype)
    by_factors = []
    for m_c, a_c, precision, R in zip(mean, sums.pull, sums.precision, factors, strict=True):
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
    return by_parameters, space.pack(sums.pull - mean, stacked(by_factors))
