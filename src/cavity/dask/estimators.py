"""The twins of the local classifiers that fit on a Dask cluster."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any, ClassVar

import dask.array
import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from cavity.dask.cluster import Cluster, cluster_for
from cavity.dask.collections import lazy_table
from cavity.dask.engine import DaskEngine, HeldOutRows
from cavity.dask.prediction import is_dask_collection, lazily, local_twin
from cavity.dask.progress import ClusterProgress
from cavity.dask.source import ShardedSource
from cavity.dask.twins import twin_of
from cavity.engines.protocol import Engine
from cavity.engines.threads import Threads, thread_count
from cavity.estimators.sep import SEPClassifier
from cavity.estimators.stepped import SteppedGPClassifier
from cavity.estimators.svi import SVIClassifier
from cavity.estimators.validation import checked_classes
from cavity.problem import held_out_numbers
from cavity.schedules.progress import Progress
from cavity.standardize import Standardizer
from cavity.typing import Array
from cavity.uncertainty import Uncertainty


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
        return source, checked_classes(source.classes, source.n_rows)

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
