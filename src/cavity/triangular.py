"""Triangular factors and products by LAPACK and BLAS themselves, with the interpreter lock released.

NumPy has no name for them, and SciPy's own wrappers keep the lock, so that tiles in threads would wait
for each other. The routines are reached where SciPy offers them to other languages; they want matrices
column by column, as which a lower triangle that lies row by row is its transpose, an upper triangle.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import cython_blas, cython_lapack

from cavity.typing import Array


def times_lower(G: Array, L: Array) -> Array:
    """G L for G [n, m] and lower triangular L [m, m], at half the flops of a product.

    >>> times_lower(np.ones((1, 2)), np.array([[1.0, 0.0], [2.0, 3.0]]))
    array([[3., 3.]])
    """
    return _multiplied(G, L, b"N")


def times_transposed_lower(K: Array, L: Array) -> Array:
    """K Lᵀ for K [n, m] and lower triangular L [m, m], at half the flops of a product.

    >>> times_transposed_lower(np.ones((1, 2)), np.array([[1.0, 0.0], [2.0, 3.0]]))
    array([[1., 5.]])
    """
    return _multiplied(K, L, b"T")


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

    A has float64 in C order. LAPACK does not mind NaN.

    >>> cholesky_factor(np.array([[4.0, 2.0], [2.0, 5.0]]))
    array([[2., 0.],
           [1., 2.]])
    """
    m, info = ctypes.c_int(len(A)), ctypes.c_int()
    _POTRF(b"U", m, A.ctypes.data, m, info)
    return np.tril(A) if info.value == 0 else None


def _multiplied(B: Array, L: Array, transposed: bytes) -> Array:
    """B L, or B Lᵀ."""
    out, L = np.array(B, order="C"), np.ascontiguousarray(L)
    if out.dtype != L.dtype or out.shape[1:] != L.shape[:1] or L.shape != L.shape[::-1]:
        raise ValueError(f"{B.dtype}{B.shape} times {L.dtype}{L.shape} is no triangular product")
    if len(out) == 0:
        return out
    n, m = ctypes.c_int(len(out)), ctypes.c_int(len(L))
    one = _ONE[out.dtype]
    _TRMM[out.dtype](b"L", b"U", transposed, b"N", m, n, one, L.ctypes.data, m, out.ctypes.data, m)
    return out


def _routine(module: Any, name: str, arguments: str) -> Callable[..., None]:
    """A routine of SciPy's BLAS or LAPACK by name; its arguments by their letters in `_POINTERS`."""
    api, capsule = ctypes.pythonapi, module.__pyx_capi__[name]
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    signature = api.PyCapsule_GetName(capsule)
    if signature.count(b" int *") != arguments.count("i"):  # never pass pointers to what is not known
        raise ImportError(f"SciPy's {name} takes {signature.decode()}, not plain integers")
    address = api.PyCapsule_GetPointer(capsule, signature)
    return ctypes.CFUNCTYPE(None, *[_POINTERS[kind] for kind in arguments])(address)


_POINTERS: dict[str, Any] = {
    "c": ctypes.c_char_p,
    "i": ctypes.POINTER(ctypes.c_int),
    "x": ctypes.c_void_p,  # numbers of either precision
}
_TRMM_ARGUMENTS, _LAUUM_ARGUMENTS = "cccciixxixi", "cixii"
_SINGLE, _DOUBLE = np.dtype(np.float32), np.dtype(np.float64)
_TRMM = {
    _SINGLE: _routine(cython_blas, "strmm", _TRMM_ARGUMENTS),
    _DOUBLE: _routine(cython_blas, "dtrmm", _TRMM_ARGUMENTS),
}
_LAUUM = {
    _SINGLE: _routine(cython_lapack, "slauum", _LAUUM_ARGUMENTS),
    _DOUBLE: _routine(cython_lapack, "dlauum", _LAUUM_ARGUMENTS),
}
_POTRF = _routine(cython_lapack, "dpotrf", _LAUUM_ARGUMENTS)
_ONE = {_SINGLE: ctypes.pointer(ctypes.c_float(1.0)), _DOUBLE: ctypes.pointer(ctypes.c_double(1.0))}
