"""The cluster of a fit: the user's, or one on this machine that is closed after the fit."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from distributed import Client, LocalCluster

from cavity.dask.faults import Cluster


@contextmanager
def cluster_for(client: Client | None, n_workers: int, checkpoint: Any) -> Iterator[Cluster]:
    """The client's cluster, or a new one of `n_workers` processes with one thread each."""
    if client is not None:
        if not isinstance(client, Client):
            raise TypeError(
                f"client={client!r} is a {type(client).__name__}; pass a distributed.Client, for "
                'instance Client("tcp://scheduler:8786"), or None for a cluster on this machine'
            )
        yield Cluster(client, checkpoint)
        return
    with (
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",  # any free port: another cluster may have the usual one
            silence_logs=logging.ERROR,
        ) as own,
        Client(own, set_as_default=False) as connection,
    ):
        yield Cluster(connection, checkpoint)
