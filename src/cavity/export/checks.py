"""Check that the parts of an estimator agree, so that its predictions are numbers.

A file may hold any numbers. Before an estimator is saved, and after it was loaded, these checks make
sure that every record has the types that its class declares, that the shapes of all arrays follow from
the numbers of inducing points, features and classes, and that predictions are finite.
"""

from __future__ import annotations

import types
import warnings
from collections.abc import Sequence
from dataclasses import is_dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, is_classifier
from sklearn.gaussian_process.kernels import Kernel, Sum
from sklearn.pipeline import Pipeline

from cavity.data.cells import COMMA, POINT
from cavity.data.columns import (
    BOOLEAN,
    CATEGORICAL,
    DATE,
    NUMERIC,
    PARTS,
    CategoricalEncoder,
    DateEncoder,
    NumericEncoder,
)
from cavity.data.effects import N_FOLDS, EffectEncoder
from cavity.data.labels import Classes, n_latents
from cavity.data.preprocess import TablePreprocessor
from cavity.data.routing import EstimatorRouting, Routing, TreeRouting
from cavity.data.scaling import Knots, Scaling
from cavity.data.values import DATE_PARTS
from cavity.errors import ModelFileError
from cavity.export.declared_types import agree, check_array, check_attributes, check_records, has_type
from cavity.gp.arrowhead import LocalNaturalParameters, LocalPart
from cavity.gp.mean_function import LinearScore, MeanFunction
from cavity.gp.model import Model
from cavity.gp.posterior import NaturalParameters
from cavity.inference.config import TrainingConfig
from cavity.inference.history import Iteration
from cavity.inference.race_records import Race
from cavity.typing import FLOAT64, Array, Dtype

_PACKAGE = "cavity.estimators."
"""Modules with the estimators that can be saved and loaded."""
_CLASSIFIER: dict[str, object] = {
    "model_": Model,
    "classes_": np.ndarray,
    "n_features_in_": int,
    "config_": TrainingConfig,
    "history_": list[Iteration],
    "loo_log_loss_": float,
    "validation_log_loss_": float,
    "validation_standard_error_": float,
    "n_validation_rows_": int,
    "race_": Race | None,
    "log_marginal_likelihood_value_": float,
    "n_iter_": int,
    "fit_seconds_": float,
    "_weight_seen": float,
    "_centre": np.ndarray | None,
    "_stream": Any,
    "_training": types.NoneType,
}
"""Learned attributes of a classifier and their types."""
_TABLE: dict[str, object] = {
    "preprocessor_": TablePreprocessor,
    "estimator_": BaseEstimator,
    "labels_": Classes,
    "classes_": np.ndarray,
    "target_": str | None,
    "weight_": str | None,
    "fit_seconds_": float,
    "peak_memory_bytes_": int | None,
}
"""Learned attributes of a classifier of tables and their types."""
_PREPROCESSOR: dict[str, object] = {
    "encoders_": list[NumericEncoder | CategoricalEncoder | DateEncoder],
    "notes_": list[str],
    "ignored_": list[str],
    "identifiers_": list[str],
    "effects_": list[EffectEncoder],
    "dtype_": str,
    "drop_features": Sequence[str],
}
"""Attributes of a preprocessor and their types."""


def check_estimator(estimator: BaseEstimator) -> None:
    """Raise `ModelFileError` unless this is a fitted estimator of cavity, or a pipeline around one."""
    classifier = _last_step(estimator) if type(estimator) is Pipeline else estimator
    if not _is_ours(classifier):
        raise ModelFileError(
            f"it is a {type(estimator).__name__}, and only cavity's classifiers, and scikit-learn's "
            "pipelines with one of them as the last step, can be saved and loaded"
        )
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if "preprocessor_" in vars(classifier):
                _check_table(classifier)
            else:
                _check_classifier(classifier)
    except ModelFileError:
        raise
    except Exception as error:  # values of any type can be where numbers should be
        raise ModelFileError(
            f"the parts of its {type(classifier).__name__} do not go together "
            f"({type(error).__name__}: {error!s:.200})"
        ) from error


