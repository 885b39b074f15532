"""Checks of what a user passes: parameters, rows, labels and inducing points."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from numbers import Integral
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, is_classifier
from sklearn.gaussian_process.kernels import Kernel
from sklearn.utils.validation import validate_data

from cavity.data import Source
from cavity.data.arrays import ArraySource
from cavity.data.labels import require_one_kind, whole_labels
from cavity.data.opening import (
    booleans_as_integers,
    described_source,
    open_labelled_rows,
    weighted_arrays,
)
from cavity.data.source import ClassWeightedSource, RawRows, with_offset
from cavity.data.weights import validated_sample_weight
from cavity.errors import SourceError
from cavity.inference.config import TrainingConfig
from cavity.inference.config_checks import (
    AUTO,
    NONE,
    SETTABLE,
    Condition,
    any_of,
    check_fields,
    check_value,
    is_flag,
    number_in,
    one_of,
    whole_from,
)
from cavity.text import listed
from cavity.typing import AnyArray, Array, InputLabels, InputOffset, InputRows, InputWeights

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
) -> tuple[Source, AnyArray]:
    """The source of rows that X and y mean, weighted, and the classes [C] behind its label codes."""

    def validate(X: InputRows, y: InputLabels) -> tuple[InputRows, AnyArray]:
        _refuse_stream(estimator, X)
        X, y = checked_arrays(estimator, X, y, reset=True)
        return X, y

    rows = open_labelled_rows(
        X, y, sample_weight, class_weight=estimator.class_weight, validate=validate
    )
    if not rows.were_arrays:
        estimator.n_features_in_ = rows.source.n_features
        if rows.source.feature_names is not None:
            estimator.feature_names_in_ = np.asarray(rows.source.feature_names, dtype=object)
        else:  # those of an earlier fit are not these columns'
            estimator.__dict__.pop("feature_names_in_", None)
    return rows.source, rows.classes


def validation_rows(
    estimator: SparseGPClassifier, X: InputRows, y: InputLabels, sample_weight: InputWeights
) -> RawRows | None:
    """The user's own validation rows with label codes and weights, if any; the classes are known.

    X may also be an `ArraySource` of rows that were checked, which has its own labels and weights.
    """
    if isinstance(X, ArraySource) and X.is_checked:
        assert X.labels is not None
        labels = estimator.classes_[X.labels]
        source, _ = weighted_arrays(X.X, labels, X.weight, estimator.class_weight, estimator.classes_)
        return source.take(np.arange(source.n_rows))
    if X is None or y is None:
        given = {"X_val": X, "y_val": y, "sample_weight_val": sample_weight}
        names = [name for name, value in given.items() if value is not None]
        if names:
            raise ValueError(f"{' and '.join(names)} without X_val and y_val; pass both, or neither")
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
    rows = source.source if isinstance(source, ClassWeightedSource) else source
    if not isinstance(rows, ArraySource):
        raise SourceError(
            f"offset was passed along with rows of a {type(rows).__name__}; offsets are for rows in an "
            "array: read the rows into one, or use mean_function"
        )
    values = validated_offset(offset, rows.X.shape[0], n_classes)
    return with_offset(source, values if rows.rows is None else values[rows.rows])


def validated_offset(offset: InputOffset, n_rows: int, n_classes: int) -> Array:
    """A user's latent offsets as an array [n, L], finite.

    >>> validated_offset([0.5, -1], 2, n_classes=2).shape
    (2, 1)
    """
    shape = (n_rows,) if n_classes == 2 else (n_rows, n_classes)
    try:
        values = np.asarray(offset, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"offset={offset!r:.60} is not an array of numbers") from error
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


def _refuse_stream(estimator: SparseGPClassifier, X: InputRows) -> None:
    """Raise for rows that can be read only once."""
    if not is_stream(X):
        return
    way_out = "read its rows first"
    if hasattr(estimator, "partial_fit"):
        way_out = "pass its chunks to partial_fit one after the other"
    raise TypeError(
        f"X is a {type(X).__name__}, which can be read once only, and fit goes over its rows many "
        f"times: {way_out}; rows in a file or beyond memory are a `cavity.data.Source`"
    )


def validated_inducing_points(Z: ArrayLike | None, n_features: int) -> Array | None:
    """A user's own inducing points [m, d], if any."""
    if Z is None:
        return None
    points = np.array(Z, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != n_features or len(points) == 0:
        raise ValueError(
            f"inducing_points has shape {points.shape}; it must be (m, {n_features}) with m ≥ 1, one "
            "row a point in the units of X"
        )
    if not np.isfinite(points).all():
        raise ValueError("inducing_points has NaN or infinite entries; drop or impute those rows")
    return points


def check_common_parameters(estimator: SparseGPClassifier) -> None:
    """Raise for parameters that are not fields of the configuration and have impossible values."""
    validated_kernel(estimator.kernel)
    for name, value in estimator.get_params(deep=False).items():
        if name in _CONDITIONS:
            check_value(name, value, _CONDITIONS[name])


def check_config(estimator: SparseGPClassifier, fields: Mapping[str, object]) -> None:
    """Raise for fields of the configuration with impossible values, or that are set twice.

    fields: those that the estimator's own parameters set.
    """
    check_fields(fields)
    if isinstance(estimator.config, TrainingConfig):
        _check_whole_config(estimator)
    elif estimator.config is not None:
        _check_further_fields(estimator, estimator.config, fields)


def _check_further_fields(
    estimator: SparseGPClassifier, config: Mapping[str, object], fields: Mapping[str, object]
) -> None:
    """Raise for fields that cannot be set, or that have a parameter of their own."""
    check_fields(config)
    taken = {*fields, "n_inducing", "inducing_init"}
    kind = type(estimator)
    parameters = inspect.signature(kind).parameters
    for field in config:
        if field in SETTABLE and field not in taken:
            continue
        names = [name for name in (field, _OTHER_NAMES.get(field)) if name in parameters]
        way_out = f"set {names[0]} of {kind.__name__} instead" if names else "leave it out"
        raise ValueError(f"config sets {field!r}; {way_out}")


def _check_whole_config(estimator: SparseGPClassifier) -> None:
    """Raise for parameters that are set although a whole configuration sets them too."""
    parameters = inspect.signature(type(estimator)).parameters
    own = (*estimator._config_fields, "n_inducing", "leaves", "max_iter")
    names = [name for name in own if name in parameters]
    if isinstance(estimator.inducing_points, str):
        names.append("inducing_points")
    given = estimator.get_params(deep=False)
    for name in names:
        if given[name] != parameters[name].default:
            raise ValueError(
                f"{name}={given[name]!r} and a whole TrainingConfig, which sets it too; "
                "leave one of them out, or change the configuration by dataclasses.replace"
            )


def _is_points(value: object) -> bool:
    return value in POINT_STARTS if isinstance(value, str) else value is not None


def _is_mean_function(value: object) -> bool:
    """Whether a parameter is None, "linear" or a classifier as scikit-learn has them."""
    if value is None or isinstance(value, str):
        return value in (None, "linear")
    scored = hasattr(value, "decision_function") or hasattr(value, "predict_proba")
    return isinstance(value, BaseEstimator) and is_classifier(value) and scored


def routes(value: object) -> bool:
    """Whether a value can say which leaf a row falls into."""
    return not isinstance(value, type) and (hasattr(value, "apply") or hasattr(value, "predict"))


def _are_leaf_numbers(value: object) -> bool:
    """Whether a value is an array [n] of numbers or words, none of them missing."""
    if isinstance(value, str) or not hasattr(value, "__len__"):
        return False
    numbers = np.asarray(value)
    if numbers.dtype.kind == "O":
        return numbers.ndim == 1 and all(isinstance(one, str) for one in numbers)
    is_missing = numbers.dtype.kind == "f" and np.isnan(numbers).any()
    return numbers.ndim == 1 and numbers.dtype.kind in "biufUS" and not is_missing


def _is_class_weight(value: object) -> bool:
    return isinstance(value, Mapping) or one_of("balanced", None)(value)


def _is_instance(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kinds)


_OTHER_NAMES = {
    "inducing_init": "inducing_points",
    "max_epochs": "max_iter",
    "n_leaves": "leaves",
    "seed": "random_state",
}
"""Parameters of classifiers that set a field of another name."""
POINT_STARTS = ("kmeans", "random", "greedy")
_CONDITIONS: dict[str, Condition] = {
    "n_inducing": (any_of(whole_from(1), AUTO), 'a whole number from 1, or "auto"'),
    "inducing_points": (_is_points, '"kmeans", "random", "greedy" or an array [m, d]'),
    "leaves": (
        any_of(whole_from(1), AUTO, NONE, routes, _are_leaf_numbers),
        'a whole number from 1, "auto", a fitted estimator with apply or predict, an array [n] with the '
        "number or name of the leaf of each row, none of them missing, or None",
    ),
    "max_iter": (whole_from(1), "a whole number from 1"),
    "mean_function": (_is_mean_function, 'None, "linear" or a classifier as scikit-learn has them'),
    "class_weight": (_is_class_weight, 'a dict, "balanced" or None'),
    "config": (
        any_of(NONE, _is_instance(dict, TrainingConfig)),
        "a dict, a cavity.inference.TrainingConfig or None",
    ),
    "warm_start": (is_flag, "True or False"),
    "window_size": (any_of(number_in(0, open_left=True), NONE), "a positive number or None"),
    "checkpoint": (any_of(NONE, _is_instance(str, PathLike)), "a path or None"),
    "random_state": (
        any_of(whole_from(0), NONE, _is_instance(np.random.RandomState)),
        "a whole number from 0, a numpy RandomState or None",
    ),
    "n_jobs": (
        lambda value: value is None or (isinstance(value, Integral) and value != 0),
        "a positive number, -1 for all cores, or None",
    ),
    "verbose": (any_of(whole_from(0), is_flag), "a whole number from 0"),
}


def validated_kernel(kernel: object) -> None:
    """Raise for a kernel that is not a scikit-learn kernel."""
    if kernel is not None and not isinstance(kernel, Kernel):
        raise TypeError(
            f"kernel={kernel!r} is a {type(kernel).__name__}; pass a kernel object of "
            "sklearn.gaussian_process.kernels, for instance ConstantKernel(1.0) * RBF(1.0), or None"
        )
