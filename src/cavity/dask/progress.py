"""Progress of a fit on a cluster: also rows a second, and workers."""

from __future__ import annotations

from cavity.dask.cluster import Cluster
from cavity.history import Iteration
from cavity.schedules.progress import Progress


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
