"""Triangular products by BLAS and LAPACK themselves, with the interpreter lock released.

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
    size, info = ctypes.c_int(len(L)), ctypes.c_int()
    by_reference = ctypes.byref(size)
    _LAUUM[half.dtype](b"U", by_reference, half.ctypes.data, by_reference, ctypes.byref(info))
    gram: Array = half + half.T
    gram.flat[:: len(L) + 1] *= 0.5
    return gram


def _multiplied(B: Array, L: Array, transposed: bytes) -> Array:
    """B L, or B Lᵀ."""
    out, L = np.array(B, order="C"), np.ascontiguousarray(L)
    if out.dtype != L.dtype or out.shape[1:] != L.shape[:1] or L.shape != L.shape[::-1]:
        raise ValueError(f"{B.dtype}{B.shape} times {L.dtype}{L.shape} is no triangular product")
    if len(out) == 0:
        return out
    n, m = ctypes.c_int(len(out)), ctypes.c_int(len(L))
    _TRMM[out.dtype](
        b"L", b"U", transposed, b"N", ctypes.byref(m), ctypes.byref(n), _ONE[out.dtype],
        L.ctypes.data, ctypes.byref(m), out.ctypes.data, ctypes.byref(m),
    )  # fmt: skip
    return out


def _routine(module: Any, name: str, n_arguments: int) -> Callable[..., None]:
    """A routine of SciPy's BLAS or LAPACK by name; all of its arguments are pointers."""
    api, capsule = ctypes.pythonapi, module.__pyx_capi__[name]
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    address = api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule))
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * n_arguments)(address)


_SINGLE, _DOUBLE = np.dtype(np.float32), np.dtype(np.float64)
_TRMM = {_SINGLE: _routine(cython_blas, "strmm", 11), _DOUBLE: _routine(cython_blas, "dtrmm", 11)}
_LAUUM = {_SINGLE: _routine(cython_lapack, "slauum", 5), _DOUBLE: _routine(cython_lapack, "dlauum", 5)}
_ONE = {_SINGLE: ctypes.pointer(ctypes.c_float(1.0)), _DOUBLE: ctypes.pointer(ctypes.c_double(1.0))}
