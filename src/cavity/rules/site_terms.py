"""What EP and VI make of a likelihood's answer, for any number of latent functions."""

from __future__ import annotations

import numpy as np

from cavity.rules.cavity_moments import Cavity
from cavity.rules.likelihoods.protocol import Expected, Tilted
from cavity.rules.protocol import RowTerms
from cavity.typing import Array


def propagated_terms(
    mean: Array, variance: Array, residual: Array, cavity: Cavity, tilted: Tilted
) -> RowTerms:
    """EP's terms of t rows from marginals and cavities [C, t], residual [t] and the tilted moments.

    `tilted` has slope, curvature, gamma and variance_ratio [C, t], derivatives by the latent values
    themselves, and log_evidence [C, t] or, if the latent functions meet in one likelihood, [1, t].
    The formulas are those of `ExpectationPropagation`.
    """
    alpha, beta, gamma = tilted.slope, tilted.curvature, tilted.gamma
    # 1 − βv\ = [1 − β(s + v\)] + βs: positive terms only.
    new_precision = beta / (tilted.variance_ratio + beta * residual)
    new_shift = alpha + new_precision * (cavity.mean + cavity.variance * alpha)

    kept, own_precision, own_shift = cavity.kept, cavity.precision, cavity.shift
    quadratic = own_precision * mean**2 - 2.0 * mean * own_shift + variance * own_shift**2
    division = (-0.5 * np.log(kept) + 0.5 * quadratic / kept).sum(axis=0)
    log_predictive = tilted.log_evidence.sum(axis=0)

    pull = (own_precision * mean - own_shift) / kept
    delta = pull + alpha / kept
    return RowTerms(
        precision=new_precision,
        shift=new_shift,
        objective=log_predictive + division,
        log_predictive=log_predictive,
        alpha=alpha,
        h=alpha * pull - gamma / kept,
        gamma=gamma,
        mismatch_mean=delta,
        mismatch_square=own_precision / kept - beta / kept**2 + delta**2,
    )


def variational_terms(mean: Array, expected: Expected, log_predictive: Array) -> RowTerms:
    """VI's terms of t rows from means [C, t], expectations by the latent values, and scores [t]."""
    new_precision = np.maximum(-expected.curvature, 0.0)
    nothing = np.zeros_like(new_precision)
    return RowTerms(
        precision=new_precision,
        shift=expected.slope + new_precision * mean,
        objective=expected.log_likelihood.sum(axis=0),
        log_predictive=log_predictive,
        alpha=expected.slope,
        h=-new_precision,
        gamma=new_precision,
        mismatch_mean=nothing,
        mismatch_square=nothing,
    )
