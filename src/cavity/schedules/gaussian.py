"""q = N(m, R Rᵀ) as free parameters, and the bound's gradient by them from the sums of a pass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cavity.linalg import symmetrized
from cavity.posterior import Posterior
from cavity.prior import ParameterGradient, Prior
from cavity.sums import Sums
from cavity.typing import Array


@dataclass(frozen=True)
class GaussianSpace:
    """How whitened means [C, m] and lower triangular factors [C, m, m] map to one vector."""

    n_latents: int
    m: int

    def pack(self, mean: Array, factors: Array) -> Array:
        """The vector: all means, then the lower triangles row by row."""
        rows, columns = np.tril_indices(self.m)
        return np.concatenate([mean.ravel(), factors[:, rows, columns].ravel()])

    def unpack(self, q: Array) -> tuple[Array, Array]:
        """Means and factors of a vector."""
        rows, columns = np.tril_indices(self.m)
        split = self.n_latents * self.m
        factors = np.zeros((self.n_latents, self.m, self.m))
        factors[:, rows, columns] = q[split:].reshape(self.n_latents, -1)
        return q[:split].reshape(self.n_latents, self.m), factors

    def posterior(self, q: Array) -> Posterior:
        """The distribution of a vector."""
        return Posterior.from_moments(*self.unpack(q))

    def gradient(self, q: Array, sums: Sums) -> Array:
        """Derivative of the ELBO by the vector, from undamped sums of a pass at this q.

        With Λ = −Σ βAAᵀ and η = Σ (α − βe)A, the sums of natural-gradient sites,

            ∂/∂m = Σ αA − m = η − Λm − m,   ∂/∂S = ½(S⁻¹ − I − Λ),   ∂/∂R = tril(2 ∂/∂S · R).
        """
        mean, factors = self.unpack(q)
        by_mean = sums.shift - np.einsum("cij,cj->ci", sums.precision, mean) - mean
        by_factors = -(np.matmul(sums.precision, factors) + factors)
        diagonal = np.arange(self.m)
        by_factors[:, diagonal, diagonal] += 1.0 / factors[:, diagonal, diagonal]
        return self.pack(by_mean, by_factors)


def whitened_gradient(sums: Sums, prior: Prior) -> ParameterGradient:
    """Derivative of the ELBO by theta and Z with the whitened q held, from undamped sums.

    Only A = L⁻¹k moves: dA = L⁻¹dk − L⁻¹dL A with L⁻¹dL = Φ(L⁻¹dK L⁻ᵀ), where Φ keeps the lower
    triangle and half of the diagonal. The KL divergence does not move at all.
    """
    assert sums.bracket is not None
    assert sums.theta is not None
    assert sums.Z is not None
    # The pass gives Σ(G − ½γA)Aᵀ, and γ = ν̃ for this rule.
    whole = np.tril(sums.bracket + 0.5 * sums.precision.sum(axis=0))
    whole[np.diag_indices_from(whole)] *= 0.5
    through_K = prior.pull_back(symmetrized(whole))
    return ParameterGradient(sums.theta + through_K.theta, sums.Z + through_K.Z)