def _is_ours(estimator: BaseEstimator) -> bool:
    """Return whether this is an estimator of cavity, or of a class derived from one."""
    kinds = type(estimator).__mro__
    return isinstance(estimator, BaseEstimator) and any(
        kind.__module__.startswith(_PACKAGE) for kind in kinds
    )


def _last_step(pipeline: Pipeline) -> Any:
    """Return the last step of a pipeline, whose steps are pairs of a name and an estimator."""
    steps = vars(pipeline).get("steps")
    if not has_type(steps, list[tuple[str, Any]]) or not steps:
        raise ModelFileError("the steps of its pipeline are not pairs of a name and an estimator")
    for _, step in steps[:-1]:
        if not (step is None or step == "passthrough" or hasattr(type(step), "transform")):
            raise ModelFileError(
                f"its pipeline has a step that is no transformer: {type(step).__name__}"
            )
    return steps[-1][1]


def _check_table(table: Any) -> None:
    """Check a classifier of tables: its columns against the inputs of its model, and its classes."""
    check_attributes(table, _TABLE)
    preprocessor, labels, classifier = table.preprocessor_, table.labels_, table.estimator_
    check_attributes(preprocessor, _PREPROCESSOR)
    if not _is_ours(classifier):
        raise ModelFileError(f"its classifier is a {type(classifier).__name__}, not one of cavity's")
    _check_classifier(classifier)
    check_records(preprocessor.encoders_)
    check_records([labels])
    agree("features of the columns", preprocessor.n_features_out_, classifier.n_features_in_)
    if preprocessor.dtype_ not in ("float32", "float64"):
        raise ModelFileError(f"its features have the precision {preprocessor.dtype_!r}")
    n_classes = _check_classes(table.classes_)
    agree("classes", n_classes, len(classifier.classes_))
    agree("values of the classes", labels.values.tolist(), table.classes_.tolist())
    check_array("labels_.counts", labels.counts, (n_classes,), kinds="iuf")
    check_array("labels_.totals", labels.totals, (n_classes,), kinds="iuf")
    for encoder in preprocessor.encoders_:
        _check_encoder(encoder)
    kinds = {encoder.column: encoder.kind for encoder in preprocessor.encoders_}
    for effect in preprocessor.effects_:
        _check_effect(effect, kinds, n_classes)


def _check_encoder(encoder: NumericEncoder | CategoricalEncoder | DateEncoder) -> None:
    """Check what a column of a table becomes."""
    kinds = (NUMERIC, BOOLEAN) if isinstance(encoder, NumericEncoder) else (type(encoder).kind,)
    if encoder.kind not in kinds:
        raise ModelFileError(f"its column {encoder.column!r} has the unknown kind {encoder.kind!r}")
    if isinstance(encoder, CategoricalEncoder):
        return
    low, high = encoder.usual
    if not (np.isfinite(encoder.usual).all() and low <= high):
        raise ModelFileError(f"its column {encoder.column!r} usually has values from {low} to {high}")
    if isinstance(encoder, NumericEncoder) and encoder.decimal not in (POINT, COMMA):
        raise ModelFileError(
            f"its column {encoder.column!r} has the unknown decimal sign {encoder.decimal!r}"
        )
    if not np.isfinite(encoder.fill).all():
        raise ModelFileError(f"its column {encoder.column!r} fills missing cells with {encoder.fill}")
    if isinstance(encoder, DateEncoder):
        n_features = len(encoder.features) - encoder.marks_missing
        agree(f"features of {encoder.column!r}", len(encoder.fill), n_features)
        if not (np.isfinite(encoder.first) and encoder.parts and set(encoder.parts) <= set(PARTS)):
            raise ModelFileError(f"its column {encoder.column!r} has unknown parts of dates")


