"""What makes a class the twin of a local classifier: one more parameter, and what is said of it.

Progress of a fit on a cluster: also rows a second, and workers.

Predictions on Dask collections: lazy, block by block, where the rows are.

The twins of the local classifiers that fit on a Dask cluster.
"""

from __future__ import annotations

import copy
import inspect
import shutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import dask
import dask.array
import dask.dataframe
import numpy as np
from dask.base import is_dask_collection
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from cavity.data.labels import check_classes
from cavity.data.scaling import Standardizer
from cavity.data.source import tile_precision
from cavity.engines.dask.cluster import Cluster, cluster_for
from cavity.engines.dask.collections import lazy_table
from cavity.engines.dask.engine import DaskEngine, HeldOutRows
from cavity.engines.dask.shards import ShardedSource
from cavity.engines.protocol import Engine
from cavity.engines.threads import Threads, thread_count
from cavity.estimators.sep import SEPClassifier
from cavity.estimators.streaming import SteppedGPClassifier
from cavity.estimators.svi import SVIClassifier
from cavity.gp.uncertainty import Uncertainty
from cavity.inference.history import Iteration, Progress
from cavity.inference.trainer import held_out_numbers
from cavity.typing import Array

Twin = TypeVar("Twin", bound=type)

_MORE = """

    The rows stay with the workers, as shards; each worker refines the sites of its own, and the driver
    sees sums. The result does not depend on the number of workers, nor on which of them did what, and a
    worker that is lost costs time and not the fit.

    Parameters
    ----------
    client : distributed.Client or None
        The cluster to fit on. None starts one on this machine, of `n_jobs` processes, for the fit.

    All other parameters and all attributes are those of `{local}`; `loo_log_proba_` is a lazy Dask
    array.

    Examples
    --------
    >>> from cavity import {twin}
    >>> {twin}(n_inducing=20).get_params()["client"] is None
    True
    """


def twin_of(local: Any) -> Callable[[Twin], Twin]:
    """Makes a subclass of `local` its twin: its constructor with `client`, its documentation."""

    def complete(twin: Twin) -> Twin:
        twin.__init__ = _with_client(local)  # type: ignore[misc]
        twin.__doc__ = f"{twin.__doc__}{_MORE.format(local=local.__name__, twin=twin.__name__)}"
        attributes: Any = twin
        attributes._local = local
        attributes._parameter_constraints = {
            **local._parameter_constraints,
            "client": "no_validation",
        }
        return twin

    return complete


def _with_client(local: type) -> Callable[..., None]:
    """The constructor of `local` and one more parameter, `client`, by whatever others it has."""

    def initialize(self: Any, kernel: Any = None, *, client: Any = None, **parameters: Any) -> None:
        local.__init__(self, kernel, **parameters)  # type: ignore[misc]
        self.client = client

    signature = inspect.signature(local.__init__)  # type: ignore[misc]
    client = inspect.Parameter("client", inspect.Parameter.KEYWORD_ONLY, default=None)
    together = [*signature.parameters.values(), client]
    initialize.__signature__ = signature.replace(parameters=together)  # type: ignore[attr-defined]
    return initialize


class ClusterProgress(Progress):
    """As on one machine, with the throughput and the workers there are."""

    def __init__(self, verbose: int, cluster: Cluster, n_rows: int) -> None:
        super().__init__(verbose)
        self._cluster = cluster
        self._n_rows = n_rows
        self._last = (0.0, 0.0)

    def _more(self, entry: Iteration) -> str:
        epochs, seconds = entry.epochs - self._last[0], entry.seconds - self._last[1]
        self._last = (entry.epochs, entry.seconds)
        rate = self._n_rows * max(0.0, epochs) / max(seconds, 1e-9)
        return f"  {rate:12,.0f} rows/s  {self._cluster.n_workers} workers"


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


