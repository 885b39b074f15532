"""The one place that turns what a user passes into rows and class codes, or says why it cannot."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import Kernel
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from cavity.typing import Array, IntArray


def validated_rows(estimator: Any, X: Any, *, reset: bool) -> Any:
    """X as a dense array or CSR matrix in its own numeric dtype, finite, of the right width."""
    X = validate_data(estimator, X, reset=reset, accept_sparse="csr", dtype="numeric")
    return X if X.dtype.kind != "b" else X.astype(np.uint8)


def validated_table(estimator: Any, X: Any, y: Any) -> tuple[Any, Array, IntArray]:
    """X, the classes [2] and the class codes [n] of a labelled table."""
    X, y = validate_data(estimator, X, y, accept_sparse="csr", dtype="numeric", multi_output=False)
    check_classification_targets(y)
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"y has one class ({classes[0]!r}); a classifier needs at least two: "
            "check the target column or the filter before it"
        )
    if len(classes) > 2:
        raise ValueError(
            f"Only binary classification is supported. The type of the target is multiclass: y has "
            f"{len(classes)} classes; wrap the estimator in sklearn.multiclass.OneVsRestClassifier"
        )
    if X.dtype.kind == "b":
        X = X.astype(np.uint8)
    return X, classes, codes.astype(np.int8)


def validated_inducing_points(Z: Any, n_features: int) -> Array:
    """A user's own inducing points [m, d]."""
    points = np.array(Z, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != n_features or len(points) == 0:
        raise ValueError(
            f"inducing_points has shape {points.shape}; it must be (m, {n_features}) with m ≥ 1, one "
            "row a point in the units of X"
        )
    if not np.isfinite(points).all():
        raise ValueError("inducing_points has NaN or infinite entries; drop or impute those rows")
    return points


def validated_kernel(kernel: Any) -> None:
    """Refuse what is not a scikit-learn kernel, before any work."""
    if kernel is not None and not isinstance(kernel, Kernel):
        raise TypeError(
            f"kernel={kernel!r} is a {type(kernel).__name__}; pass a kernel object of "
            "sklearn.gaussian_process.kernels, for instance ConstantKernel(1.0) * RBF(1.0), or None"
        )
