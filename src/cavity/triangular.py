"""Triangular factors and products, and outer sums, by LAPACK and BLAS, the interpreter lock released.

NumPy has no name for them, and SciPy's own wrappers keep the lock, so that tiles in threads would wait
for each other. The routines are reached where SciPy offers them to other languages; they want matrices
column by column, as which a lower triangle that lies row by row is its transpose, an upper triangle.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import cython_blas, cython_lapack

from cavity.typing import Array


def times_lower(G: Array, L: Array, *, overwrite: bool = False) -> Array:
    """G L for G [n, m] and lower triangular L [m, m], at half the flops of a product.

    With `overwrite` a G in C order is lost, its memory being that of the result.

    >>> times_lower(np.ones((1, 2)), np.array([[1.0, 0.0], [2.0, 3.0]]))
    array([[3., 3.]])
    """
    return _multiplied(_own(G, overwrite), L, b"L", b"N")


def times_transposed_lower(K: Array, L: Array, *, overwrite: bool = False) -> Array:
    """K Lᵀ for K [n, m] and lower triangular L [m, m], at half the flops of a product.

    With `overwrite` a K in C order is lost, its memory being that of the result.

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
    if not (A.flags.c_contiguous and A.shape == x.shape + y.shape and A.dtype == x.dtype == y.dtype):
        raise ValueError(
            f"{A.dtype}{A.shape} plus {x.dtype}{x.shape} {y.dtype}{y.shape}ᵀ is no outer sum"
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
    m, info = ctypes.c_int(len(L)), ctypes.c_int()
    _LAUUM[half.dtype](b"U", m, half.ctypes.data, m, info)
    gram: Array = half + half.T
    gram.flat[:: len(L) + 1] *= 0.5
    return gram


def cholesky_factor(A: Array) -> Array | None:
    """Lower Cholesky factor of A [m, m], or None if A is not positive definite; A is lost.

    A has float64 in C order, and its upper triangle is read. The factor has Fortran order, and only its
    lower triangle a meaning. LAPACK is a quarter slower the other way round. It does not mind NaN.

    >>> np.tril(cholesky_factor(np.array([[4.0, 2.0], [2.0, 5.0]])))
    array([[2., 0.],
           [1., 2.]])
    """
    m, info = ctypes.c_int(len(A)), ctypes.c_int()
    _POTRF(b"L", m, A.ctypes.data, m, info)
    return A.T if info.value == 0 else None


def _own(B: Array, overwrite: bool = False) -> Array:
    """B in C order, to be written to."""
    return np.ascontiguousarray(B) if overwrite else np.array(B, order="C")


def _multiplied(out: Array, L: Array, side: bytes, transposed: bytes) -> Array:
    """out L or out Lᵀ (side "L": BLAS sees transposes), or Lᵀ out (side "R"), in place."""
    L = np.ascontiguousarray(L)
    inner = out.shape[1:] if side == b"L" else out.shape[:1]
    if out.dtype != L.dtype or out.ndim != 2 or inner != L.shape[:1] or L.shape != L.shape[::-1]:
        raise ValueError(f"{out.dtype}{out.shape} and {L.dtype}{L.shape} have no triangular product")
    if out.size == 0:
        return out
    rows, columns, m = map(ctypes.c_int, (*out.shape, len(L)))
    address, one = out.ctypes.data, _ONE[out.dtype]
    _TRMM[out.dtype](
        side, b"U", transposed, b"N", columns, rows, one, L.ctypes.data, m, address, columns
    )
    return out


def _routine(module: Any, name: str, arguments: str) -> Callable[..., None]:
    """A routine of SciPy's BLAS or LAPACK by name; its arguments by their letters in `_POINTERS`."""
    api, capsule = ctypes.pythonapi, module.__pyx_capi__[name]
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    signature = api.PyCapsule_GetName(capsule)
    n_integers = len(re.findall(rb"\bint \*", signature))
    if n_integers != arguments.count("i"):  # never pass pointers to what is not known
        raise ImportError(f"SciPy's {name} takes {signature.decode()}, not plain integers")
    address = api.PyCapsule_GetPointer(capsule, signature)
    return ctypes.CFUNCTYPE(None, *[_POINTERS[kind] for kind in arguments])(address)


_POINTERS: dict[str, Any] = {
    "c": ctypes.c_char_p,
    "i": ctypes.POINTER(ctypes.c_int),
    "x": ctypes.c_void_p,  # numbers of either precision
}
_TRMM_ARGUMENTS, _LAUUM_ARGUMENTS, _GER_ARGUMENTS = "cccciixxixi", "cixii", "iixxixixi"
_SINGLE, _DOUBLE = np.dtype(np.float32), np.dtype(np.float64)
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
