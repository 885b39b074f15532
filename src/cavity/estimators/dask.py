"""Classifiers that fit on a Dask cluster, and predict Dask collections lazily."""

from __future__ import annotations

import copy
import shutil
import tempfile
import weakref
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, cast

try:
    import dask
    import dask.array
    import dask.dataframe
    from dask.base import is_dask_collection
    from dask.delayed import Delayed
    from distributed import Client
except ImportError as error:
    raise ImportError("the Dask classifiers need Dask: pip install 'cavity[dask]'") from error
import numpy as np
import pandas
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.gaussian_process.kernels import Kernel
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from cavity.data.labels import check_classes
from cavity.data.source import tile_precision
from cavity.engines.dask.cluster import Cluster, cluster_for
from cavity.engines.dask.collections import LazyTable, lazy_table, plain_dtypes
from cavity.engines.dask.engine import DaskBackend
from cavity.engines.dask.shards import ShardedSource
from cavity.engines.dask.tables import DaskTable
from cavity.engines.threads import compute_context, thread_count
from cavity.estimators.endings import warn_of_ending
from cavity.estimators.predictor import R
from cavity.estimators.sep import SEPClassifier
from cavity.estimators.state import State, restored_state, rollback_on_error
from cavity.estimators.svi import SVIClassifier
from cavity.estimators.table_prediction import warn_of_new_columns
from cavity.estimators.trained import TrainedGPClassifier
from cavity.estimators.validation import validation_rows
from cavity.inference.config import ConfigFields, TrainingConfig
from cavity.inference.history import tell
from cavity.inference.optimizers import Optimizer
from cavity.typing import (
    AnyArray,
    Array,
    ClassWeight,
    InputLabels,
    InputOffset,
    InputRows,
    InputWeights,
    RandomSeed,
)

if TYPE_CHECKING:
    from cavity.estimators.table import TableClassifier

Prediction: TypeAlias = Any
"""What a method of a classifier predicts: an array, or a tuple of them."""


def lazily(
    model: TrainedGPClassifier,
    method: str,
    X: dask.array.Array | dask.dataframe.DataFrame,
    **options: object,
) -> Prediction:
    """A Dask array, or a tuple of them, of `model.method` with options for the rows of X."""
    n_features = model.n_features_in_
    if X.shape[1] != n_features:
        raise ValueError(
            f"X has {X.shape[1]} features, but {type(model).__name__} was fitted on {n_features}"
        )
    sample = _predict_block(model, method, np.zeros((1, n_features)), **options)
    if isinstance(X, dask.array.Array):
        blocks, lengths = X.rechunk({1: -1}).to_delayed().ravel(), X.chunks[0]
    else:
        blocks = X.to_delayed()
        lengths = (np.nan,) * len(blocks)
    shared = dask.delayed(model)
    parts = [dask.delayed(_predict_block)(shared, method, block, **options) for block in blocks]
    return _joined(parts, lengths, sample)


def _joined(parts: list[Delayed], lengths: tuple[float, ...], sample: Prediction) -> Prediction:
    """The parts, one after the other, as a lazy array, or a tuple of them if `sample` is one."""
    if isinstance(sample, tuple):
        items = [
            _joined([dask.delayed(_item)(part, i) for part in parts], lengths, one)
            for i, one in enumerate(sample)
        ]
        return _tuple_like(sample, items)
    return _joined_array(parts, lengths, sample)


def _joined_array(
    parts: list[Delayed], lengths: tuple[float, ...], sample: AnyArray
) -> dask.array.Array:
    return dask.array.concatenate(
        [
            dask.array.from_delayed(part, (length, *sample.shape[1:]), dtype=sample.dtype)
            for part, length in zip(parts, lengths, strict=True)
        ],
        allow_unknown_chunksizes=True,
    )


def _item(values: tuple[Array, ...], i: int) -> Array:
    return values[i]


