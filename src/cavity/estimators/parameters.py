"""The parameters of classifiers: their checks, and the configuration that they mean."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import replace
from numbers import Integral
from os import PathLike
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, is_classifier
from sklearn.gaussian_process.kernels import Kernel
from sklearn.utils import check_random_state

from cavity.data.routing import MOST_LEAVES, Routing, learn_from_numbers
from cavity.data.source import RowSource
from cavity.engines.backend import Backend
from cavity.estimators.predictor import GPPredictor
from cavity.estimators.racing import NO_LEAVES
from cavity.gp.inducing import POINT_STARTS
from cavity.gp.model import Model
from cavity.inference.config import ConfigFields, TrainingConfig, resolve
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
from cavity.typing import Array, ClassWeight, IntArray, RandomSeed


class ConfiguredClassifier(GPPredictor):
    """A classifier whose parameters mean a `TrainingConfig`; each class has some of the parameters."""

    _method: ClassVar[str] = "ep"
    _method_in_words: ClassVar[str] = "Gaussian process classification"
    """The method as facts and reports name it."""
    _config_fields: ClassVar[tuple[str, ...]] = ()
    """Constructor parameters that are fields of `TrainingConfig` under the same name."""

    kernel: Kernel | None
    n_inducing: int | str
    inducing_points: str | ArrayLike
    class_weight: ClassWeight
    config: TrainingConfig | ConfigFields | None
    warm_start: bool
    random_state: RandomSeed
    n_jobs: int | None
    verbose: int
    config_: TrainingConfig
    model_: Model

    # Parameters that some classes do not have; in these, what None means holds.
    mean_function: BaseEstimator | str | None = None
    leaves: int | str | BaseEstimator | ArrayLike | None = None
    """The only word that it may be is "auto"."""
    window_size: float | None = None

    def __dir__(self) -> list[str]:
        # Without the parameters that only other classes have.
        missing = _OF_SOME_CLASSES - set(self.get_params(deep=False))
        return [name for name in super().__dir__() if name not in missing]

    def _check_parameters(self) -> None:
        """Raise for parameters with impossible values, and for those that contradict each other."""
        check_common_parameters(self)
        check_config(self, self._fields())

    def _resolve(
        self,
        n_rows: int,
        seed: int,
        decided: ConfigFields | None = None,
        feature_sets: Sequence[str] = (),
        *,
        own_validation: bool = False,
    ) -> TrainingConfig:
        """The configuration that the parameters mean for a number of rows.

        decided: fields that a race has decided; feature_sets, own_validation: see `resolve`.
        """
        n_classes = len(self.classes_)
        if isinstance(self.config, TrainingConfig):
            if (self.config.method, self.config.n_classes) != (self._method, n_classes):
                raise ValueError(
                    f"config is for method={self.config.method!r} and {self.config.n_classes} classes; "
                    f"this is {type(self).__name__} with {n_classes} classes; pass a configuration "
                    "for these, or config=None"
                )
            config, sets = self.config, iter(feature_sets)
            config = replace(config, feature_set=config.feature_set or next(sets, None))
            return replace(config, validation_fraction=0.0) if own_validation else config
        given: ConfigFields = {"feature_sets": feature_sets, "own_validation": own_validation}
        given |= {**self._given_fields(), **(decided or {})}
        if isinstance(self.leaves, str) and not given.get("n_leaves"):
            given["n_local"] = None  # no leaves are tried, or have been chosen
        if self.kernel is not None:
            given["kernel_name"] = None
        points = self._own_points()
        if points is not None:
            given["n_inducing"] = len(points)
        elif self._continues:
            given["n_inducing"] = len(self.model_.Z)
        if self._continues:
            local = self.model_.local
            given |= {**NO_LEAVES, **self._model_before()}
            if local is not None:
                given |= {"n_leaves": len(local.leaves), "n_local": max(local.leaves.sizes)}
        return resolve(n_rows, n_classes, method=self._method, seed=seed, **given)

    def _given_fields(self) -> ConfigFields:
        """Fields that the parameters set, those of a dict `config` included."""
        further = self.config if isinstance(self.config, dict) else {}
        return {"n_inducing": self.n_inducing, **self._fields(), **further}

    def _model_before(self) -> ConfigFields:
        """What an earlier fit has chosen for fields of the model that the parameters leave open."""
        given, config = self._given_fields(), self.config_
        before: ConfigFields = {"kernel_name": config.kernel_name, "scaling": config.scaling}
        if self._method == "ep":
            before |= {"residual_scale": config.residual_scale, "trace_penalty": config.trace_penalty}
        return {n: value for n, value in before.items() if given.get(n, "auto") == "auto"}

    def _fields(self) -> ConfigFields:
        """Constructor parameters that are fields of `TrainingConfig`."""
        parameters = self.get_params(deep=False)
        given = {name: parameters[name] for name in self._config_fields}
        if isinstance(self.inducing_points, str):
            given["inducing_init"] = self.inducing_points
        if "leaves" in parameters:  # the leaves of an estimator are counted when the rows are there
            leaves = parameters["leaves"]
            given["n_leaves"] = leaves if isinstance(leaves, Integral) else None
        return given

    def _seed(self) -> int:
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31))

    @property
    def _router(self) -> BaseEstimator | ArrayLike | None:
        """The user's own estimator, or leaf numbers of rows, for which leaf a row falls into."""
        leaves = self.leaves
        return None if isinstance(leaves, (Integral, str)) else leaves

    def _learned_routing(
        self, source: RowSource, backend: Backend, seed: int, held_out: IntArray | None = None
    ) -> Routing:
        """The routing that the user's estimator or leaf numbers give.

        held_out: sorted numbers [k] of rows whose leaf numbers it must not know.
        """
        router = self._router
        assert router is not None
        if routes(router):
            return backend.routing_of(source, router)
        return learn_from_numbers(source, router, seed, held_out)

    @property
    def _given_points(self) -> ArrayLike | None:
        """The user's own inducing points, or None."""
        return None if isinstance(self.inducing_points, str) else self.inducing_points

    def _own_points(self) -> Array | None:
        """The user's own inducing points as an array [m, d], or None."""
        return validated_inducing_points(self._given_points, self.n_features_in_)

    @property
    def _continues(self) -> bool:
        """Whether `fit` goes on from an earlier fit."""
        return self.warm_start and self.__sklearn_is_fitted__()


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