class DaskClassifier(SteppedGPClassifier):
    """What the twins share: rows in shards, passes on workers, lazy predictions."""

    _local: ClassVar[type]
    client: Any
    _cluster: Cluster

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> DaskClassifier:
        """Fit to rows of a Dask array or DataFrame X [n, d] with labels y [n], partitioned alike.

        X may also be the path or URL of a Parquet file, or of a folder of them, with y the name of the
        target column. `sample_weight` [n] is partitioned like y or, for Parquet, the name of a column; a
        weight of w counts a row w times, 0 leaves it out. Without a client, a cluster of `n_jobs`
        processes is started and closed again.
        """
        table = lazy_table(X, y, sample_weight)
        with cluster_for(self.client, thread_count(self.n_jobs), self.checkpoint) as self._cluster:
            try:
                super().fit(table)
                if self.client is None:
                    self._move_out()
            finally:
                del self._cluster
        return self

    def _validated_source(self, X: Any, y: Any, sample_weight: Any) -> tuple[ShardedSource, Array]:
        source = ShardedSource(X, self._cluster, self.class_weight)
        check_classification_targets(source.classes)
        self.n_features_in_ = source.n_features
        if source.feature_names is not None:
            self.feature_names_in_ = source.feature_names
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        return source, check_classes(source.classes, source.n_rows)

    def _progress(self, source: Any) -> Progress:
        progress = ClusterProgress(int(self.verbose), self._cluster, source.n_rows)
        progress.say(
            f"{self._cluster.n_workers} workers, {len(source.groups)} tasks a pass; dashboard: "
            f"{self._cluster.client.dashboard_link}"
        )
        return progress

    def _standardizer(self, source: Any, threads: Threads) -> Standardizer:
        if not isinstance(source, ShardedSource):
            return super()._standardizer(source, threads)
        return source.standardizer(whiten=self._whitens)

    def _hold_out(self, source: Any, rng: np.random.RandomState) -> Any:
        if not isinstance(source, ShardedSource):
            return super()._hold_out(source, rng)
        numbers = held_out_numbers(source.n_rows, self.validation_fraction, rng)
        return HeldOutRows(numbers, source.take(numbers))

    def _engine(
        self, source: Any, standardizer: Standardizer, threads: Threads, held_out: Any, stored: int
    ) -> Engine:
        if not isinstance(source, ShardedSource):
            return super()._engine(source, standardizer, threads, held_out, stored)
        return DaskEngine(source, standardizer, self._rule(), threads, held_out, stored)

    def _move_out(self) -> None:
        """Keep what is still needed of a cluster that is about to be closed: in files, not in memory."""
        folder = tempfile.mkdtemp(prefix="cavity-loo-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        blocks = self.loo_log_proba_.to_delayed().ravel()
        paths = [str(Path(folder) / f"{i}.npy") for i in range(len(blocks))]
        save = dask.delayed(np.save)
        client = self._cluster.client
        for future in client.compute([save(p, b) for p, b in zip(paths, blocks, strict=True)]):
            future.result()
        parts = [np.load(path, mmap_mode="r") for path in paths]
        self.loo_log_proba_ = dask.array.concatenate(
            [dask.array.from_array(part, chunks=-1) for part in parts]
        )
        self._training = None

    def latent_mean_and_variance(self, X: Any) -> tuple[Any, Any]:
        """As on one machine; lazy Dask arrays for Dask collections."""
        mean, variance = self._predicted("latent_mean_and_variance", X)
        return mean, variance

    def predict_log_proba(self, X: Any) -> Any:
        """Log probabilities of the classes; lazy for Dask collections."""
        return self._predicted("predict_log_proba", X)

    def predict_proba(self, X: Any) -> Any:
        """Probabilities of the classes; lazy for Dask collections."""
        return self._predicted("predict_proba", X)

    def decision_function(self, X: Any) -> Any:
        """The score of the classes; lazy for Dask collections."""
        return self._predicted("decision_function", X)

    def predict(self, X: Any) -> Any:
        """The most probable class of each row; lazy for Dask collections."""
        return self._predicted("predict", X)

    def predict_uncertainty(self, X: Any) -> Uncertainty:
        """Entropy of the predictions, split as on one machine; lazy for Dask collections."""
        split: Uncertainty = self._predicted("predict_uncertainty", X)
        return split

    def ood_score(self, X: Any) -> Any:
        """How far rows are from what was learned; lazy for Dask collections."""
        return self._predicted("ood_score", X)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Mean accuracy; computed on the cluster for Dask collections."""
        if not is_dask_collection(X):
            return float(super().score(X, y, sample_weight))
        labels = y.to_dask_array() if hasattr(y, "to_dask_array") else y
        right = self.predict(X) == labels
        if sample_weight is None:
            return float(right.mean().compute())
        return float(((right * sample_weight).sum() / sample_weight.sum()).compute())

    def _predicted(self, method: str, X: Any) -> Any:
        check_is_fitted(self)
        if is_dask_collection(X):
            return lazily(local_twin(self, self._local), method, X)
        return getattr(super(), method)(X)

    def save(self, path: Any) -> None:
        """Write the fitted model to one file, as a classifier of one machine; see `cavity.save`."""
        check_is_fitted(self)
        local_twin(self, self._local).save(path)

    def __getstate__(self) -> dict[str, Any]:
        # Futures and files of a cluster mean nothing elsewhere; what predicts is kept.
        state = {**super().__getstate__(), "client": None}
        for name in ("loo_log_proba_", "_cluster"):
            state.pop(name, None)
        return state


@twin_of(SEPClassifier)
class DaskSEPClassifier(DaskClassifier, SEPClassifier):
    """`cavity.SEPClassifier` on the workers of a Dask cluster."""


@twin_of(SVIClassifier)
class DaskSVIClassifier(DaskClassifier, SVIClassifier):
    """`cavity.SVIClassifier` on the workers of a Dask cluster."""
