"""q = N(m, R Rᵀ) as free parameters, and the bound's gradient by them from the sums of a pass."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np

from cavity.linalg import add_to_diagonal, is_lower, lower_of_product, stacked
from cavity.posterior import Posterior
from cavity.prior import ParameterGradient, Prior
from cavity.sums import Sums
from cavity.typing import FLOAT64, Array, Dtype


@dataclass(frozen=True)
class GaussianSpace:
    """How whitened means [C, m] and lower triangular factors [C, m, m] map to one vector."""

    n_latents: int
    m: int

    def pack(self, mean: Array, factors: Array) -> Array:
        """The vector: all means, then the lower triangles row by row."""
        lower = is_lower(self.m)
        return np.concatenate([mean.ravel(), *(R[lower] for R in factors)])

    def unpack(self, q: Array) -> tuple[Array, Array]:
        """Means and factors of a vector."""
        lower, split = is_lower(self.m), self.n_latents * self.m
        factors = np.zeros((self.n_latents, self.m, self.m))
        for R, values in zip(factors, q[split:].reshape(self.n_latents, -1), strict=True):
            R[lower] = values
        return q[:split].reshape(self.n_latents, self.m), factors

    def posterior(self, q: Array) -> Posterior:
        """The distribution of a vector."""
        return Posterior.from_moments(*self.unpack(q))

    def moments(self, q: Array, dtype: Dtype) -> Posterior:
        """The same without its naturals, for a pass over tiles of a precision."""
        return Posterior.without_naturals(*self.unpack(q), dtype)

    def gradient(self, q: Array, sums: Sums, dtype: Dtype = FLOAT64) -> Array:
        """Derivative of the ELBO by the vector, from undamped sums of a pass at this q.

        With Λ = −Σ βAAᵀ and η = Σ (α − βe)A, the sums of natural-gradient sites,

            ∂/∂m = Σ αA − m = η − Λm − m,   ∂/∂S = ½(S⁻¹ − I − Λ),   ∂/∂R = tril(2 ∂/∂S · R).

        ΛR is formed in `dtype`: in minibatches that of the tiles, which have made Λ.
        """
        mean, factors = self.unpack(q)
        by_mean = sums.shift - np.matmul(sums.precision, mean[:, :, None])[:, :, 0] - mean
        by_factors = []
        for precision, R in zip(sums.precision, factors, strict=True):
            by_factor = R + lower_of_product(
                precision.astype(dtype, copy=False), R.astype(dtype, copy=False)
            )
            np.negative(by_factor, out=by_factor)
            add_to_diagonal(by_factor, 1.0 / R.diagonal())
            by_factors.append(by_factor)
        return self.pack(by_mean, stacked(by_factors))


def whitened_gradient(sums: Sums, prior: Prior) -> ParameterGradient:
    """Derivative of the ELBO by theta and Z with the whitened q held, from undamped sums.

    Only A = L⁻¹k moves: dA = L⁻¹dk − L⁻¹dL A with L⁻¹dL = Φ(L⁻¹dK L⁻ᵀ), where Φ keeps the lower
    triangle and half of the diagonal. The KL divergence does not move at all.
    """
    assert sums.bracket is not None
    assert sums.theta is not None
    assert sums.Z is not None
    # The pass gives Σ(G − ½γA)Aᵀ, and γ = ν̃ for this rule.
    whole = np.multiply(0.5, reduce(np.add, sums.precision), dtype=sums.bracket.dtype)
    whole += sums.bracket
    whole *= 0.5
    # The symmetric part of Φ: half of the lower triangle, mirrored.
    through_K = prior.pull_back(np.where(is_lower(len(whole)), whole, whole.T))
    return ParameterGradient(sums.theta + through_K.theta, sums.Z + through_K.Z)
