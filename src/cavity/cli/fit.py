"""How long training may take, as people write it.

`cavity fit` on a Dask cluster: one of this machine (--workers) or of many (--scheduler).

`cavity fit`.
"""

from __future__ import annotations

import logging
import re
import signal
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import numpy as np

from cavity.cli.guard import CommandError, InterruptedFitError, say
from cavity.cli.io import checked_output, print_json
from cavity.cli.progress import progress_shown, shown_until_interrupted

_SECONDS = {"s": 1.0, "sec": 1.0, "second": 1.0, "m": 60.0, "min": 60.0, "minute": 60.0}
_SECONDS |= {"h": 3_600.0, "hour": 3_600.0}
_EPOCHS = {"e", "epoch"}
_ITERATIONS = {"i", "it", "iteration"}
_FORM = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]+)\s*", re.IGNORECASE)


def parsed_budget(words: str | None) -> dict[str, Any]:
    """The parameters of an estimator that a budget means.

    >>> parsed_budget("90s"), parsed_budget("1.5 hours")
    ({'max_seconds': 90.0}, {'max_seconds': 5400.0})
    >>> parsed_budget("3e"), parsed_budget("50 iterations")
    ({'max_epochs': 3.0}, {'max_iter': 50})
    """
    if words is None:
        return {}
    match = _FORM.fullmatch(words)
    if match and float(match[1]) > 0:
        number, unit = float(match[1]), match[2].lower()
        unit = unit if unit in ("s",) else unit.removesuffix("s")
        if unit in _SECONDS:
            return {"max_seconds": number * _SECONDS[unit]}
        if unit in _EPOCHS:
            return {"max_epochs": number}
        if unit in _ITERATIONS and number >= 1:
            return {"max_iter": int(number)}
    raise CommandError(
        f"--budget {words!r} is not understood; write 60s, 5m, 1h, '3 epochs' or '100 iterations'"
    )


_PATIENCE = "10s"


def train_on_cluster(request: FitRequest, model: Any, table: Any, parameters: dict[str, Any]) -> None:
    """Train a table classifier on the workers; what is kept of it needs no cluster."""
    import cavity
    from cavity.engines.dask.collections import dask_rows
    from cavity.estimators.dask import DaskSEPClassifier, DaskSVIClassifier, local_twin

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
    are started again. They end with the cluster, which is closed when this process has callback of it.
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


_CHECKPOINT_EVERY = 30.0


@dataclass(frozen=True)
class FitRequest:
    """What the user asked for."""

    data: str
    target: str
    output: str
    method: str = "sep"
    inducing: int = 100
    budget: str | None = None
    likelihood: str = "probit"
    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    weight: str | None = None
    whiten: bool = False
    workers: int | None = None
    scheduler: str | None = None
    resume: bool = False
    seed: int = 0
    jobs: int | None = None
    force: bool = False

    @property
    def distributed(self) -> bool:
        """Whether it is a fit on a Dask cluster."""
        return self.workers is not None or self.scheduler is not None

    @property
    def checkpoint(self) -> Path:
        """Where training is saved on the way."""
        return Path(f"{self.output}.checkpoint")


def run_fit(request: FitRequest, json: bool) -> None:
    """Fit, save, and say what came of it."""
    from cavity.data.table import open_table
    from cavity.estimators.table import TableClassifier

    output = checked_output(request.output, request.force)
    parameters = _parameters(request)
    table = open_table(request.data)
    model = TableClassifier(
        drop=request.drop, categorical=request.categorical, folder=str(output.parent)
    )
    begun = time.perf_counter()
    with _explained(request), progress_shown() as watcher:
        watcher.stage(f"reading {request.data}")
        model.learn_columns(table, request.target, request.weight)
        watcher.n_rows = int(model.labels_.counts.sum())
        watcher.stage(f"choosing where to start, on {watcher.n_rows:,} rows")
        with _convergence_in_words(), shown_until_interrupted(watcher):
            _train(request, model, table, parameters)
    model.note_costs(time.perf_counter() - begun)
    _forget_places(model)
    _save(model, output)
    request.checkpoint.unlink(missing_ok=True)
    for note in model.notes_:
        say(note)
    summary = _summary(model, request)
    if json:
        print_json(summary)
    else:
        say(_words(summary))


