"""scikit-learn's simple preprocessing as operators of a graph, by type."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

from cavity.onnx.graph import Value
from cavity.typing import Array


@singledispatch
def transformed(step: Any, X: Value) -> Value:
    """The columns that a fitted transformer makes of X [N, d]."""
    raise TypeError(
        f"step of type {type(step).__name__!r} has no ONNX form; StandardScaler, MinMaxScaler, "
        "MaxAbsScaler and SimpleImputer have: apply others before the rows reach the model"
    )


@transformed.register(str)
@transformed.register(type(None))
def _passthrough(step: Any, X: Value) -> Value:
    return X


@transformed.register
def _standard(step: StandardScaler, X: Value) -> Value:
    if step.with_mean and step.mean_ is not None:
        X = X - step.mean_
    return X if step.scale_ is None else X / step.scale_


@transformed.register
def _min_max(step: MinMaxScaler, X: Value) -> Value:
    X = X * step.scale_ + step.min_
    if step.clip:
        low, high = step.feature_range
        X = X.at_least(float(low)).at_most(float(high))
    return X


@transformed.register
def _max_abs(step: MaxAbsScaler, X: Value) -> Value:
    scale: Array = step.scale_
    return X / scale


@transformed.register
def _imputer(step: SimpleImputer, X: Value) -> Value:
    """Missing entries become the learned statistic; columns that had none are left out."""
    try:
        statistics = np.asarray(step.statistics_, dtype=np.float64)
    except ValueError:
        raise TypeError("SimpleImputer of text has no ONNX form; impute numbers only") from None
    marker = step.missing_values
    is_nan = isinstance(marker, float) and np.isnan(marker)
    missing = X.op("IsNaN") if is_nan else X.op("Equal", float(marker))
    filled = missing.where(statistics, X)
    if not step.keep_empty_features and np.isnan(statistics).any():
        filled = filled.columns(np.flatnonzero(~np.isnan(statistics)))
    if step.indicator_ is None:
        return filled
    flags = missing.cast(np.float64).columns(step.indicator_.features_)
    return X.graph.concat([filled, flags])
