"""Export a fitted classifier, with its preprocessing, as one ONNX model."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from cavity.data.preprocess import TablePreprocessor
from cavity.export.onnx.graph import Graph, Value
from cavity.export.onnx.model import LatentMoments, latent_moments, probabilities
from cavity.export.onnx.preprocessing import needs_float64, table_features, transformed
from cavity.files import written_atomically
from cavity.gp.model import Model
from cavity.inference.fitted import FittedClassifier, names_of_features
from cavity.typing import AnyArray, AnyDtype
from cavity.version import __version__

if TYPE_CHECKING:
    from onnx import ModelProto

OUTPUTS = ("label", "probabilities", "latent_mean", "latent_variance")
"""Names of the outputs of the graph."""


Step: TypeAlias = BaseEstimator | str | None
"""A step of a scikit-learn pipeline before the classifier; a string or None changes nothing."""


class InputLayout(NamedTuple):
    """Names, number and type of the inputs of the graph."""

    names: list[str] | None
    """A name for each column, or None for one matrix "X"."""
    n_columns: int
    dtype: AnyDtype
    rows: int | str
    """Number of rows of a call, or the name of that dimension if it is open."""


def split_off_classifier(estimator: BaseEstimator) -> tuple[list[Step], FittedClassifier]:
    """Split an estimator into the steps before the classifier and the fitted classifier."""
    check_is_fitted(estimator)
    if isinstance(estimator, Pipeline):
        *before, classifier = (step for _, step in estimator.steps)
    elif isinstance(vars(estimator).get("preprocessor_"), TablePreprocessor):
        before, classifier = [estimator.preprocessor_], estimator.estimator_
    else:
        before, classifier = [], estimator
    if not isinstance(vars(classifier).get("model_"), Model):
        raise TypeError(
            f"{type(classifier).__name__} cannot be exported; pass a fitted SEPClassifier, "
            "SVIClassifier or GFITCClassifier, a Pipeline that ends in one, or a fitted TableClassifier"
        )
    return before, classifier


def input_layout(
    before: list[Step],
    classifier: FittedClassifier,
    inputs: str | None,
    input_dtype: str | None,
    batch: int | None,
) -> InputLayout:
    """Check the options of `to_onnx` and work out the inputs of the graph."""
    if inputs not in (None, "matrix", "columns"):
        raise ValueError(f'inputs={inputs!r} is not an option; use "matrix" or "columns"')
    if input_dtype not in (None, "float32", "float64"):
        raise ValueError(f'input_dtype={input_dtype!r} is not an option; use "float32" or "float64"')
    if batch is not None and (not isinstance(batch, int) or batch < 1):
        raise ValueError(f"batch={batch!r} must be a whole number of rows, 1 or more, or None")
    rows: int | str = "N" if batch is None else batch
    if before and isinstance(before[0], TablePreprocessor):
        if inputs == "matrix":
            raise ValueError('inputs="matrix" does not go with a table; its columns are the inputs')
        columns = list(before[0].columns_)
        check_names(columns)
        dtype = input_dtype or ("float64" if needs_float64(before[0]) else "float32")
        return InputLayout(columns, len(columns), np.dtype(dtype), rows)
    steps = [step for step in before if isinstance(step, BaseEstimator)]
    first = steps[0] if steps else classifier
    d = int(first.n_features_in_)
    names = None
    if inputs == "columns":
        names = names_of_features(first)
        check_names(names)
    return InputLayout(names, d, np.dtype(input_dtype or "float32"), rows)


def check_names(names: list[str]) -> None:
    """Refuse column names that the graph uses itself."""
    for name in names:
        if name in OUTPUTS or name.startswith("_") or not name:
            raise ValueError(
                f"feature {name!r} has the name of something inside the graph; rename the column, or "
                'use inputs="matrix"'
            )


def preprocessed(graph: Graph, before: list[Step], layout: InputLayout) -> Value:
    """Add the inputs and the preprocessing to the graph; returns rows [N, d] in float64."""
    rows, dtype = layout.rows, layout.dtype
    if before and isinstance(before[0], TablePreprocessor):
        return table_features(graph, before[0], dtype, rows)
    if layout.names is None:
        X = graph.input("X", dtype, [rows, layout.n_columns])
    else:
        X = graph.concat([graph.input(name, dtype, [rows, 1]) for name in layout.names])
    X = X.cast(np.float64)
    for step in before:
        X = transformed(step, X)
    return X


def to_onnx(
    estimator: BaseEstimator,
    path: str | PathLike[str] | None = None,
    *,
    inputs: str | None = None,
    input_dtype: str | None = None,
    batch: int | None = None,
) -> ModelProto:
    """Export a fitted classifier as an ONNX model, and write it to `path` if there is one.

    Standardisation, kernel and probabilities are inside the graph, computed in float64: in ONNX Runtime
    the probabilities are those of `predict_proba` to 1e-5 or better (for three classes or more, with a
    kernel variance of up to 30,000).

    Parameters
    ----------
    estimator
        A fitted classifier of this package; a scikit-learn Pipeline of StandardScaler, MinMaxScaler,
        MaxAbsScaler and SimpleImputer that ends in one; or a fitted `TableClassifier`.
    path
        File to write.
    inputs : {"matrix", "columns"} or None
        One input "X" [N, d], the default, or one input [N, 1] for each feature, under its name. A table
        always has its columns as inputs: floats (NaN where missing), strings ("" where missing), and
        dates as int64 microseconds since 1970 (the smallest integer where missing).
    input_dtype : {"float32", "float64"} or None
        Type of the inputs and of the numeric outputs. None is float32, or for a table the type that its
        columns need. Columns with a large offset need float64.
    batch : int or None
        Number of rows of a call; None leaves it open.

    Returns
    -------
    onnx.ModelProto
        With the outputs `label` [N], `probabilities` [N, C] in the order of `classes_`, `latent_mean`
        and `latent_variance` ([N] for two classes, [N, C] for more).

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from cavity import SEPClassifier
    >>> X, y = make_moons(200, noise=0.2, random_state=0)
    >>> model = SEPClassifier(n_inducing=20, random_state=0).fit(X, y)
    >>> [output.name for output in to_onnx(model).graph.output]
    ['label', 'probabilities', 'latent_mean', 'latent_variance']
    """
    before, classifier = split_off_classifier(estimator)
    layout = input_layout(before, classifier, inputs, input_dtype, batch)
    graph = Graph()
    X = preprocessed(graph, before, layout)
    fitted = classifier.model_
    latents = latent_moments(fitted, X)
    scale = fitted.inverse_temperature**2 * max(1.0, fitted.residual_variance_scale)
    largest = scale * float(np.max(fitted.kernel.diag(fitted.Z)))
    p = probabilities(fitted.likelihood, *latents, largest)
    _outputs(graph, classifier, np.asarray(estimator.classes_), p, latents, layout)
    model = graph.model(f"{type(classifier).__name__}, exported by cavity", _metadata(classifier))
    if path is not None:
        with written_atomically(path) as file:
            file.write(model.SerializeToString())
    return model


def _outputs(
    graph: Graph,
    classifier: FittedClassifier,
    classes: AnyArray,
    p: Value,
    latents: LatentMoments,
    layout: InputLayout,
) -> None:
    if classes.dtype.kind in "iu":
        classes = classes.astype(np.int64)
    elif classes.dtype.kind in "OUS":
        classes = np.array([str(label) for label in classes], dtype=object)
    n_latents = len(classifier.model_.posterior.mean)
    if n_latents == 1:  # the sign tells the classes apart where their probabilities round to one half
        codes = (latents.mean > 0.0).flat().cast(np.int64)
    else:
        codes = p.op("ArgMax", axis=1, keepdims=0)
    dtype, rows = layout.dtype, layout.rows
    graph.output(graph.op("Gather", classes, codes), OUTPUTS[0], classes.dtype, [rows])
    graph.output(p.cast(dtype), OUTPUTS[1], dtype, [rows, len(classes)])
    for value, name in zip(latents, OUTPUTS[2:], strict=True):
        if n_latents == 1:
            graph.output(value.flat().cast(dtype), name, dtype, [rows])
        else:
            graph.output(value.cast(dtype), name, dtype, [rows, n_latents])


def _metadata(classifier: FittedClassifier) -> dict[str, str]:
    return {
        "cavity_version": __version__,
        "classifier": type(classifier).__name__,
        "kernel": str(classifier.kernel_),
        "classes": ", ".join(map(str, classifier.classes_)),
    }