def _tuple_like(sample: tuple[Prediction, ...], items: list[Prediction]) -> Prediction:
    """A tuple of the type of `sample`, named or plain."""
    return type(sample)(*items) if hasattr(sample, "_fields") else tuple(items)


def _empty_like(sample: Prediction) -> Prediction:
    """The prediction for no rows, from that for some."""
    if isinstance(sample, tuple):
        return _tuple_like(sample, [_empty_like(part) for part in sample])
    return sample[:0]


def _predict_block(
    model: TrainedGPClassifier, method: str, block: Array | pandas.DataFrame, **options: object
) -> Prediction:
    """The method's result for a block of rows, which may be empty."""
    if isinstance(block, pandas.DataFrame):
        names = list(block.columns)
        precision = tile_precision(np.result_type(*plain_dtypes(block)))
        values = block.to_numpy(dtype=precision, na_value=np.nan)
        _check_names(model, names)
        block = values
    if len(block) == 0:
        return _empty_like(_predict_block(model, method, np.zeros((1, model.n_features_in_)), **options))
    bare = copy.copy(model)  # the names were compared above
    bare.__dict__.pop("feature_names_in_", None)
    return getattr(bare, method)(block, **options)


def _check_names(model: TrainedGPClassifier, names: list[str]) -> None:
    known = vars(model).get("feature_names_in_")
    if known is not None and list(known) != names:
        raise ValueError(
            f"the columns are {names}, but {type(model).__name__} was fitted on {list(known)}; select "
            "them in that order"
        )


def predict_table(
    model: TableClassifier, method: str, X: dask.dataframe.DataFrame, **options: object
) -> Prediction:
    """A Dask array, or a tuple of them, of a table classifier's method for the rows of a data frame."""
    check_is_fitted(model)
    warn_of_new_columns(model.preprocessor_, DaskTable(X))
    features = np.zeros((1, model.preprocessor_.n_features_out_))
    sample = _predict_block(model.estimator_, method, features, **options)
    bare = copy.copy(model)
    bare.estimator_ = copy.copy(model.estimator_).set_params(n_jobs=1)
    shared, call = dask.delayed(bare), dask.delayed(_predict_table_block)
    blocks = X[model.columns_].to_delayed()
    parts = [call(shared, method, block, sample, **options) for block in blocks]
    return _joined(parts, (np.nan,) * len(parts), sample)


def _predict_table_block(
    model: TableClassifier,
    method: str,
    block: pandas.DataFrame,
    sample: Prediction,
    **options: object,
) -> Prediction:
    """The method's result for a block of rows, which may be empty."""
    return getattr(model, method)(block, **options) if len(block) else _empty_like(sample)


