"""What a fit records of itself, the same for every method, so that curves can be drawn together."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Iteration:
    """One iteration of a fit, as seen before its step."""

    iteration: int
    """From 1."""
    objective: float
    """What training maximises: log Z_q (EP) or the ELBO (VI), plus the log density of the
    hyper-parameters, less the residual penalty; for minibatches their estimate for all rows, which in
    the first epoch of EP lacks the sites that are yet to come."""
    leave_one_out: float
    """Mean log probability of a row's label, with the row left out."""
    gradient_norm: float
    seconds: float
    """Since the fit began."""
    epochs: float
    """Passes over the data so far."""

    def as_dict(self) -> dict[str, Any]:
        """The record as a plain dictionary, ready for JSON or a data frame."""
        return asdict(self)


@dataclass(frozen=True)
class Rung:
    """A number of inducing points that was tried."""

    m: int
    loo_score: float
    """Mean leave-one-out log probability of a row's label with that many points."""
    seconds: float
    """What trying took."""
    charge: float = 0.0
    """Mean charge a row for the variance that the points leave unexplained, ¼ν̃s. `loo_score - charge` is
    what rungs are compared by: few points have learned more of the row that is left out."""

    def as_dict(self) -> dict[str, Any]:
        """The record as a plain dictionary, ready for JSON or a data frame."""
        return asdict(self)
