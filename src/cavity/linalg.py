"""The few m×m operations everything rests on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from cavity.errors import NumericalError
from cavity.triangular import cholesky_factor, times_lower
from cavity.typing import Array

WORTH_A_THREAD = 256
"""Size from which a factorisation of its own thread is faster than one after the other."""
_BLOCK = 48
"""Columns a block must have to be worth a product of its own."""
_SMALLEST_HALVED = 64
"""Triangular matrices up to this size are inverted by LAPACK at once."""


def cholesky(A: Array) -> Array:
    """Lower Cholesky factor of A [m, m]; raises `numpy.linalg.LinAlgError` if not positive definite."""
    return np.tril(cholesky_in_place(np.array(A, dtype=np.float64, order="C")))


def cholesky_in_place(A: Array) -> Array:
    """The same for A in float64 and C order, which is lost; only the lower triangle has a meaning."""
    L = cholesky_factor(A)
    # Whatever is not finite in a row of A reaches the diagonal of L.
    if L is None or not np.isfinite(L.diagonal()).all():
        raise np.linalg.LinAlgError("matrix is not positive definite, or not finite")
    return L


def solved_by_cholesky(L: Array, b: Array) -> Array:
    """(LLᵀ)⁻¹b for b [m] and the lower triangle of L [m, m], best in Fortran order."""
    return np.asarray(blas.dtrsv(L, blas.dtrsv(L, b, lower=1), lower=1, trans=1))


def inverse_lower(L: Array) -> Array:
    """Inverse of the lower triangle of L [m, m]; lower triangular itself, and in C order.

    By halves, [[A, 0], [C, D]]⁻¹ = [[A⁻¹, 0], [−D⁻¹CA⁻¹, D⁻¹]]: nearly all of the work is products,
    which are faster than LAPACK's ``trtri`` and, unlike SciPy's wrapper of it, leave the interpreter
    lock to other threads.
    """
    inverse = np.zeros(L.shape, L.dtype)
    _invert_lower(L, inverse)
    return inverse


def _invert_lower(L: Array, out: Array) -> None:
    """Put the inverse of L's lower triangle into that of `out`."""
    if len(L) <= _SMALLEST_HALVED:
        trtri = lapack.dtrtri if L.dtype == np.float64 else lapack.strtri
        inverse, info = trtri(L, lower=1)
        if info != 0:
            raise np.linalg.LinAlgError("singular triangular matrix")
        np.copyto(out, inverse, where=is_lower(len(L)))
        return
    half = len(L) // 2
    _invert_lower(L[:half, :half], out[:half, :half])
    _invert_lower(L[half:, half:], out[half:, half:])
    corner = _times_inverse(L[half:, :half], out[:half, :half])
    np.negative(corner, out=corner)
    for start, stop in _column_blocks(len(L) - half):
        D_inverse = out[half + start : half + stop, half : half + stop]
        np.matmul(D_inverse, corner[:stop], out=out[half + start : half + stop, :half])


def _times_inverse(C: Array, A_inverse: Array) -> Array:
    small = len(A_inverse) <= _SMALLEST_HALVED  # whole products are as fast then
    return np.asarray(C @ A_inverse) if small else times_lower(C, A_inverse)


def jittered_cholesky(K: Array, jitter: float, largest: float = 1e-2) -> tuple[Array, float]:
    """Cholesky factor of K + ε·mean(diag K)·I, for the first ε = jitter·10ᵏ that succeeds.

    Returns the factor, of which only the lower triangle has a meaning, and the ε that was used.
    """
    scale = float(K.trace()) / len(K)
    if np.isfinite(scale) and scale > 0:
        while jitter <= largest:
            try:
                jittered = K.copy()
                add_to_diagonal(jittered, jitter * scale)
                return cholesky_in_place(jittered), jitter
            except np.linalg.LinAlgError:
                jitter *= 10.0
    raise NumericalError(
        f"the covariance of the {len(K)} inducing points is not positive definite, even with a "
        f"relative jitter of {largest:g}; try fewer or more distinct inducing_points, tighter "
        "kernel bounds, or standardize=True"
    )


@lru_cache(maxsize=64)
def _column_blocks(m: int) -> tuple[tuple[int, int], ...]:
    n_blocks = min(5, max(1, m // _BLOCK))
    edges = [round(m * k / n_blocks) for k in range(n_blocks + 1)]
    return tuple(pairwise(edges))


@lru_cache(maxsize=16)
def is_lower(m: int) -> NDArray[np.bool_]:
    """[m, m]: where a lower triangle is."""
    return np.tri(m, dtype=bool)


def add_to_diagonal(A: Array, values: float | Array) -> None:
    """Add a number, or one each, to the diagonal of A [m, m], in place."""
    diagonal = np.einsum("ii->i", A)  # a view, and half the price of `A.flat`
    diagonal += values


def row_dots(A: Array, B: Array) -> Array:
    """Σ_j A_ij B_ij [n], in float64, for A and B [n, m]."""
    return np.asarray(np.einsum("ij,ij->i", A, B), dtype=np.float64)


def stacked(arrays: Sequence[Array]) -> Array:
    """The arrays along a new first axis; a single one is not copied."""
    return arrays[0][None] if len(arrays) == 1 else np.stack(arrays)