def _save(model: Any, output: Path) -> None:
    """Write the model; a disk that is full by now is a failure, not bad input, and the model is kept."""
    from cavity.errors import ModelFileError

    try:
        model.save(output)
    except ModelFileError as error:
        if not isinstance(error.__cause__, OSError):
            raise
        elsewhere = Path(tempfile.mkdtemp(prefix="cavity-")) / output.name
        try:
            model.save(elsewhere)
        except ModelFileError:
            elsewhere.parent.rmdir()
        else:
            say(f"the model could not be written where it should be; it is {elsewhere}")
        raise error.__cause__ from None


def _parameters(request: FitRequest) -> dict[str, Any]:
    """The classifier's parameters; refuses what does not go together."""
    budget = parsed_budget(request.budget)
    parameters = {
        "n_inducing": request.inducing,
        "likelihood": request.likelihood,
        "random_state": request.seed,
        "n_jobs": request.jobs,
        **budget,
    }
    if request.whiten:
        parameters["standardize"] = "whiten"
    if request.method == "gfitc":
        if "max_epochs" in budget:
            raise CommandError(
                f"--budget {request.budget!r} does not go with --method gfitc, which takes as many "
                "epochs as its iterations need: write '100 iterations', or 60s"
            )
        if request.resume or request.distributed:
            option = "--resume" if request.resume else "--workers and --scheduler"
            raise CommandError(f"{option}: --method gfitc cannot do that; sep and svi can")
        return parameters
    checkpoint = request.checkpoint
    if request.resume and not checkpoint.exists():
        say(f"{checkpoint}: there is no such checkpoint to go on from; the fit starts afresh")
    if checkpoint.exists() and not request.resume:
        if not request.force:
            raise CommandError(
                f"{checkpoint}: is left of a fit that was stopped; --resume goes on from it, --force "
                "starts afresh"
            )
        checkpoint.unlink()
    return {**parameters, "checkpoint": str(checkpoint), "checkpoint_interval": _CHECKPOINT_EVERY}


def _train(request: FitRequest, model: Any, table: Any, parameters: dict[str, Any]) -> None:
    import cavity

    if request.distributed:
        train_on_cluster(request, model, table, parameters)
        return
    kinds = {
        "sep": cavity.SEPClassifier,
        "svi": cavity.SVIClassifier,
        "gfitc": cavity.GFITCClassifier,
    }
    model.set_params(classifier=kinds[request.method](**parameters))
    model.train(table)


@contextmanager
def _convergence_in_words() -> Iterator[None]:
    """The warning of a fit that had no time to converge, in the words of the command line."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        if issubclass(warning.category, ConvergenceWarning):
            say("warning: training ended before it converged; a larger --budget may do better")
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


@contextmanager
def _explained(request: FitRequest) -> Iterator[None]:
    """Ctrl-C says what is left of the fit."""
    try:
        yield
    except KeyboardInterrupt:
        if request.method != "gfitc" and request.checkpoint.exists():
            words = f"no model was written, and --resume goes on from {request.checkpoint}"
            raise InterruptedFitError(f"interrupted; {words}") from None
        raise


def _forget_places(model: Any) -> None:
    """Paths of this machine are no business of the model file."""
    model.set_params(folder=None)
    for classifier in (model.classifier, model.classifier_):
        if "checkpoint" in classifier.get_params(deep=False):
            default = type(classifier)().checkpoint_interval
            classifier.set_params(checkpoint=None, checkpoint_interval=default)


def _summary(model: Any, request: FitRequest) -> dict[str, Any]:
    from cavity.cli.inspect import description

    return {"model": request.output, **description(model)}


def _words(summary: dict[str, Any]) -> str:
    training = summary["training"]
    loo = training["leave_one_out_nll"]
    score = "" if loo is None else f"; leave-one-out NLL {loo:.4f}"
    return (
        f"{summary['model']}: {training['rows']:,} rows, {len(summary['columns'])} columns, "
        f"{summary['features']} features, {training['inducing_points']} inducing points, "
        f"{training['seconds']:.1f} s{score}"
    )
