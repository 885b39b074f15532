"""What goes into a graph, and the preprocessing that makes rows of it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from cavity.estimators.base import SparseGPClassifier
from cavity.onnx.graph import Graph, Value
from cavity.onnx.steps import transformed
from cavity.onnx.tables import is_table_preprocessor, table_features

OUTPUTS = ("label", "probabilities", "latent_mean", "latent_variance")


class InputLayout(NamedTuple):
    """Names, type and number of the inputs."""

    names: list[str] | None
    """A name for each column, or None for one matrix "X"."""
    n_columns: int
    dtype: np.dtype[Any]
    rows: int | str
    """Number of rows of a call, or what to call it if it is open."""


def split_off_classifier(estimator: Any) -> tuple[list[Any], SparseGPClassifier]:
    """The steps before the classifier, and the classifier itself, fitted."""
    steps = [estimator]
    if isinstance(estimator, Pipeline):
        steps = [step for _, step in estimator.steps]
    elif is_table_preprocessor(getattr(estimator, "preprocessor_", None)):
        steps = [estimator.preprocessor_, estimator.classifier_]
    *before, classifier = steps
    if not isinstance(classifier, SparseGPClassifier):
        raise TypeError(
            f"{type(classifier).__name__} cannot be exported; pass a fitted SEPClassifier, "
            "SVIClassifier or GFITCClassifier, a Pipeline that ends in one, or a fitted TableClassifier"
        )
    check_is_fitted(classifier)
    return before, classifier


def input_layout(
    before: list[Any],
    classifier: SparseGPClassifier,
    inputs: str | None,
    input_dtype: str | None,
    batch: int | None,
) -> InputLayout:
    """What `to_onnx` was asked for, judged."""
    if inputs not in (None, "matrix", "columns"):
        raise ValueError(f'inputs={inputs!r} is not an option; use "matrix" or "columns"')
    if input_dtype not in (None, "float32", "float64"):
        raise ValueError(f'input_dtype={input_dtype!r} is not an option; use "float32" or "float64"')
    if batch is not None and (not isinstance(batch, int) or batch < 1):
        raise ValueError(f"batch={batch!r} must be a whole number of rows, 1 or more, or None")
    rows: int | str = "N" if batch is None else batch
    if before and is_table_preprocessor(before[0]):
        if inputs == "matrix":
            raise ValueError('inputs="matrix" does not go with a table; its columns are the inputs')
        columns = list(before[0].columns_)
        check_names(columns)
        return InputLayout(columns, len(columns), np.dtype(input_dtype or before[0].dtype_), rows)
    first = next(step for step in [*before, classifier] if hasattr(step, "n_features_in_"))
    d = int(first.n_features_in_)
    names = None
    if inputs == "columns":
        names = [str(n) for n in getattr(first, "feature_names_in_", [f"x{j}" for j in range(d)])]
        check_names(names)
    return InputLayout(names, d, np.dtype(input_dtype or "float32"), rows)


def check_names(names: list[str]) -> None:
    """Refuse names of columns that the graph itself uses."""
    for name in names:
        if name in OUTPUTS or name.startswith("_") or not name:
            raise ValueError(
                f"feature {name!r} has the name of something inside the graph; rename the column, or "
                'use inputs="matrix"'
            )


def preprocessed(graph: Graph, before: list[Any], layout: InputLayout) -> Value:
    """The rows [N, d] in float64 that the classifier takes."""
    rows, dtype = layout.rows, layout.dtype
    if before and is_table_preprocessor(before[0]):
        return table_features(graph, before[0], dtype, rows)
    if layout.names is None:
        X = graph.input("X", dtype, [rows, layout.n_columns])
    else:
        X = graph.concat([graph.input(name, dtype, [rows, 1]) for name in layout.names])
    X = X.cast(np.float64)
    for step in before:
        X = transformed(step, X)
    return X
