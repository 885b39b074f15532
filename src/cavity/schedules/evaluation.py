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


def gradient(sums: Sums, prior: Prior, posterior: Posterior) -> ParameterGradient:
    """Gradient of the objective by the kernel's theta and by Z."""
    assert sums.bracket is not None
    assert sums.theta is not None
    assert sums.Z is not None
    twice = sums.bracket + sums.bracket.T
    twice += posterior.prior_minus_second_moment()
    twice *= 0.5
    through_K = prior.pull_back(twice)
    return ParameterGradient(sums.theta + through_K.theta, sums.Z + through_K.Z)
