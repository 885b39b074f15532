"""From the sums of a pass to the objective and its gradient."""

from __future__ import annotations

from typing import NamedTuple

from cavity.posterior import Posterior
from cavity.prior import ParameterGradient, Prior
from cavity.rules.protocol import Rule
from cavity.schedules.progress import StepInfo
from cavity.sums import Sums
from cavity.typing import Array


class Evaluation(NamedTuple):
    """What a pass says of a point."""

    sums: Sums
    """For all rows: those of a minibatch are scaled up."""
    share: float
    """What the rows of the pass are of all rows: `sums` times this are their own."""
    prior: Prior
    slope: Array
    """Gradient by kernel and inducing points, then by what the optimiser moves of q."""
    info: StepInfo


def objective(sums: Sums, posterior: Posterior, rule: Rule) -> float:
    """log Z_q or the ELBO of the q that the pass was given, with all rows in the sums."""
    return rule.complexity(posterior) + sums.objective


def gradient(sums: Sums, prior: Prior, posterior: Posterior, gamma: float = 0.0) -> ParameterGradient:
    """Gradient of the objective by the kernel's theta and by Z.

    gamma: what γ is of ν̃, for sums without a bracket; see `bracket_of_sites`.
    """
    assert sums.theta is not None
    assert sums.Z is not None
    bracket = bracket_of_sites(sums, posterior, gamma) if sums.bracket is None else sums.bracket
    twice = bracket + bracket.T
    twice += posterior.prior_minus_second_moment()
    twice *= 0.5
    through_K = prior.pull_back(twice)
    return ParameterGradient(sums.theta + through_K.theta, sums.Z + through_K.Z)


def bracket_of_sites(sums: Sums, posterior: Posterior, gamma: float) -> Array:
    """The rows' part of the gradient through K_mm [m, m], from the sums of undamped sites.

    Where h = −ν̃ and γ = gν̃ in all rows, Σ PᵀA has no weights but those of Λ = Σ ν̃AAᵀ:

        Σ_c μ_c (Σ α_c A)ᵀ − B_c⁻¹Λ_c + ½ g Λ_c

    m×m products instead of one with all rows. In the precision of the covariance.
    """
    assert sums.pull is not None
    dtype = posterior.covariance.dtype
    bracket: Array = (posterior.mean.T @ sums.pull).astype(dtype, copy=False)
    for covariance, precision in zip(posterior.covariance, sums.precision, strict=True):
        narrow = precision.astype(dtype, copy=False)
        bracket -= covariance @ narrow
        if gamma:
            bracket += (0.5 * gamma) * narrow
    return bracket
