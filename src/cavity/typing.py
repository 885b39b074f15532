"""Shared type aliases."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.floating[Any]]
"""A real array; shapes are written in the docstring of whatever takes or returns it."""

IntArray: TypeAlias = NDArray[np.integer[Any]]
"""An integer array: label codes or row numbers."""

Dtype: TypeAlias = "np.dtype[np.floating[Any]]"
"""float32 or float64: the precision of a tile."""

FLOAT64: Dtype = np.dtype(np.float64)
