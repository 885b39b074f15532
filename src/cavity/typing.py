"""Shared type aliases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

AnyArray: TypeAlias = NDArray[Any]
"""An array of any dtype: labels as the user gave them, names, or rows not converted yet."""

AnyDtype: TypeAlias = "np.dtype[Any]"
"""The dtype of an `AnyArray`."""

ArrayOrSparse: TypeAlias = Any
"""[n, d]: an array of any real dtype, or a SciPy sparse matrix."""

InputRows: TypeAlias = Any
"""Rows as a user may give them: array, sparse matrix, data frame, Arrow table, path or `Source`."""

InputLabels: TypeAlias = Any
"""Labels as a user may give them: an array, a series, the name of a column, or None."""

InputWeights: TypeAlias = Any
"""Weights of rows as a user may give them: an array, a series, the name of a column, or None."""

InputOffset: TypeAlias = Any
"""Latent offsets of rows as a user may give them: an array [n] or [n, C], or None."""

ClassWeight: TypeAlias = "Mapping[Any, float] | str | None"
"""The parameter `class_weight`: a factor by class, "balanced", or None."""

JsonObject: TypeAlias = dict[str, Any]
"""A dictionary of plain values by name, ready for JSON."""

RandomSeed: TypeAlias = "int | np.random.RandomState | None"
"""The parameter `random_state`, as in scikit-learn."""

FeatureNames: TypeAlias = "Sequence[str] | AnyArray | None"
"""Names of the features as a user may give them; None leaves them to the estimator."""
