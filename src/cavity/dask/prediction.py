"""Predictions on Dask collections: lazy, block by block, where the rows are."""

from __future__ import annotations

import copy
from typing import Any

import dask
import dask.array
import dask.dataframe
import numpy as np
from dask.base import is_dask_collection

from cavity.sources.blocks import tile_precision

__all__ = ["is_dask_collection", "lazily", "local_twin"]


def local_twin(estimator: Any, kind: Any) -> Any:
    """The fitted estimator of one machine that predicts what `estimator` does, on one thread."""
    twin = kind.__new__(kind)
    dropped = ("client", "loo_log_proba_")
    state = {
        name: value
        for name, value in vars(estimator).items()
        if name not in dropped and (name == "_centre" or not name.startswith("_"))
    }
    estimator.model_.prior  # noqa: B018  (made here once: a worker may not know a user's own kernel)
    vars(twin).update(copy.copy(state), n_jobs=1, checkpoint=None)
    return twin


def lazily(twin: Any, method: str, X: Any) -> Any:
    """A Dask array (or a tuple of them) of what `twin.method` says of the rows of X."""
    n_features = twin.n_features_in_
    if X.shape[1] != n_features:
        raise ValueError(
            f"X has {X.shape[1]} features, but {type(twin).__name__} was fitted on {n_features}"
        )
    sample = _call(twin, method, np.zeros((1, n_features)))
    if isinstance(X, dask.array.Array):
        blocks, lengths = X.rechunk({1: -1}).to_delayed().ravel(), X.chunks[0]
    else:
        blocks = X.to_delayed()
        lengths = (np.nan,) * len(blocks)
    model = dask.delayed(twin)
    parts = [dask.delayed(_call)(model, method, block) for block in blocks]
    if isinstance(sample, tuple):
        arrays = [
            _array([dask.delayed(_item)(part, i) for part in parts], lengths, one)
            for i, one in enumerate(sample)
        ]
        return type(sample)(*arrays) if hasattr(sample, "_fields") else tuple(arrays)
    return _array(parts, lengths, sample)


def _array(parts: list[Any], lengths: tuple[float, ...], sample: Any) -> Any:
    return dask.array.concatenate(
        [
            dask.array.from_delayed(part, (length, *sample.shape[1:]), dtype=sample.dtype)
            for part, length in zip(parts, lengths, strict=True)
        ],
        allow_unknown_chunksizes=True,
    )


def _item(values: Any, i: int) -> Any:
    return values[i]


def _call(twin: Any, method: str, block: Any) -> Any:
    """What the method says of a block, which may have no rows."""
    if hasattr(block, "columns"):
        kinds = [getattr(kind, "numpy_dtype", kind) for kind in block.dtypes]
        names = list(block.columns)
        values = block.to_numpy(dtype=tile_precision(np.result_type(*kinds)), na_value=np.nan)
        _check_names(twin, names)
        block = values
    if len(block) == 0:
        nothing = _call(twin, method, np.zeros((1, twin.n_features_in_)))
        if isinstance(nothing, tuple):
            return tuple(part[:0] for part in nothing)
        return nothing[:0]
    bare = copy.copy(twin)  # names were compared above; scikit-learn need not miss them
    vars(bare).pop("feature_names_in_", None)
    return getattr(bare, method)(block)


def _check_names(twin: Any, names: list[Any]) -> None:
    known = getattr(twin, "feature_names_in_", None)
    if known is not None and list(known) != names:
        raise ValueError(
            f"the columns are {names}, but {type(twin).__name__} was fitted on {list(known)}; select "
            "them in that order"
        )