def _check_effect(effect: EffectEncoder, kinds: dict[str, str], n_classes: int) -> None:
    """Check value effects: their columns and values, and the table of effects."""
    for index in effect.indices:
        what, kind, part = f"values of {index.values!s}", index.values.kind, index.values.part
        for column in index.values.columns:
            agree(f"kind of {column!r}", kind, kinds.get(column))
        if part and (kind != DATE or part not in DATE_PARTS):
            raise ModelFileError(f"its column {index.values.column!r} has the unknown part {part!r}")
        if index.values.minus and kind != NUMERIC:
            raise ModelFileError(f"its {what} are no differences of numbers")
        if kind == CATEGORICAL:
            if index.is_binned or not has_type(index.keys.tolist(), list[str]):
                raise ModelFileError(f"its {what} are not all text")
        else:
            check_array(what, index.keys, index.keys.shape)
            if index.keys.ndim != 1 or not (np.diff(index.keys) > 0.0).all():
                raise ModelFileError(f"its {what} do not increase")
        if len(set(index.keys.tolist())) < max(1, len(index.keys)):
            raise ModelFileError(f"its {what} are not all different")
    n_rows = effect.indices[0].n_values + 1
    if effect.cells is not None:
        check_array("groups of values", effect.cells, (len(effect.cells),), kinds="i")
        if not len(effect.cells) or not (np.diff(effect.cells) > 0).all():
            raise ModelFileError("its groups of values do not increase")
        n_rows = len(effect.cells)
    if effect.counts is not None:
        _check_counts(effect, n_rows, n_classes)
    if len(effect.indices) not in ((1,) if effect.cells is None else (2, 3)):
        raise ModelFileError(f"one of its effects has {len(effect.indices)} columns")
    width = n_latents(n_classes)
    agree("classes of an effect", len(effect.features), width)
    check_array("table of effects", effect.table, (n_rows + 1, width))


def _check_counts(effect: EffectEncoder, n_rows: int, n_classes: int) -> None:
    """Check what the effects of a stream were learned from."""
    check_array("counts of an effect", effect.counts, (n_rows, N_FOLDS + 1, n_classes))
    if effect.counts is not None and (effect.counts < 0.0).any():
        raise ModelFileError("its counts of values are negative")


def _check_classifier(classifier: Any) -> None:
    """Check a classifier of arrays: its model against its classes and inputs."""
    check_attributes(classifier, _CLASSIFIER)
    check_records([value for value in vars(classifier).values() if value is not classifier])
    model = classifier.model_
    check_model(model)
    n_classes, d = _check_classes(classifier.classes_), model.Z.shape[1]
    agree("number of latent functions", model.likelihood.n_latents, n_latents(n_classes))
    agree("number of features", classifier.n_features_in_, d)
    if "loo_log_proba_" in vars(classifier):  # a fit on a cluster leaves them there
        check_array("loo_log_proba_", classifier.loo_log_proba_, None, finite=False)
    if "feature_names_in_" in vars(classifier):
        names = classifier.feature_names_in_
        agree("names of the features", np.shape(names), (d,))
        if not has_type(names.tolist(), list[str]):
            raise ModelFileError("the names of its features are not all text")
    if classifier._centre is not None:
        check_array("_centre", classifier._centre, None)
    if classifier._stream is not None:
        _check_stream(classifier._stream, model)
    _check_random_state(classifier.random_state)


def _check_random_state(state: object) -> None:
    """Check that a generator of random numbers stands inside of its numbers, which NumPy does not."""
    if isinstance(state, np.random.RandomState):
        inside = state.get_state(legacy=False)["state"]
        if not 0 <= inside["pos"] <= len(inside["key"]):
            raise ModelFileError("its random_state is damaged")