def check_common_parameters(estimator: ConfiguredClassifier) -> None:
    """Raise for parameters that are not fields of the configuration and have impossible values."""
    validated_kernel(estimator.kernel)
    for name, value in estimator.get_params(deep=False).items():
        if name in _CONDITIONS:
            check_value(name, value, _CONDITIONS[name])


def check_config(estimator: ConfiguredClassifier, fields: Mapping[str, object]) -> None:
    """Raise for fields of the configuration with impossible values, or that are set twice.

    fields: those that the estimator's own parameters set.
    """
    check_fields(fields)
    if isinstance(estimator.config, TrainingConfig):
        _check_whole_config(estimator)
    elif estimator.config is not None:
        _check_further_fields(estimator, estimator.config, fields)


def _check_further_fields(
    estimator: ConfiguredClassifier, config: Mapping[str, object], fields: Mapping[str, object]
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


def _check_whole_config(estimator: ConfiguredClassifier) -> None:
    """Raise for parameters that are set although a whole configuration sets them too."""
    parameters = inspect.signature(type(estimator)).parameters
    own = (*estimator._config_fields, "n_inducing", "leaves", "max_iter")
    names = [name for name in own if name in parameters]
    if isinstance(estimator.inducing_points, str):
        names.append("inducing_points")
    given = estimator.get_params(deep=False)
    for name in names:
        if not np.array_equal(given[name], parameters[name].default):
            raise ValueError(
                f"{name}={given[name]!r} and a whole TrainingConfig, which sets it too; "
                "leave one of them out, or change the configuration by dataclasses.replace"
            )


def check_own_validation(estimator: ConfiguredClassifier, config: TrainingConfig) -> None:
    """Raise for parameters that do not go with validation rows of the user's own."""
    if config.schedule != "steps":
        raise ValueError(
            f"X_val cannot be used with this {type(estimator).__name__}: there are no training steps "
            "that validation rows could judge; leave X_val out, or set another optimizer"
        )
    fraction = estimator._given_fields()["validation_fraction"]
    if fraction not in ("auto", None) and not isinstance(estimator.config, TrainingConfig):
        raise ValueError(
            f"validation_fraction={fraction!r} and X_val; either rows are held out, or your own are "
            "used: leave one of them out"
        )


def check_leaves_before(estimator: ConfiguredClassifier, config: TrainingConfig) -> None:
    """Raise for a warm start with leaves after a fit without them, or the other way round."""
    leaves = estimator.leaves
    if not estimator._continues or isinstance(leaves, str):
        return
    if (leaves is None) != (config.n_leaves is None):
        there = "no leaves" if config.n_leaves is None else "leaves"
        raise ValueError(
            f"leaves={leaves!r} and warm_start=True, but the fit to go on from has {there}; set "
            'warm_start=False to begin anew, or leaves="auto"'
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
    if isinstance(value, type) or hasattr(value, "__array__"):  # a column of pandas has apply, too
        return False
    return hasattr(value, "apply") or hasattr(value, "predict")


def _are_leaf_numbers(value: object) -> bool:
    """Whether a value is an array [n] of numbers or words, none of them missing."""
    if isinstance(value, str) or not isinstance(value, Sized):
        return False
    numbers = np.asarray(value)
    if numbers.dtype.kind == "O":
        return numbers.ndim == 1 and all(isinstance(one, str) for one in numbers)
    is_missing = numbers.dtype.kind == "f" and np.isnan(numbers).any()
    return numbers.ndim == 1 and numbers.dtype.kind in "biufUS" and not is_missing


def _is_class_weight(value: object) -> bool:
    return isinstance(value, Mapping) or one_of("balanced", None)(value)


def _is_instance(*kinds: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, kinds)


_OF_SOME_CLASSES = frozenset({"mean_function", "leaves", "window_size"})
"""Parameters that some classes do not have."""
_OTHER_NAMES = {
    "inducing_init": "inducing_points",
    "max_epochs": "max_iter",
    "n_leaves": "leaves",
    "seed": "random_state",
}
"""Parameters of classifiers that set a field of another name."""
_CONDITIONS: dict[str, Condition] = {
    "n_inducing": (any_of(whole_from(1), AUTO), 'a whole number from 1, or "auto"'),
    "inducing_points": (_is_points, '"kmeans", "random", "greedy" or an array [m, d]'),
    "leaves": (
        any_of(whole_from(1, MOST_LEAVES), AUTO, NONE, routes, _are_leaf_numbers),
        f'a whole number from 1 to {MOST_LEAVES:,}, "auto", a fitted estimator with apply or predict, '
        "an array [n] with the number or name of the leaf of each row, none of them missing, or None",
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
