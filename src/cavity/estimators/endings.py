"""What the user is told of how a fit has ended."""

from __future__ import annotations

import warnings
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from cavity.schedules.plan import Outcome


def warn_of_the_end(estimator: Any, outcome: Outcome) -> None:
    """Warn, in the line that has called `fit`, of a fit that has not come to its proper end."""
    name, steps = type(estimator).__name__, f"{outcome.n_iter} iterations"
    if outcome.interrupted:
        words = (
            f"{name} was interrupted after {steps}; the estimator is fitted with what it had learned by "
            "then"
        )
    elif outcome.stuck:
        words = (
            f"{name} stopped after {steps} where L-BFGS found no way up, though the gradient is not "
            "zero; try standardize=True, other inducing_points or tighter kernel bounds"
        )
    elif not outcome.converged:
        words = (
            f"{name} stopped after {steps} before it converged to tol={estimator.tol:g}; raise tol, "
            "max_iter or whatever budget was set"
        )
    else:
        return
    warnings.warn(words, ConvergenceWarning, stacklevel=5)
