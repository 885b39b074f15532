"""Half of a triangular or symmetric matrix, row by row: what travels, and what an optimiser moves."""

from __future__ import annotations

from math import isqrt

import numpy as np
from scipy.linalg import lapack

from cavity.typing import Array


def triangle(M: Array) -> Array:
    """The lower triangle of M [m, m], row by row: [m(m + 1)/2].

    >>> triangle(np.array([[1.0, 9.0], [2.0, 3.0]]))
    array([1., 2., 3.])
    """
    pack = lapack.strttp if M.dtype == np.float32 else lapack.dtrttp
    packed, _ = pack(np.ascontiguousarray(M).T, uplo="U")  # in Fortran's order: no copy is made
    return np.asarray(packed)


def lower(packed: Array) -> Array:
    """The lower triangular matrix [m, m] of a triangle.

    >>> lower(np.array([1.0, 2.0, 3.0]))
    array([[1., 0.],
           [2., 3.]])
    """
    m = (isqrt(8 * len(packed) + 1) - 1) // 2
    unpack = lapack.stpttr if packed.dtype == np.float32 else lapack.dtpttr
    M, _ = unpack(m, packed, uplo="U")
    return np.asarray(M.T)


def symmetric(packed: Array) -> Array:
    """The symmetric matrix [m, m] of a triangle.

    >>> symmetric(np.array([1.0, 2.0, 3.0]))
    array([[1., 2.],
           [2., 3.]])
    """
    L = lower(packed)
    M = L + L.T
    M.flat[:: len(M) + 1] *= 0.5  # exactly what it was: a power of two
    return M
