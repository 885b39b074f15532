"""Real clusters of worker processes, and ways to disturb them."""

import logging
import multiprocessing
import os
import signal
import time
from contextlib import contextmanager
from multiprocessing import forkserver

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster

from cavity.inference.history import reporting

QUIET = [
    # Dask leaves sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def prepare_processes():
    """Start the process from which workers are forked; it has imported what every worker needs."""
    multiprocessing.get_context("forkserver").set_forkserver_preload(
        ["distributed.nanny", "cavity.estimators.dask"]
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")  # as in workers; it counts when NumPy is imported
        forkserver.ensure_running()


@contextmanager
def forked_workers():
    """A block in which a cluster starts in a moment, not seconds: its workers need not import anything.

    Some time after the loss of a worker Dask closes its nanny if the worker is not there; one that was
    killed again just then must not be given up for that. Who was about to fetch something from a worker
    that is killed tries to connect to it for some seconds, instead of half a minute.
    """
    prepare_processes()
    with dask.config.set(
        {
            "distributed.comm.timeouts.connect": "10s",
            "distributed.deploy.lost-worker-timeout": "1h",
            "distributed.worker.multiprocessing-method": "forkserver",
        }
    ):
        yield


@contextmanager
def started(n_workers, **options):
    """A client of a new cluster of single-threaded processes on this machine."""
    with (
        forked_workers(),
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,
            **options,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def chunked(X, y, chunks):
    """X and y as Dask arrays with these row chunks."""
    return da.from_array(X, chunks=(chunks, -1)), da.from_array(np.asarray(y), chunks=(chunks,))


def worker_pids(client):
    """Process ids of the workers, by address."""
    return client.run(os.getpid)


def kill_a_worker(client):
    """SIGKILL to a worker process that does some of the work."""
    os.kill(next(iter(worker_pids(client).values())), signal.SIGKILL)


def wait_for_workers(client, n, seconds=600):
    """Until there are n workers; the limit only ends a broken test."""
    deadline = time.monotonic() + seconds
    while len(client.nthreads()) != n:
        assert time.monotonic() < deadline
        time.sleep(0.05)


class At:
    """A reporter that does something after certain iterations."""

    def __init__(self, *iterations, do):
        self.iterations = set(iterations)
        self.do = do
        self.done = 0

    def update(self, iteration, share):
        if iteration.iteration in self.iterations:
            self.do()
            self.done += 1

    def __enter__(self):
        self._context = reporting(self)
        self._context.__enter__()
        return self

    def __exit__(self, *exception):
        self._context.__exit__(*exception)
