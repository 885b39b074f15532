"""`cavity fit` on a Dask cluster: one of this machine (--workers) or of many (--scheduler)."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import Any

import numpy as np

from cavity.cli.fitting import FitRequest
from cavity.cli.guard import CommandError, say

_PATIENCE = "10s"


def train_on_cluster(request: FitRequest, model: Any, table: Any, parameters: dict[str, Any]) -> None:
    """Train a table classifier on the workers; what is kept of it needs no cluster."""
    import cavity
    from cavity.dask import DaskSEPClassifier, DaskSVIClassifier
    from cavity.dask.prediction import local_twin
    from cavity.tables.dask_rows import dask_rows

    kinds = {
        "sep": (DaskSEPClassifier, cavity.SEPClassifier),
        "svi": (DaskSVIClassifier, cavity.SVIClassifier),
    }
    distributed, local = kinds[request.method]
    with _client(request) as client:
        classifier = distributed(client=client, **parameters)
        classifier.fit(*dask_rows(table, model.preprocessor_, model.labels_, model.weight_))
        kept = local_twin(classifier, local)
        kept.loo_log_proba_ = np.asarray(classifier.loo_log_proba_)
        kept.history_ = classifier.history_
        kept.n_jobs, kept._training, kept._stream = request.jobs, None, None
    kept.feature_names_in_ = model.get_feature_names_out()
    model.set_params(classifier=local(**parameters))
    model.keep(kept)


@contextmanager
def _client(request: FitRequest) -> Iterator[Any]:
    from distributed import Client, LocalCluster

    if request.scheduler is None:
        with _interrupts_held_back():
            cluster = LocalCluster(
                n_workers=request.workers,
                threads_per_worker=1,
                dashboard_address=":0",
                silence_logs=logging.ERROR,
            )
        with cluster, Client(cluster) as client:
            say(f"{request.workers} workers; dashboard: {client.dashboard_link}")
            yield client
        return
    try:
        client = Client(request.scheduler, timeout=_PATIENCE)
    except (OSError, ValueError) as error:
        raise CommandError(
            f"--scheduler {request.scheduler}: no Dask scheduler answers there"
        ) from error
    with client:
        say(f"cluster at {request.scheduler}; dashboard: {client.dashboard_link}")
        yield client


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Threads and processes that are started here never hear of Ctrl-C; this thread hears of it later.

    A terminal sends it to all processes at once, and workers that die of it each print a traceback and
    are started again. They end with the cluster, which is closed when this process has heard of it.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    # The first process that multiprocessing starts brings its tracker along, which would unblock them.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
