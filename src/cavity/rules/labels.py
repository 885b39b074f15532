"""Two class codes, 0 and 1, as the signs −1 and +1 that a binary likelihood speaks of."""

from __future__ import annotations

import numpy as np

from cavity.rules.likelihoods import Likelihood
from cavity.typing import Array, IntArray


def signs(labels: IntArray) -> Array:
    """y = ±1 [t] of class codes [t].

    >>> signs(np.array([0, 1]))
    array([-1.,  1.])
    """
    return np.where(labels == 1, 1.0, -1.0)


def class_log_proba(likelihood: Likelihood, mean: Array, variance: Array) -> Array:
    """Log probabilities [t, 2] of the codes 0 and 1 when f ~ N(mean, variance), both [t]."""
    return np.stack(
        [likelihood.log_predictive(-mean, variance), likelihood.log_predictive(mean, variance)], axis=1
    )
