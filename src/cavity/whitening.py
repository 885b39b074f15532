"""Columns that go together, each as what those before it do not tell.

A distance is mostly the time that it takes, and what remains, the speed, is what a label may hang on: a
direction of little variance across two features, which a kernel with a lengthscale a feature cannot see
apart. So column j becomes the residual of its regression on the columns before it, in units of the
residual's own deviation. With the correlation matrix R = LLᵀ that is u ↦ u L⁻ᵀ for columns u of unit
variance: their covariance becomes L⁻¹RL⁻ᵀ = I.

Of all the matrices that do this, the triangular one is unique and moves smoothly with R; principal
components of equal variance, in contrast, are any rotation of each other, so that rounding would choose.
"""

from __future__ import annotations

import numpy as np

from cavity.typing import Array

FLAT = 1e-6
"""Share of a column's variance that must be left, given those before it, to be more than rounding."""


def residual_units(R: Array) -> Array:
    """L⁻ᵀ [d, d], upper triangular, for a correlation matrix R [d, d].

    A column that those before it determine is left as its residual, which is nothing.

    >>> residual_units(np.array([[1.0, 0.6], [0.6, 1.0]]))
    array([[ 1.  , -0.75],
           [ 0.  ,  1.25]])
    """
    L = np.zeros_like(R)
    for j in range(len(R)):
        column = R[j:, j] - L[j:, :j] @ L[j, :j]
        left = column[0]
        if left > FLAT:
            L[j:, j] = column / np.sqrt(left)
        else:
            L[j, j] = 1.0
    return np.asarray(np.linalg.inv(L).T)