class DaskClassifier(TrainedGPClassifier):
    """What the Dask classifiers share: rows in shards, passes on workers, lazy predictions."""

    _on_cluster: ClassVar[bool] = True
    _shared_by_clones: ClassVar[tuple[str, ...]] = ("leaves", "client")
    """A client is a connection, which cannot be copied."""
    _local: ClassVar[type[TrainedGPClassifier]]

    def __init__(
        self,
        kernel: Kernel | None = None,
        *,
        likelihood: str = "probit",
        mean_function: BaseEstimator | str | None = None,
        n_inducing: int | str = "auto",
        inducing_points: str | ArrayLike = "kmeans",
        leaves: int | str | BaseEstimator | ArrayLike | None = "auto",
        scaling: str | None = "auto",
        batch_size: int | str | None = "auto",
        optimizer: Optimizer | str | None = "adam",
        max_epochs: float | None = None,
        max_seconds: float | None = None,
        validation_fraction: float | str | None = "auto",
        class_weight: ClassWeight = None,
        config: TrainingConfig | ConfigFields | None = None,
        warm_start: bool = False,
        window_size: float | None = None,
        checkpoint: str | PathLike[str] | None = None,
        random_state: RandomSeed = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        client: Client | None = None,
    ) -> None:
        super().__init__(
            kernel,
            likelihood=likelihood,
            mean_function=mean_function,
            n_inducing=n_inducing,
            inducing_points=inducing_points,
            leaves=leaves,
            scaling=scaling,
            batch_size=batch_size,
            optimizer=optimizer,
            max_epochs=max_epochs,
            max_seconds=max_seconds,
            validation_fraction=validation_fraction,
            class_weight=class_weight,
            config=config,
            warm_start=warm_start,
            window_size=window_size,
            checkpoint=checkpoint,
            random_state=random_state,
            n_jobs=n_jobs,
            verbose=verbose,
        )
        self.client = client

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.mean_function is not None:
            raise ValueError(
                f"mean_function={self.mean_function!r} is not for {type(self).__name__}: its classifier "
                f"needs the rows in one place; use {self._local.__name__}, also for files, or None"
            )

    def fit(
        self,
        X: InputRows,
        y: InputLabels = None,
        sample_weight: InputWeights = None,
        *,
        X_val: InputRows = None,
        y_val: InputLabels = None,
        sample_weight_val: InputWeights = None,
        offset: InputOffset = None,
    ) -> DaskClassifier:
        """Fit to rows of a Dask array or DataFrame X [n, d] with labels y [n], partitioned alike.

        X may also be the path or URL of a Parquet file, or of a folder of them, with y the name of the
        target column. `sample_weight` [n] is partitioned like y or, for Parquet, the name of a column; a
        weight of w counts a row w times, 0 leaves it out. Without a client, a cluster of `n_jobs`
        processes is started and closed again. X_val, y_val and sample_weight_val are validation rows of
        your own, as arrays in memory; see `cavity.SEPClassifier.fit`. There is no
        `offset` on a cluster.
        """
        self._check_parameters()
        self._refuse_offset(offset)
        table, n_jobs = lazy_table(X, y, sample_weight), thread_count(self.n_jobs)
        with cluster_for(self.client, n_jobs, self.checkpoint) as cluster, rollback_on_error(self):
            source = self._opened(table, cluster)
            validation = validation_rows(self, X_val, y_val, sample_weight_val)
            with compute_context(n_jobs) as threads:
                result = self._fit_source(source, DaskBackend(cluster, threads), validation)
            if self.client is None:
                self._keep_loo_in_files(cluster)
        warn_of_ending(self, result)
        return self

    def _refuse_offset(self, offset: InputOffset) -> None:
        if offset is not None:
            raise ValueError(
                f"offset is not for {type(self).__name__}, whose rows are with the workers; use "
                f"{self._local.__name__}, or leave it out"
            )

    def _opened(self, table: LazyTable, cluster: Cluster) -> ShardedSource:
        """The shards of a table, with its classes and feature names."""
        source = ShardedSource(table, cluster, self.class_weight)
        check_classification_targets(source.classes)
        self.classes_ = check_classes(source.classes, source.n_rows)
        self._set_features(source)
        if self.verbose:
            tell(
                f"{cluster.n_workers} workers, {len(source.groups)} tasks a pass; dashboard: "
                f"{cluster.client.dashboard_link}"
            )
        return source

    def _keep_loo_in_files(self, cluster: Cluster) -> None:
        """Write the leave-one-out scores to temporary files before their cluster is closed."""
        folder = tempfile.mkdtemp(prefix="cavity-loo-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        lazy: dask.array.Array = self.loo_log_proba_
        blocks = lazy.to_delayed().ravel()
        paths = [str(Path(folder) / f"{i}.npy") for i in range(len(blocks))]
        save = dask.delayed(np.save)
        saved = [save(path, block) for path, block in zip(paths, blocks, strict=True)]
        for future in cluster.client.compute(saved):
            future.result()
        parts = [np.load(path, mmap_mode="r") for path in paths]
        self.loo_log_proba_ = dask.array.concatenate(
            [dask.array.from_array(part, chunks=-1) for part in parts]
        )
        self._training = None

    def score(self, X: InputRows, y: InputLabels, sample_weight: InputWeights = None) -> float:
        """Mean accuracy; computed on the cluster for Dask collections."""
        if not is_dask_collection(X):
            return float(super().score(X, y, sample_weight))
        labels = y.to_dask_array() if isinstance(y, dask.dataframe.Series) else y
        right = self.predict(X) == labels
        if sample_weight is None:
            return float(right.mean().compute())
        return float(((right * sample_weight).sum() / sample_weight.sum()).compute())

    def _predicted(self, method: Callable[..., R], X: InputRows, options: dict[str, object]) -> R:
        check_is_fitted(self)
        self._refuse_offset(options.pop("offset", None))
        if not is_dask_collection(X):
            return super()._predicted(method, X, options)
        self.model_.prior  # noqa: B018  (computed here once: workers may not know a user's kernel)
        predictor = self._as_local()
        predictor.n_jobs = 1
        return cast(R, lazily(predictor, method.__name__, X, **options))

    def to_local(self) -> TrainedGPClassifier:
        """Return the fitted classifier of one machine, which needs no Dask and predicts the same.

        `loo_log_proba_` is brought here from the workers; it is NaN if their cluster has been closed.
        That of a classifier which is not fitted is not fitted either.
        """
        local = self._as_local()
        if "loo_log_proba_" in vars(self):
            local.loo_log_proba_ = self._collected(self.loo_log_proba_)
        return local

    def _as_local(self) -> TrainedGPClassifier:
        """A local classifier with what a pickle would hold of this one."""
        state = self.__getstate__()
        del state["client"]
        local = self._local.__new__(self._local)
        local.__dict__.update(restored_state(state))
        return local

    def _collected(self, values: dask.array.Array) -> Array:
        """The values of a lazy array [n], or NaN if the workers that held them are gone."""
        if isinstance(values, np.ndarray):  # of a chunk of a stream
            return values
        if self.client is None:
            return np.asarray(values.compute(scheduler="threads"))
        if self.client.status != "running":
            return np.full(values.shape, np.nan)
        return np.asarray(self.client.compute(values).result())

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted model to one file, as a classifier of one machine; see `cavity.save`."""
        self.to_local().save(path)

    def __getstate__(self) -> State:
        # Futures and files of a cluster mean nothing elsewhere; what predicts is kept.
        state = {**super().__getstate__(), "client": None}
        state.pop("loo_log_proba_", None)
        return state


class DaskSEPClassifier(DaskClassifier):
    """`cavity.SEPClassifier` on the workers of a Dask cluster.

    The rows stay with the workers, as shards; each worker refines the sites of its own rows, and the
    driver sees sums. The result does not depend on the number of workers, nor on which of them did what,
    and a lost worker costs time but not the fit.

    Parameters
    ----------
    client : distributed.Client or None
        The cluster to fit on. None starts one on this machine, of `n_jobs` processes, for the fit.

    All other parameters and all attributes are those of `SEPClassifier`; `loo_log_proba_` is a lazy Dask
    array, and so are predictions for Dask collections. `to_local` returns a `SEPClassifier` that needs
    no Dask.

    Examples
    --------
    >>> from cavity import DaskSEPClassifier
    >>> DaskSEPClassifier(n_inducing=20).get_params()["client"] is None
    True
    """

    _method: ClassVar[str] = "ep"
    _method_in_words: ClassVar[str] = SEPClassifier._method_in_words
    _local: ClassVar[type[TrainedGPClassifier]] = SEPClassifier


class DaskSVIClassifier(DaskClassifier):
    """`cavity.SVIClassifier` on the workers of a Dask cluster; see `DaskSEPClassifier`.

    Examples
    --------
    >>> from cavity import DaskSVIClassifier
    >>> DaskSVIClassifier(n_inducing=20).get_params()["client"] is None
    True
    """

    _method: ClassVar[str] = "vi"
    _method_in_words: ClassVar[str] = SVIClassifier._method_in_words
    _local: ClassVar[type[TrainedGPClassifier]] = SVIClassifier
