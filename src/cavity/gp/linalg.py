"""Linear algebra of m×m matrices: factors, inverses, triangular products.

Half of a triangular or symmetric matrix, row by row, is what is sent and what an optimiser moves.

Products with triangles and outer sums call LAPACK and BLAS with the interpreter lock released. NumPy has
no function for them, and SciPy's wrappers keep the lock, so that tiles in threads would wait for each
other. SciPy offers the routines to other languages, and they are called there. They expect matrices
column by column: a lower triangle stored row by row is, to them, its transpose, an upper triangle.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import isqrt
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, cython_blas, cython_lapack, lapack

from cavity.errors import NumericalError
from cavity.typing import Array, Dtype


def triangle(M: Array) -> Array:
    """The lower triangle of M [m, m], row by row: [m(m + 1)/2].

    >>> triangle(np.array([[1.0, 9.0], [2.0, 3.0]]))
    array([1., 2., 3.])
    """
    pack = lapack.strttp if M.dtype == np.float32 else lapack.dtrttp
    packed, _ = pack(np.ascontiguousarray(M).T, uplo="U")  # in Fortran order, so that no copy is made
    return np.asarray(packed)


def lower(packed: Array) -> Array:
    """The lower triangular matrix [m, m] of a packed triangle.

    >>> lower(np.array([1.0, 2.0, 3.0]))
    array([[1., 0.],
           [2., 3.]])
    """
    m = (isqrt(8 * len(packed) + 1) - 1) // 2
    unpack = lapack.stpttr if packed.dtype == np.float32 else lapack.dtpttr
    M, _ = unpack(m, packed, uplo="U")
    return np.asarray(M.T)


def symmetric(packed: Array) -> Array:
    """The symmetric matrix [m, m] of a packed triangle.

    >>> symmetric(np.array([1.0, 2.0, 3.0]))
    array([[1., 2.],
           [2., 3.]])
    """
    L = lower(packed)
    M = L + L.T
    M.flat[:: len(M) + 1] *= 0.5  # exact: a power of two
    return M


@dataclass(frozen=True)
class BlockLower:
    """A lower triangular matrix [m, m] that is zero but for some blocks along its diagonal."""

    blocks: tuple[Array, ...]

    def __len__(self) -> int:
        return sum(map(len, self.blocks))

    @property
    def dtype(self) -> Dtype:
        """Precision of the blocks."""
        return self.blocks[0].dtype


def times_lower(G: Array, L: Array | BlockLower, *, overwrite: bool = False) -> Array:
    """G L for G [n, m] and lower triangular L [m, m], at half the flops of a product.

    With `overwrite`, the result takes the memory of a G in C order.

    >>> times_lower(np.ones((1, 2)), np.array([[1.0, 0.0], [2.0, 3.0]]))
    array([[3., 3.]])
    """
    return _multiplied(_own(G, overwrite), L, b"L", b"N")


def times_transposed_lower(K: Array, L: Array | BlockLower, *, overwrite: bool = False) -> Array:
    """K Lᵀ for K [n, m] and lower triangular L [m, m], at half the flops of a product.

    With `overwrite`, the result takes the memory of a K in C order.

    >>> times_transposed_lower(np.ones((1, 2)), np.array([[1.0, 0.0], [2.0, 3.0]]))
    array([[1., 5.]])
    """
    return _multiplied(_own(K, overwrite), L, b"L", b"T")


def transposed_lower_times(L: Array, B: Array, *, overwrite: bool = False) -> Array:
    """Lᵀ B for lower triangular L [m, m] and B [m, n], at half the flops of a product.

    >>> transposed_lower_times(np.array([[1.0, 0.0], [2.0, 3.0]]), np.ones((2, 1)))
    array([[3.],
           [3.]])
    """
    return _multiplied(_own(B, overwrite), L, b"R", b"T")


def add_outer(A: Array, x: Array, y: Array) -> None:
    """Add x yᵀ to A [n, m], in C order, in place.

    >>> A = np.ones((2, 2))
    >>> add_outer(A, np.array([1.0, 2.0]), np.array([3.0, 0.0]))
    >>> A
    array([[4., 1.],
           [7., 1.]])
    """
    fits = x.ndim == y.ndim == 1 and A.shape == x.shape + y.shape and A.dtype == x.dtype == y.dtype
    if not (fits and A.flags.carray and A.dtype in _GER):
        raise ValueError(
            f"cannot add {x.dtype}{x.shape} {y.dtype}{y.shape}ᵀ to {A.dtype}{A.shape} in place"
        )
    n, m, step = ctypes.c_int(len(x)), ctypes.c_int(len(y)), ctypes.c_int(1)
    x, y, one = np.ascontiguousarray(x), np.ascontiguousarray(y), _ONE[A.dtype]
    _GER[A.dtype](m, n, one, y.ctypes.data, step, x.ctypes.data, step, A.ctypes.data, m)


def gram_of_lower(L: Array) -> Array:
    """LᵀL for lower triangular L [m, m], at a sixth of the flops of a product.

    >>> gram_of_lower(np.array([[1.0, 0.0], [2.0, 3.0]]))
    array([[5., 6.],
           [6., 9.]])
    """
    half = np.array(L, order="C")
    _require_square(half, _LAUUM)
    m, info = ctypes.c_int(len(L)), ctypes.c_int()
    _LAUUM[half.dtype](b"U", m, half.ctypes.data, m, info)
    gram: Array = half + half.T
    gram.flat[:: len(L) + 1] *= 0.5
    return gram


def cholesky_factor(A: Array) -> Array | None:
    """Lower Cholesky factor of A [m, m], or None if A is not positive definite; overwrites A.

    A is in float64 and C order, and its upper triangle is read. The factor is in Fortran order, and only
    its lower triangle is defined. LAPACK is a quarter slower the other way round. NaN goes through.

    >>> np.tril(cholesky_factor(np.array([[4.0, 2.0], [2.0, 5.0]])))
    array([[2., 0.],
           [1., 2.]])
    """
    _require_square(A, (_DOUBLE,))
    m, info = ctypes.c_int(len(A)), ctypes.c_int()
    _POTRF(b"L", m, A.ctypes.data, m, info)
    return A.T if info.value == 0 else None


def _require_square(A: Array, dtypes: Iterable[Dtype]) -> None:
    """Refuse an array whose memory is not the square matrix that a routine will read and write."""
    square = A.ndim == 2 and A.shape[0] == A.shape[1]
    if not (square and A.dtype in tuple(dtypes) and A.flags.carray):
        kinds = " or ".join(str(kind) for kind in dtypes)
        raise ValueError(f"{A.dtype}{A.shape} is not a square matrix of {kinds} in C order")


def _own(B: Array, overwrite: bool = False) -> Array:
    """B in C order and writeable: a copy, unless it may be overwritten."""
    return np.ascontiguousarray(B) if overwrite else np.array(B, order="C")


def _multiplied(out: Array, L: Array | BlockLower, side: bytes, transposed: bytes) -> Array:
    """out L or out Lᵀ (side "L": BLAS sees transposes), or Lᵀ out (side "R"), in place.

    With side "L", the columns of `out` may be some of those of an array in C order.
    """
    if isinstance(L, BlockLower):
        start = 0
        for block in L.blocks:
            _multiplied(out[:, start : start + len(block)], block, side, transposed)
            start += len(block)
        return out
    L = np.ascontiguousarray(L)
    inner = out.shape[1:] if side == b"L" else out.shape[:1]
    _require_square(L, _TRMM)
    if out.dtype != L.dtype or out.ndim != 2 or inner != L.shape[:1]:
        raise ValueError(f"{out.dtype}{out.shape} and {L.dtype}{L.shape} have no triangular product")
    if out.size == 0:
        return out
    stride = out.strides[0] // out.itemsize
    rows, columns, m, step = map(ctypes.c_int, (*out.shape, len(L), stride))
    address, one = out.ctypes.data, _ONE[out.dtype]
    _TRMM[out.dtype](side, b"U", transposed, b"N", columns, rows, one, L.ctypes.data, m, address, step)
    return out


def _routine(module: ModuleType, name: str, arguments: str) -> Callable[..., None]:
    """A routine of SciPy's BLAS or LAPACK; each letter of `arguments` is a type in `_POINTERS`."""
    api, capsule = ctypes.pythonapi, module.__pyx_capi__[name]
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    signature = api.PyCapsule_GetName(capsule)
    n_integers = len(re.findall(rb"\bint \*", signature))
    if n_integers != arguments.count("i"):  # 64-bit integers, for instance
        raise ImportError(f"SciPy's {name} takes {signature.decode()}, not plain integers")
    address = api.PyCapsule_GetPointer(capsule, signature)
    return ctypes.CFUNCTYPE(None, *[_POINTERS[kind] for kind in arguments])(address)


