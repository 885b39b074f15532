"""The cluster of a fit: the user's, or one on this machine that is closed after the fit.

Work is repeated when workers are lost. A fit ends with an error if there is no worker for some time.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future as OutcomeFuture
from concurrent.futures import wait
from contextlib import contextmanager
from typing import Any

import dask
from distributed import Client, Future, KilledWorker, LocalCluster, Worker
from distributed.comm import CommClosedError
from distributed.utils import CancelledError

from cavity.errors import ClusterError

WORKER_TIMEOUT = 60.0
"""Seconds without any worker after which a fit gives up; the Dask configuration key
`cavity.worker-timeout` overrides it."""
HELD_SHARE = 0.6
"""Share of the workers' memory that rows may take: beyond it Dask writes them to disk."""
_POLL = 0.5
"""Seconds between two checks of the workers."""
_MOST_DEATHS = 3
"""Number of times in a row that workers may die while they run a task, before the fit ends."""

FAULTS = (CancelledError, KilledWorker, CommClosedError)
"""Errors of Dask that mean lost data or workers, not an error of the work itself."""


class DyingWorkersError(ClusterError, MemoryError):
    """Workers have died of a task, most often for lack of memory; a trial of a race then loses."""


class Cluster:
    """Client that repeats work after a worker is lost."""

    def __init__(self, client: Client, checkpoint: str | os.PathLike[str] | None = None) -> None:
        self.client = client
        self.checkpoint = checkpoint
        self.direct: bool | None = None
        """Whether the driver can connect to workers, not only to the scheduler; None: not known yet."""
        self.timeout = float(dask.config.get("cavity.worker-timeout", WORKER_TIMEOUT))

    def run(self, submit: Callable[[], list[Future]], repair: Callable[[], None]) -> list[Any]:
        """The results of what `submit` submits; after a fault, `repair` and submit again."""
        deaths = 0
        while True:
            try:
                return self.results(submit())
            except FAULTS as error:
                deaths = deaths + 1 if isinstance(error, KilledWorker) else 0
                if deaths == _MOST_DEATHS:
                    raise DyingWorkersError(
                        f"workers die while they run the tasks of this fit ({error}); give them more "
                        f"memory, or use more and smaller workers{self._resume_hint()}"
                    ) from error
                self.wait_for_workers()
                repair()

    @property
    def n_workers(self) -> int:
        """Number of workers now."""
        if self.client.status != "running":
            return 0
        try:
            return len(self.client.nthreads())
        except (OSError, CommClosedError):
            return 0

    def require_memory(self, needed: int, what: str, instead: str) -> None:
        """Raise `MemoryError` if `what` needs more bytes than the workers hold without spilling them.

        instead: the way out.
        """
        limits = self.client.run(_memory_limit, on_error="ignore").values()
        if limits and all(limits) and needed > HELD_SHARE * sum(limits):
            raise MemoryError(
                f"{what} needs {needed:,} bytes, and {sum(limits):,} are the memory of all workers, of "
                f"which a share of {HELD_SHARE} may hold rows; use {instead}"
            )

    def wait_for_workers(self) -> None:
        """Return when there is a worker, or raise a `ClusterError` after the time-out."""
        self._require(self._waiting_since(None))

    def _require(self, since: float | None) -> None:
        while since is not None:
            time.sleep(_POLL)
            since = self._waiting_since(since)

    def results(self, futures: list[Future]) -> list[Any]:
        """Wait for the results; raise a `ClusterError` if there is no worker for too long."""
        outcome: OutcomeFuture[list[Any]] = OutcomeFuture()

        async def gather() -> None:
            try:
                outcome.set_result(await self.client.gather(futures, direct=bool(self.direct)))
            except BaseException as error:
                outcome.set_exception(error)

        self.client.loop.add_callback(gather)
        while not wait([outcome], timeout=_POLL).done:
            self.wait_for_workers()
        return outcome.result()

    def _waiting_since(self, since: float | None) -> float | None:
        """Since when there has been no worker; None if there is one."""
        if self.n_workers:
            return None
        now = time.monotonic()
        since = now if since is None else since
        if now - since > self.timeout:
            raise ClusterError(
                f"the cluster {self.client!r} has had no worker for {self.timeout:g} s (Dask "
                "configuration key cavity.worker-timeout); start workers and fit again"
                f"{self._resume_hint()}"
            )
        return since

    def _resume_hint(self) -> str:
        """End of an error message: how the fit can be resumed."""
        if self.checkpoint is None:
            return "; with checkpoint=... a fit can be resumed"
        return f"; the same fit resumes from its checkpoint {os.fspath(self.checkpoint)!r}"


def _memory_limit(dask_worker: Worker) -> int | None:
    """Bytes that a worker may use; None if it has no limit."""
    limit: int | None = dask_worker.memory_manager.memory_limit
    return limit


def own_cluster(n_workers: int) -> LocalCluster:
    """Start `n_workers` processes with one thread each, which other machines cannot reach."""
    return LocalCluster(
        n_workers=n_workers,
        threads_per_worker=1,
        processes=True,
        dashboard_address="127.0.0.1:0",  # any free port: another cluster may use the default one
        silence_logs=logging.ERROR,
    )


@contextmanager
def cluster_for(
    client: Client | None, n_workers: int, checkpoint: str | os.PathLike[str] | None
) -> Iterator[Cluster]:
    """The client's cluster, or a new one of `n_workers` processes with one thread each."""
    if client is not None:
        if not isinstance(client, Client):
            raise TypeError(
                f"client={client!r} is a {type(client).__name__}; pass a distributed.Client, for "
                'instance Client("tcp://scheduler:8786"), or None for a cluster on this machine'
            )
        yield Cluster(client, checkpoint)
        return
    with own_cluster(n_workers) as own, Client(own, set_as_default=False) as connection:
        yield Cluster(connection, checkpoint)
