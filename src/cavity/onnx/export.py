"""A fitted classifier, with what comes before it, as one ONNX model."""

from __future__ import annotations

from os import PathLike
from typing import Any, NamedTuple

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

import cavity
from cavity.estimators.base import SparseGPClassifier
from cavity.files import written_atomically
from cavity.model import Model
from cavity.onnx.graph import Graph, Value
from cavity.onnx.kernels import covariances
from cavity.onnx.likelihoods import probabilities
from cavity.onnx.steps import transformed

OUTPUTS = ("label", "probabilities", "latent_mean", "latent_variance")


def to_onnx(
    estimator: Any,
    path: str | PathLike[str] | None = None,
    *,
    inputs: str = "matrix",
    input_dtype: str = "float32",
    batch: int | None = None,
) -> Any:
    """Export a fitted classifier as an ONNX model, and write it to `path` if there is one.

    Standardisation, kernel and probabilities are inside the graph, computed in float64: in ONNX Runtime
    the probabilities are those of `predict_proba` to 1e-5 or better.

    Parameters
    ----------
    estimator
        A fitted classifier of this package, or a scikit-learn Pipeline of StandardScaler, MinMaxScaler,
        MaxAbsScaler and SimpleImputer that ends in one.
    path
        File to write.
    inputs : {"matrix", "columns"}
        One input "X" [N, d], or one input [N, 1] for each feature, under its name.
    input_dtype : {"float32", "float64"}
        Type of the inputs and of the numbers that come out. Columns with a large offset need float64.
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
    >>> model = SEPClassifier(n_inducing=20, tol=1e-3, random_state=0).fit(X, y)
    >>> [output.name for output in to_onnx(model).graph.output]
    ['label', 'probabilities', 'latent_mean', 'latent_variance']
    """
    _validate(inputs, input_dtype, batch)
    steps, classifier = _split(estimator)
    rows: int | str = "N" if batch is None else batch
    graph = Graph()
    first = next(step for step in [*steps, classifier] if hasattr(step, "n_features_in_"))
    X = _inputs(graph, first, inputs, np.dtype(input_dtype), rows)
    for step in steps:
        X = transformed(step, X)
    latents = latent_moments(classifier.model_, X)
    p = probabilities(classifier.model_.rule, *latents)
    _outputs(graph, classifier, p, latents, np.dtype(input_dtype), rows)
    model = graph.model(f"{type(classifier).__name__}, exported by cavity", _metadata(classifier))
    if path is not None:
        with written_atomically(path) as file:
            file.write(model.SerializeToString())
    return model


class LatentMoments(NamedTuple):
    """Moments of the latent functions, [N, L]."""

    mean: Value
    variance: Value


def latent_moments(model: Model, X: Value) -> LatentMoments:
    """Mean and variance of the latent functions at raw inputs X [N, d]; see `Model.latent_moments`."""
    standardizer, prior, posterior = model.standardizer, model.prior, model.posterior
    if not standardizer.is_identity:
        X = (X - standardizer.mean) * (1.0 / standardizer.scale)
    # Squared distances must stay finite: beyond this bound a row is infinitely far anyway.
    farthest = 1e-4 * float(np.sqrt(np.finfo(model.dtype).max))
    X = X.at_least(-farthest).at_most(farthest)
    cross, diagonal = covariances(model.kernel, X, prior.Z)
    A = cross @ prior.L_inverse.T
    residual = (diagonal - (A * A).sum()).at_least(0.0)
    variances = [(A * (A @ S)).sum().at_least(0.0) for S in posterior.covariance]
    return LatentMoments(A @ posterior.mean.T, X.graph.concat(variances) + residual)


def _validate(inputs: str, input_dtype: str, batch: int | None) -> None:
    if inputs not in ("matrix", "columns"):
        raise ValueError(f'inputs={inputs!r} is not an option; use "matrix" or "columns"')
    if input_dtype not in ("float32", "float64"):
        raise ValueError(f'input_dtype={input_dtype!r} is not an option; use "float32" or "float64"')
    if batch is not None and (not isinstance(batch, int) or batch < 1):
        raise ValueError(f"batch={batch!r} must be a whole number of rows, 1 or more, or None")


def _split(estimator: Any) -> tuple[list[Any], SparseGPClassifier]:
    """Preprocessing steps and the classifier they lead to."""
    steps = [step for _, step in estimator.steps] if isinstance(estimator, Pipeline) else [estimator]
    *before, classifier = steps
    if not isinstance(classifier, SparseGPClassifier):
        raise TypeError(
            f"{type(classifier).__name__} cannot be exported; pass a fitted SEPClassifier, "
            "SVIClassifier or GFITCClassifier, or a Pipeline that ends in one"
        )
    check_is_fitted(classifier)
    return before, classifier


def _inputs(graph: Graph, first: Any, inputs: str, dtype: np.dtype[Any], rows: int | str) -> Value:
    """The rows X [N, d] in float64, as the first step takes them."""
    d = int(first.n_features_in_)
    if inputs == "matrix":
        X = graph.input("X", dtype, [rows, d])
    else:
        names = [str(name) for name in getattr(first, "feature_names_in_", [f"x{j}" for j in range(d)])]
        for name in names:
            if name in OUTPUTS or name.startswith("_"):
                raise ValueError(
                    f"feature {name!r} has the name of something inside the graph; rename the column, "
                    'or use inputs="matrix"'
                )
        X = graph.concat([graph.input(name, dtype, [rows, 1]) for name in names])
    return X.cast(np.float64)


def _outputs(
    graph: Graph,
    classifier: SparseGPClassifier,
    p: Value,
    latents: LatentMoments,
    dtype: np.dtype[Any],
    rows: int | str,
) -> None:
    classes = np.asarray(classifier.classes_)
    if classes.dtype.kind in "iu":
        classes = classes.astype(np.int64)
    elif classes.dtype.kind in "OUS":
        classes = np.array([str(label) for label in classes], dtype=object)
    n_latents = len(classifier.model_.posterior.mean)
    if n_latents == 1:  # the sign tells the classes apart where their probabilities round to one half
        codes = _flat(latents.mean > 0.0).cast(np.int64)
    else:
        codes = p.op("ArgMax", axis=1, keepdims=0)
    graph.output(graph.op("Gather", classes, codes), "label", classes.dtype, [rows])
    graph.output(p.cast(dtype), "probabilities", dtype, [rows, len(classes)])
    for value, name in zip(latents, OUTPUTS[2:], strict=True):
        if n_latents == 1:
            graph.output(_flat(value).cast(dtype), name, dtype, [rows])
        else:
            graph.output(value.cast(dtype), name, dtype, [rows, n_latents])


def _flat(value: Value) -> Value:
    """[N, 1] as [N]."""
    return value.op("Reshape", np.array([-1], dtype=np.int64))


def _metadata(classifier: SparseGPClassifier) -> dict[str, str]:
    return {
        "cavity_version": cavity.__version__,
        "classifier": type(classifier).__name__,
        "kernel": str(classifier.kernel_),
        "classes": ", ".join(map(str, classifier.classes_)),
    }