_POINTERS: dict[str, Any] = {
    "c": ctypes.c_char_p,
    "i": ctypes.POINTER(ctypes.c_int),
    "x": ctypes.c_void_p,  # numbers of either precision
}
_TRMM_ARGUMENTS, _LAUUM_ARGUMENTS, _GER_ARGUMENTS = "cccciixxixi", "cixii", "iixxixixi"
_SINGLE: Dtype = np.dtype(np.float32)
_DOUBLE: Dtype = np.dtype(np.float64)
_TRMM = {
    _SINGLE: _routine(cython_blas, "strmm", _TRMM_ARGUMENTS),
    _DOUBLE: _routine(cython_blas, "dtrmm", _TRMM_ARGUMENTS),
}
_LAUUM = {
    _SINGLE: _routine(cython_lapack, "slauum", _LAUUM_ARGUMENTS),
    _DOUBLE: _routine(cython_lapack, "dlauum", _LAUUM_ARGUMENTS),
}
_GER = {
    _SINGLE: _routine(cython_blas, "sger", _GER_ARGUMENTS),
    _DOUBLE: _routine(cython_blas, "dger", _GER_ARGUMENTS),
}
_POTRF = _routine(cython_lapack, "dpotrf", _LAUUM_ARGUMENTS)
_ONE = {_SINGLE: ctypes.pointer(ctypes.c_float(1.0)), _DOUBLE: ctypes.pointer(ctypes.c_double(1.0))}