def _check_stream(record: Any, model: Model) -> None:
    """Check where a stream stands against its model."""
    state, space = record.stream.state, record.space
    C, (m, d) = model.likelihood.n_latents, model.Z.shape
    check_array("_stream.space.Z", space.Z, (len(space.Z), d))  # points may have been added since
    _check_kernel(space.kernel)
    for x, q in ((state.x, state.q), state.previous):
        check_array("_stream.state.x", x, state.x.shape)
        if not isinstance(q, NaturalParameters):
            raise ModelFileError("its stream has a posterior of an unknown form")
        check_array("_stream.state.q.precision", q.precision, (C, m, m))
        check_array("_stream.state.q.shift", q.shift, (C, m))
        agree("leaves of the stream", isinstance(q, LocalNaturalParameters), model.local is not None)
        if isinstance(q, LocalNaturalParameters) and model.local is not None:
            sizes = model.local.leaves.sizes
            _check_sites_of_leaves(q.leaves, m, sizes, C)
            agree("messages of the stream's leaves", len(q.conditionals), len(sizes))
            for message in (q.total, *(one.message for one in q.conditionals)):
                check_array("precision of a message", message.naturals.precision, (C, m, m))
                check_array("shift of a message", message.naturals.shift, (C, m))
    if state.x.ndim != 1 or not is_dataclass(state.optimizer_state):
        raise ModelFileError("its stream has parameters or an optimiser of an unknown form")
    for name, value in vars(state.optimizer_state).items():
        check_array(f"_stream.state.{name}", np.asarray(value), None, kinds="iuf")
        if isinstance(value, np.ndarray):
            agree(f"shape of the optimiser's {name}", value.shape, state.x.shape)


def check_model(model: Model) -> None:
    """Raise `ModelFileError` unless the parts of a model agree and it predicts finite numbers.

    With m inducing points, d features and C latent functions:

    ==============================  ===========
    Z                               [m, d]
    posterior.mean                  [C, m]
    posterior.covariance            [C, m, m]
    posterior.naturals.precision    [C, m, m]
    posterior.naturals.shift        [C, m]
    scaling.centre, .scale          [d]
    scaling.whitening_matrix        [d, d], if it whitens
    scaling.bend                    [d], if it bends
    scaling.knots.starts            [d + 1], if it has knots
    ==============================  ===========
    """
    posterior, likelihood = model.posterior, model.likelihood
    if model.dtype not in (np.float32, np.float64):
        raise ModelFileError(f"its precision is {model.dtype}, which is neither float32 nor float64")
    check_array("Z", model.Z, None)
    if model.Z.ndim != 2 or 0 in model.Z.shape:
        raise ModelFileError(f"its inducing points have shape {model.Z.shape}, not [m, d]")
    C, (m, d) = likelihood.n_latents, model.Z.shape
    if C < 1 or C == 2:
        raise ModelFileError(f"its likelihood has {C} latent functions, which fits no number of classes")
    shapes = [
        ("posterior.mean", posterior.mean, (C, m)),
        ("posterior.covariance", posterior.covariance, (C, m, m)),
        ("posterior.naturals.precision", posterior.naturals.precision, (C, m, m)),
        ("posterior.naturals.shift", posterior.naturals.shift, (C, m)),
    ]
    for name, array, shape in shapes:
        check_array(name, array, shape)
    _check_scaling(model.scaling, d, model.dtype)
    if posterior.factors is not None:
        raise ModelFileError("its posterior is one for a variational pass, which is never saved")
    largest = 1e-4 * np.sqrt(np.finfo(model.dtype).max)  # products of two such numbers stay finite
    for name, array in (("mean", posterior.mean), ("covariance", posterior.covariance)):
        if np.abs(array).max() > largest:
            raise ModelFileError(f"its posterior.{name} has numbers that are too large to compute with")
    positive = {"jitter": model.jitter, "inverse_temperature": model.inverse_temperature}
    for name, value in positive.items():
        if not (np.isfinite(value) and 0 < value < largest):
            raise ModelFileError(f"its {name} is {value}, and should be positive")
    scale_of_residual = model.residual_variance_scale
    if not (np.isfinite(scale_of_residual) and 0 <= scale_of_residual < largest):
        raise ModelFileError(
            f"its residual_variance_scale is {scale_of_residual}, and should be 0 or positive"
        )
    if not np.isfinite(posterior.half_log_determinant):
        raise ModelFileError("its posterior.half_log_determinant is not finite")
    _check_kernel(model.kernel)
    if model.mean_function is not None:
        _check_mean_function(model.mean_function, C, d)
    if model.local is not None:
        _check_leaves(model, model.local, largest)
    _check_predictions(model)


