"""The cavity: q with a row's own site taken out, which is the posterior of the other rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cavity.typing import Array


class Cavity(NamedTuple):
    """Moments of the other rows' posterior, and the site that was taken out; arrays [C, t]."""

    mean: Array
    """e\\ = (e − vμ̃)/(1 − ν̃v)"""
    variance: Array
    """v\\ = v/(1 − ν̃v)"""
    kept: Array
    """1 − ν̃v: the share of q's information that is not the row's own, > 0."""
    precision: Array
    """ν̃ as taken out."""
    shift: Array
    """μ̃ as taken out."""


def leave_out(
    mean: Array, variance: Array, precision: Array, shift: Array, max_leverage: float
) -> Cavity:
    """Divide sites (precision, shift) out of the marginals N(mean, variance); all [C, t].

    >>> leave_out(np.array([1.0]), np.array([0.5]), np.array([1.0]), np.array([2.0]), 0.9).variance
    array([1.])
    """
    precision, shift = limit_leverage(precision, shift, variance, max_leverage)
    kept = 1.0 - precision * variance
    return Cavity((mean - variance * shift) / kept, variance / kept, kept, precision, shift)


def limit_leverage(
    precision: Array, shift: Array, variance: Array, max_leverage: float
) -> tuple[Array, Array]:
    """Sites scaled down so that ν̃v ≤ max_leverage.

    In an exact q a row's own site cannot exceed it; when kernel or inducing points have moved since
    the site entered q, it can, and the cavity would be improper.
    """
    leverage = precision * variance
    factor = max_leverage / np.maximum(leverage, max_leverage)  # 1 up to the bound
    return precision * factor, shift * factor