WORTH_A_THREAD = 256
"""Size m from which factorisations are faster in threads than one after the other."""
_BLOCK = 48
"""Least number of columns in a block of a product."""
_SMALLEST_HALVED = 64
"""Size up to which LAPACK inverts a triangular matrix as a whole."""
_LARGEST_JITTER = 1e-2
"""Largest relative jitter with which a Cholesky decomposition is attempted."""
_NOT_POSITIVE = (
    "a covariance or a precision is not positive definite, or not finite; try tighter kernel bounds, "
    'fewer inducing points, scaling="standard", or weights that differ less'
)


def cholesky(A: Array) -> Array:
    """Lower Cholesky factor of A [m, m]; raises `NumericalError` if A is not positive definite."""
    return np.tril(cholesky_in_place(np.array(A, dtype=np.float64, order="C")))


def cholesky_in_place(A: Array) -> Array:
    """Lower Cholesky factor in place of A [m, m] (float64, C order); the upper triangle is undefined."""
    L = cholesky_factor(A)
    # A value in A that is not finite makes the diagonal of L so.
    if L is None or not np.isfinite(L.diagonal()).all():
        raise NumericalError(_NOT_POSITIVE)
    return L


def solved_by_cholesky(L: Array, b: Array) -> Array:
    """(LLᵀ)⁻¹b for b [m] and the lower triangle of L [m, m], best in Fortran order."""
    return np.asarray(blas.dtrsv(L, blas.dtrsv(L, b, lower=1), lower=1, trans=1))


def inverse_lower(L: Array) -> Array:
    """Inverse of the lower triangle of L [m, m]; lower triangular itself, and in C order.

    Computed by halves, [[A, 0], [C, D]]⁻¹ = [[A⁻¹, 0], [−D⁻¹CA⁻¹, D⁻¹]]: nearly all of the work is
    products. These are faster than LAPACK's ``trtri`` and, unlike SciPy's wrapper of it, release the
    interpreter lock.
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
            raise NumericalError(_NOT_POSITIVE)
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


def jittered_cholesky(K: Array, jitter: float) -> tuple[Array, float]:
    """Cholesky factor of K + ε·mean(diag K)·I, for the first ε = jitter·10ᵏ that succeeds.

    Returns the factor, of which only the lower triangle is defined, and the ε that was used.
    """
    scale = float(K.trace()) / len(K)
    if np.isfinite(scale) and scale > 0:
        while jitter <= _LARGEST_JITTER:
            try:
                jittered = K.copy()
                add_to_diagonal(jittered, jitter * scale)
                return cholesky_in_place(jittered), jitter
            except NumericalError:
                jitter *= 10.0
    raise NumericalError(
        f"the covariance of the {len(K)} inducing points is not positive definite, even with a "
        f"relative jitter of {_LARGEST_JITTER:g}; try fewer or more distinct inducing_points, tighter "
        'kernel bounds, or scaling="standard"'
    )


@lru_cache(maxsize=64)
def _column_blocks(m: int) -> tuple[tuple[int, int], ...]:
    n_blocks = min(5, max(1, m // _BLOCK))
    edges = [round(m * k / n_blocks) for k in range(n_blocks + 1)]
    return tuple(pairwise(edges))


@lru_cache(maxsize=16)
def is_lower(m: int) -> NDArray[np.bool_]:
    """Mask [m, m] of the lower triangle."""
    return np.tri(m, dtype=bool)


def add_to_diagonal(A: Array, values: float | Array) -> None:
    """Add a number, or an array [m], to the diagonal of A [m, m], in place."""
    diagonal = np.einsum("ii->i", A)  # a view, at half the cost of `A.flat`
    diagonal += values


def row_dots(A: Array, B: Array) -> Array:
    """Σ_j A_ij B_ij [n], in float64, for A and B [n, m]."""
    return np.asarray(np.einsum("ij,ij->i", A, B), dtype=np.float64)


def stacked(arrays: Sequence[Array]) -> Array:
    """Stack arrays along a new first axis; a single one is not copied."""
    return arrays[0][None] if len(arrays) == 1 else np.stack(arrays)