def _check_leaves(model: Model, local: LocalPart, largest: float) -> None:
    """Check the leaves of a model: points and summed sites of each, and the routing."""
    C, (m, d), sizes = model.likelihood.n_latents, model.Z.shape, local.leaves.sizes
    if not isinstance(model.kernel, Sum):
        raise ModelFileError("it has leaves, and its kernel is not a sum of two")
    if not (np.isfinite(local.jitter) and 0 < local.jitter < 1):
        raise ModelFileError(f"its leaves have the jitter {local.jitter}, and it should be positive")
    for Z in local.leaves.points:
        check_array("points of a leaf", Z, None)
        if Z.ndim != 2 or Z.shape[1] != d or not len(Z):
            raise ModelFileError(f"the points of a leaf have shape {Z.shape}, not [m, {d}]")
    _check_sites_of_leaves(local.sites, m, sizes, C)
    for own in local.sites:
        if max(np.abs(own.precision).max(), np.abs(own.shift).max()) > largest**2:
            raise ModelFileError("the sites of a leaf have numbers that are too large to compute with")
    _check_routing(local.leaves.routing, len(sizes), d)


def _check_sites_of_leaves(
    sites: tuple[NaturalParameters, ...], m: int, sizes: tuple[int, ...], n_latents: int
) -> None:
    """Check the summed sites of leaves with so many points, besides m for all rows."""
    agree("leaves of the summed sites", len(sites), len(sizes))
    for size, own in zip(sizes, sites, strict=True):
        width = m + size
        check_array("precision of a leaf", own.precision, (n_latents, width, width))
        check_array("shift of a leaf", own.shift, (n_latents, width))


def _check_routing(routing: Routing, n_leaves: int, d: int) -> None:
    """Check that a routing gives every row of d features one of the leaves."""
    if isinstance(routing, TreeRouting):
        n = len(routing.feature)
        columns = (routing.feature, routing.left, routing.right, routing.leaf)
        for name, column in zip(("feature", "left", "right", "leaf"), columns, strict=True):
            check_array(f"routing.{name}", column, (n,), kinds="iu")
        check_array("routing.threshold", routing.threshold, (n,))
        own = np.arange(n)
        is_leaf = routing.leaf >= 0
        ends = (routing.left == own) & (routing.right == own)
        # Children come after their parents: so every way ends, in a leaf.
        onwards = (routing.left > own) & (routing.right > own)
        inside = (
            (routing.left < n) & (routing.right < n) & (routing.feature >= 0) & (routing.feature < d)
        )
        if not n or not (inside & np.where(is_leaf, ends, onwards)).all():
            raise ModelFileError("its routing is not a tree")
    elif isinstance(routing, EstimatorRouting):
        if not isinstance(routing.estimator, BaseEstimator) or routing.values.ndim != 1:
            raise ModelFileError("its routing is not that of an estimator")
    else:
        raise ModelFileError(f"its routing is a {type(routing).__name__}")
    agree("leaves of the routing", routing.n_leaves, n_leaves)


def _check_mean_function(mean: MeanFunction, n_latents: int, d: int) -> None:
    """Check the classifier whose scores are the mean function of a model of d features."""
    if not (np.isfinite(mean.coefficient) and mean.coefficient >= 0):
        raise ModelFileError(f"its mean function has the coefficient {mean.coefficient}")
    classifier = mean.classifier
    if isinstance(classifier, LinearScore):
        check_array("mean_function.weights", classifier.weights, (d, n_latents))
        check_array("mean_function.intercept", classifier.intercept, (n_latents,))
        _check_scaling(classifier.scaling, d, FLOAT64)
    elif not is_classifier(classifier):
        raise ModelFileError(f"its mean function is a {type(classifier).__name__}, not a classifier")


