"""Checks of the rows that a user passes: features, labels, weights, offsets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import validate_data

from cavity.data import Source
from cavity.data.arrays import ArraySource
from cavity.data.labels import require_one_kind, whole_labels
from cavity.data.opening import (
    OpenedRows,
    described_source,
    open_source,
    rows_of_arrays,
    rows_of_source,
    rows_that_count,
    weighted_arrays,
)
from cavity.data.source import RawRows, booleans_as_integers, with_offset
from cavity.data.weights import validated_sample_weight
from cavity.errors import SourceError
from cavity.text import listed
from cavity.typing import Array, InputLabels, InputOffset, InputRows, InputWeights

if TYPE_CHECKING:
    from cavity.estimators.base import SparseGPClassifier


def validated_rows(estimator: SparseGPClassifier, X: InputRows) -> InputRows:
    """X as a dense array or CSR matrix in its own numeric dtype, finite, as wide as in the fit."""
    return booleans_as_integers(checked_arrays(estimator, X, reset=False))


def checked_arrays(estimator: SparseGPClassifier, X: InputRows, *y: InputLabels, reset: bool) -> Any:
    """X, or X and y, as arrays of numbers that scikit-learn has found finite."""
    try:
        # It looks for infinite values by a sum, which may overflow.
        with np.errstate(all="ignore"):
            checked = validate_data(estimator, X, *y, reset=reset, accept_sparse="csr", dtype="numeric")
    except (TypeError, ValueError) as error:
        _require_numbers(X, error)
        if "X contains NaN" in str(error):  # scikit-learn would recommend other classifiers
            raise SourceError(
                "X contains NaN; use TableClassifier, which takes missing cells, or impute them, for "
                "instance with sklearn.impute.SimpleImputer"
            ) from error
        raise
    if (checked[0] if y else checked).dtype.kind == "O":  # categories of pandas come as they are
        _require_numbers(X)
    return checked


def _require_numbers(X: InputRows, cause: Exception | None = None) -> None:
    """Raise if a data frame or array has columns that are not numbers."""
    strange = _columns_without_numbers(X)
    if strange:
        raise SourceError(
            f"X has columns that are not numbers: {listed(strange)}; use TableClassifier, which takes "
            "strings, categories, dates and missing cells, or encode them as numbers"
        ) from cause


def _columns_without_numbers(X: InputRows) -> list[str]:
    """Names of the columns of a data frame, or numbers of those of an array, that are not numbers."""
    named = hasattr(X, "columns") and hasattr(X, "dtypes")
    if not named and not (isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "OUS"):
        return []
    names = list(X.columns) if named else range(X.shape[1])
    return [str(name) for name in names if not _are_numbers(X[name] if named else X[:, name])]


def _are_numbers(column: InputLabels) -> bool:
    """Whether a column has numbers, or strings and objects that are all numbers."""
    values = np.asarray(column)
    if values.ndim != 1 or values.dtype.kind not in "OUSMm":
        return True
    if values.dtype.kind in "Mm":
        return False
    try:
        values.astype(np.float64)
    except ValueError:
        return False
    except TypeError:  # objects of other kinds, which scikit-learn's own error names
        return True
    return True


def validated_source(
    estimator: SparseGPClassifier, X: InputRows, y: InputLabels, sample_weight: InputWeights
) -> OpenedRows:
    """The rows that X and y mean, weighted; the estimator learns their number and names of features."""
    source = open_source(X, y, sample_weight)
    if source is not None:
        rows = rows_of_source(source, estimator.class_weight)
        estimator._set_features(rows.source)
        return rows
    y = whole_labels(y)
    _refuse_stream(X)
    X, y = checked_arrays(estimator, X, y, reset=True)
    return rows_of_arrays(X, y, sample_weight, estimator.class_weight)


def validation_rows(
    estimator: SparseGPClassifier, X: InputRows, y: InputLabels, sample_weight: InputWeights
) -> RawRows | None:
    """The user's own validation rows with label codes and weights, if any; the classes are known.

    X may also be an `ArraySource` of rows that were checked, which has its own labels and weights.
    """
    if isinstance(X, ArraySource) and X.is_checked:
        source = rows_that_count(X, estimator.class_weight, estimator.classes_)
        return source.take(np.arange(source.n_rows))
    if X is None or y is None:
        given = {"X_val": X, "y_val": y, "sample_weight_val": sample_weight}
        names = [name for name, value in given.items() if value is not None]
        if names:
            missing = [name for name in ("X_val", "y_val") if name not in names]
            raise ValueError(
                f"{' and '.join(names)} without {' and '.join(missing)}; pass both X_val and y_val, or "
                "leave them out"
            )
        return None
    what = described_source(X)
    if what is not None:
        raise TypeError(
            f"X_val is {what}; validation rows are an array, data frame or sparse matrix: read them, "
            "and pass these"
        )
    try:
        X, y = checked_arrays(estimator, X, whole_labels(y), reset=False)
    except ValueError as error:
        raise ValueError(f"X_val or y_val: {error}") from error
    require_one_kind(y, "y_val")
    unknown = np.setdiff1d(y, estimator.classes_)
    if len(unknown):
        raise ValueError(
            f"y_val has the label {unknown.tolist()[0]!r}, but the classes of y are "
            f"{estimator.classes_.tolist()}; drop these rows"
        )
    weight = validated_sample_weight(sample_weight, len(y), name="sample_weight_val")
    source, _ = weighted_arrays(
        booleans_as_integers(X), y, weight, estimator.class_weight, estimator.classes_
    )
    return source.take(np.arange(source.n_rows))


def source_with_offset(source: Source, offset: InputOffset, n_classes: int) -> Source:
    """The source with a user's latent offsets: [n] for two classes, [n, C] for more."""
    if not isinstance(source, ArraySource):
        raise SourceError(
            "offset was passed along with rows that are not in an array; offsets are for rows in an "
            "array: read the rows into one, or use mean_function"
        )
    values = validated_offset(offset, source.X.shape[0], n_classes)
    return with_offset(source, values if source.rows is None else values[source.rows])


def validated_offset(offset: InputOffset, n_rows: int, n_classes: int) -> Array:
    """A user's latent offsets as an array [n, L], finite.

    >>> validated_offset([0.5, -1], 2, n_classes=2).shape
    (2, 1)
    """
    shape = (n_rows,) if n_classes == 2 else (n_rows, n_classes)
    try:
        values = np.asarray(offset, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"offset={offset!r:.60} is not an array of numbers; pass one number a row, or one for each "
            "row and class"
        ) from error
    if values.shape != shape:
        raise ValueError(
            f"offset has shape {values.shape}, and must have {shape} for {n_rows} rows and {n_classes} "
            "classes: one number a row for two classes, and one for each row and class for more"
        )
    finite = np.isfinite(values)
    if not finite.all():
        row = int(np.argwhere(~finite)[0][0])
        raise ValueError(f"offset of row {row} is not finite; replace it, or leave the row out")
    return values.reshape(n_rows, -1)


def is_stream(X: InputRows) -> bool:
    """Whether rows can be read only once, such as those of a generator of chunks."""
    return isinstance(X, Iterator) and not hasattr(X, "__array__")


def _refuse_stream(X: InputRows) -> None:
    """Raise for rows that can be read only once."""
    if is_stream(X):
        raise TypeError(
            f"X is a {type(X).__name__}, which can be read once only, and fit goes over its rows many "
            "times: read its rows first, or pass its chunks to partial_fit one after the other, which "
            "SEPClassifier has; rows in a file or beyond memory are a `cavity.data.Source`"
        )
