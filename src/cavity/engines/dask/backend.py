"""A fit on a Dask cluster: the rows stay with the workers, as shards."""

from __future__ import annotations

from collections.abc import Iterable

from cavity.data.moments import Moments
from cavity.data.sampling import HeldOut
from cavity.data.scaling import Scaling
from cavity.data.source import RowSource
from cavity.engines.backend import LocalBackend
from cavity.engines.dask.cluster import Cluster
from cavity.engines.dask.engine import DaskEngine
from cavity.engines.dask.shards import ShardedSource
from cavity.engines.protocol import Engine
from cavity.engines.threads import Threads


class DaskBackend(LocalBackend):
    """Runs passes over a `ShardedSource` on the workers that hold its shards."""

    def __init__(self, cluster: Cluster, threads: Threads) -> None:
        super().__init__(threads)
        self.cluster = cluster

    def _moments(self, source: RowSource, *, products: bool) -> Iterable[Moments]:
        """Moments of all shards."""
        assert isinstance(source, ShardedSource)
        return source.moments(products=products)

    def engine(
        self,
        source: RowSource,
        scaling: Scaling,
        n_latents: int,
        held_out: HeldOut | None = None,
        n_directions: int = 0,
    ) -> Engine:
        """The engine that sends passes to the workers."""
        assert isinstance(source, ShardedSource)
        return DaskEngine(source, scaling, n_latents, self.threads, held_out, n_directions)

    def status(self, rows_per_second: float) -> str:
        """Throughput and number of workers."""
        return f"  {rows_per_second:12,.0f} rows/s  {self.cluster.n_workers} workers"