def _check_scaling(scaling: Scaling, d: int, dtype: Dtype) -> None:
    """Check how d features are scaled: every column by an increasing function with finite values."""
    shapes: list[tuple[str, Array | None, tuple[int, ...]]] = [
        ("centre", scaling.centre, (d,)),
        ("scale", scaling.scale, (d,)),
        ("whitening_matrix", scaling.whitening_matrix, (d, d)),
        ("bend", scaling.bend, (d,)),
    ]
    for name, array, shape in shapes:
        if array is not None:
            check_array(f"scaling.{name}", array, shape)
    if not (scaling.scale > 0).all():
        raise ModelFileError("its scaling.scale has numbers that are not positive")
    bend = np.zeros(d) if scaling.bend is None else scaling.bend
    if not ((bend == 0) | ((bend > 1e-6) & (bend < 1e6))).all():
        raise ModelFileError("its scaling.bend has numbers that are neither 0 nor of a usual size")
    if not np.isfinite([part.astype(dtype) for part in (scaling.centre, scaling.rate)]).all():
        raise ModelFileError(f"its scaling has numbers beyond the range of {dtype}")
    if scaling.knots is not None:
        _check_knots(scaling.knots, d)


def _check_knots(knots: Knots, d: int) -> None:
    """Check the piecewise linear functions of d columns: no knots or at least two, which increase."""
    check_array("scaling.knots.starts", knots.starts, (d + 1,), kinds="iu")
    n_knots = int(knots.starts[-1])
    check_array("scaling.knots.positions", knots.positions, (n_knots,))
    check_array("scaling.knots.values", knots.values, (n_knots,))
    lengths = np.diff(knots.starts.astype(np.int64))
    if knots.starts[0] != 0 or not ((lengths == 0) | (lengths > 1)).all():
        raise ModelFileError("its scaling.knots.starts are not the starts of columns of knots")
    for _, positions, values in knots.columns():
        steps = np.diff(positions), np.diff(values)
        if not all((step > 0).all() for step in steps):
            raise ModelFileError("its scaling.knots do not increase")
        if not np.isfinite([steps[0] / steps[1], steps[1] / steps[0]]).all():
            raise ModelFileError("its scaling.knots are too steep to compute with")


def _check_kernel(kernel: object) -> None:
    """Check that the hyperparameters of a kernel are finite and that it has bounds for them."""
    if not isinstance(kernel, Kernel):
        raise ModelFileError(f"its kernel is a {type(kernel).__name__}")
    theta = np.asarray(kernel.theta, dtype=np.float64)
    if not np.isfinite(theta).all():
        raise ModelFileError(f"its kernel has hyperparameters that are not finite: {kernel}")
    if len(theta):
        agree("shape of the kernel's bounds", np.asarray(kernel.bounds, float).shape, (len(theta), 2))


def _check_predictions(model: Model) -> None:
    """Predict a few rows near the training rows and far from them."""
    centre, scale = model.scaling.centre, model.scaling.scale
    points = model.scaling.invert(model.Z[:2])
    rows = np.vstack([points, centre, centre + 10.0 * scale, centre - 1e6 * scale])
    rows = np.clip(rows, -np.finfo(np.float64).max, np.finfo(np.float64).max)
    # A classifier that is the mean function is not called: its numbers are checked by its own package.
    process = replace(model, mean_function=None, needs_offset=False)
    if model.local is not None and isinstance(model.local.leaves.routing, EstimatorRouting):
        process = replace(process, kernel=model.kernel.k1, local=None)  # nor is one that routes rows
    mean, variance = process.latent_moments(rows)
    log_proba = model.likelihood.predict_log_proba(mean, variance)
    for name, array in (("means", mean), ("variances", variance), ("probabilities", np.exp(log_proba))):
        if not np.isfinite(array).all():
            raise ModelFileError(f"it does not predict numbers: the {name} of some rows are not finite")


def _check_classes(classes: object) -> int:
    """Check the classes [C] and return their number."""
    if type(classes) is not np.ndarray or classes.ndim != 1:
        raise ModelFileError("its classes are not an array with one dimension")
    values = classes.tolist()
    simple = all(isinstance(value, (str, bytes, bool, int, float)) for value in values)
    if len(values) < 2 or not (simple or classes.dtype.kind in "mM"):
        raise ModelFileError(f"its classes are {str(values)[:80]}, which are not two or more labels")
    if any(value != value for value in values) or len(set(values)) < len(values):
        raise ModelFileError(f"its classes are {str(values)[:80]}, which are not all different")
    return len(values)
