"""The command `cavity fit`, on this machine or on a Dask cluster."""

from __future__ import annotations

import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING

from cavity.cli.guard import CommandError, Settings, SignalledError, ending_early, say
from cavity.cli.holdout import cross_validated, held_out_scores, holdout_parts, in_a_line
from cavity.cli.inspect import description, points, score_line, training_length
from cavity.cli.io import STDIN, checked_output, opened_table, print_json
from cavity.cli.options import FitRequest, KernelName, Method, Reading, ScalingName
from cavity.cli.progress import progress_shown
from cavity.data.table import Table
from cavity.errors import ModelFileError
from cavity.estimators.base import SparseGPClassifier
from cavity.estimators.gfitc import GFITCClassifier
from cavity.estimators.sep import SEPClassifier
from cavity.estimators.svi import SVIClassifier
from cavity.estimators.table import TableClassifier
from cavity.inference.checkpoint_file import race_file
from cavity.inference.history import reporting
from cavity.text import listed
from cavity.typing import AnyArray, JsonObject

if TYPE_CHECKING:
    from distributed import Client

CHECKPOINT_SECONDS = 30.0
"""Seconds between two checkpoints of a fit. That is half of what classifiers take: of a command that is
killed, only its last checkpoint remains."""
_SCHEDULER_TIMEOUT = "10s"
"""How long a Dask scheduler may take to answer."""
_CLASSIFIERS = {"sep": SEPClassifier, "svi": SVIClassifier, "gfitc": GFITCClassifier}
_AUTO = {"auto": "auto"}


def _checkpoint(request: FitRequest) -> Path:
    """File from which an interrupted fit continues."""
    return Path(f"{request.output}.checkpoint")


def _unfinished(request: FitRequest) -> list[Path]:
    """Files of an interrupted fit: its checkpoint, and the finished trials of its race."""
    checkpoint = _checkpoint(request)
    files = (checkpoint, race_file(checkpoint))
    return [path for path in files if request.method is not Method.gfitc and path.exists()]


def _remove_unfinished(request: FitRequest) -> None:
    for path in _unfinished(request):
        path.unlink(missing_ok=True)


def run_fit(request: FitRequest, reading: Reading, settings: Settings) -> None:
    """Fit a classifier to a table, save it and print a summary."""
    if request.target is None:
        raise CommandError("--target is missing: name the column to predict")
    if request.target in (request.drop or ()):
        raise CommandError(f"--drop {request.target!r} would leave the target out; drop another column")
    parameters = _classifier_parameters(request, settings.force)
    # An interrupted fit has written a model, which the same fit may replace when it is resumed.
    resumes = request.resume and bool(_unfinished(request))
    output = checked_output(request.output, settings.force or resumes, (request.data,))
    with opened_table(request.data, reading) as table, signals_explained(request):
        _fit_table(request, request.target, parameters, table, output, settings)


def _fit_table(
    request: FitRequest,
    target: str,
    parameters: JsonObject,
    table: Table,
    output: Path,
    settings: Settings,
) -> None:
    held_out = None
    if request.holdout is not None:
        table, held_out = holdout_parts(table, request.holdout, request.seed)
    model = TableClassifier(
        drop_features=tuple(request.drop or ()),
        categorical_features=tuple(request.categorical or ()),
        cache_dir=str(output.parent),
    )
    with (
        progress_shown(settings.quiet) as watcher,
        reporting(watcher),
        _classifier(request, parameters) as estimator,
    ):
        estimator._check_parameters()  # before the table is read, which may take long
        watcher.stage(f"reading {table.name}")
        started = time.perf_counter()
        model.learn_columns(table, target, request.weight)
        if request.class_weight:
            weights = parsed_class_weight(request.class_weight, model.labels_.values)
            estimator.set_params(class_weight=weights)
        model.estimator = estimator
        stopped = _train_and_save(model, table, request, output, started)
    for note in model.notes_:
        say(note)
    summary = print_summary(model, request.output, settings)
    if stopped is not None:
        raise SignalledError(stopped, _how_to_go_on(request, summary), summary)
    _remove_unfinished(request)
    scores: dict[str, JsonObject] = {}
    if held_out is not None:
        scores["holdout"] = held_out_scores(model, held_out, request.weight, settings.quiet)
    if request.cv is not None:
        with progress_shown(settings.quiet) as watcher:
            watcher.stage(f"cross-validation in {request.cv} folds")
            scores["cross_validation"] = cross_validated(model, table, request.cv, request.seed)
    if settings.json:
        print_json({**summary, **scores})
    else:
        for name, found in scores.items():
            say(f"{name.replace('_', '-')}, {in_a_line(found)}")


def print_summary(model: TableClassifier, path: str, settings: Settings) -> JsonObject:
    """The summary of a model that was written, as plain data and, unless as JSON, on standard error."""
    summary = {"model": path, **description(model)}
    if not settings.json:
        say(summary_line(summary))
    return summary


def _train_and_save(
    model: TableClassifier, table: Table, request: FitRequest, output: Path, started: float
) -> int | None:
    """Train a model and write it; if a signal ends the training early, as far as it has come.

    started: when the fit began, by `time.perf_counter`. Returns the number of the signal.
    """

    def discard() -> None:
        if not request.resume:  # files of an earlier fit, with --force, once this one has its rows
            _remove_unfinished(request)

    with ending_early() as first:
        model.train(table, ready=discard)
        model.note_costs(time.perf_counter() - started)
        first.is_only_noted = True  # nothing that was learned is lost any more
        stopped = first.number
        if stopped is not None and not model.estimator_.n_iter_ and output.exists():
            # A model of an earlier process is there, and this one has not come as far.
            raise SignalledError(stopped, f"{output} stays as it was; --resume goes on")
        save_model(model, output)
    if stopped is None and first.number is not None:
        raise SignalledError(first.number)  # at the end of a fit that is complete
    return stopped


def _how_to_go_on(request: FitRequest, summary: JsonObject) -> str:
    """What a fit that was stopped has written, and how it is continued."""
    words = f"the model of {training_length(summary['training'])} is {request.output}"
    if not _unfinished(request):
        return f"{words}; there is no checkpoint from which this fit could go on"
    return f"{words}; the same command with --resume goes on, also with another --budget"


def summary_line(summary: JsonObject) -> str:
    """Format the summary of a fit as one line."""
    training, positive = summary["training"], ""
    if summary["positive"] is not None:
        positive = f"; positive class {str(summary['positive'])!r}"
    return (
        f"{summary['model']}: {training['rows']:,} rows, {len(summary['columns'])} columns, "
        f"{summary['features']} features, {points(training)}, "
        f"{training['seconds']:.1f} s; {score_line(training)}{positive}"
    )


def _classifier_parameters(request: FitRequest, force: bool) -> JsonObject:
    """Parameters of the classifier; options that contradict each other are refused."""
    if request.workers is not None and request.scheduler is not None:
        raise CommandError(
            "--workers starts a cluster and --scheduler uses one that is running; give only one of them"
        )
    if request.scheduler is not None and request.data == STDIN:
        raise CommandError(
            "a cluster cannot read standard input; write it to a file that its workers see"
        )
    budget = parsed_budget(request.budget)
    parameters: JsonObject = {
        "n_inducing": _number_or_word("--inducing", request.inducing),
        "scaling": None if request.scaling is ScalingName.none else request.scaling.value,
        "likelihood": request.likelihood.value,
        "random_state": request.seed,
        "n_jobs": request.jobs,
        **budget,
    }
    if request.distributed and (request.holdout is not None or request.cv is not None):
        raise CommandError(
            "--holdout and --cv cannot be used on a cluster; score a file of other rows with cavity "
            "evaluate"
        )
    if request.cv is not None and request.cv < 2:
        raise CommandError(f"--cv {request.cv} is too few; give 2 folds or more")
    kernel = {} if request.kernel is KernelName.auto else {"kernel_name": request.kernel.value}
    batch_size = _number_or_word("--batch-size", request.batch_size)
    leaves = _number_or_word("--leaves", request.leaves, {"none": None, "auto": "auto"}, example=64)
    if request.method is Method.gfitc:
        _check_gfitc(request, has_epochs="max_epochs" in budget)
        return parameters
    _check_checkpoint(request, force)
    if "max_iter" in parameters:  # on all rows an iteration is an epoch
        parameters["max_epochs"] = float(parameters.pop("max_iter"))
    return {
        **parameters,
        "batch_size": batch_size,
        "leaves": leaves,
        "checkpoint": str(_checkpoint(request)),
        "config": {"checkpoint_interval": CHECKPOINT_SECONDS, **kernel},
    }


def _check_gfitc(request: FitRequest, *, has_epochs: bool) -> None:
    """Refuse options that GFITC does not have; has_epochs: whether the budget is one of epochs."""
    if has_epochs:
        raise CommandError(
            f"--budget {request.budget!r} cannot be used with --method gfitc, which has no limit of "
            "epochs; give a number of iterations ('100 iterations') or a time (60s)"
        )
    given = {
        "--kernel": request.kernel is not KernelName.auto,
        "--batch-size": request.batch_size != "auto",
        "--leaves": request.leaves != "auto",
        "--resume": request.resume,
        "--workers and --scheduler": request.distributed,
    }
    for option, is_given in given.items():
        if is_given:
            raise CommandError(
                f"{option} cannot be used with --method gfitc; choose --method sep or svi"
            )


def _number_or_word(
    option: str, given: str, words: Mapping[str, str | None] = _AUTO, example: int = 200
) -> int | str | None:
    """The value of an option that is a positive whole number or one of some words with their values."""
    if given in words:
        return words[given]
    if not (given.isdecimal() and int(given) > 0):
        raise CommandError(
            f"{option} {given!r} is not understood; write {', '.join(words)} or a number such as "
            f"{example}"
        )
    return int(given)


def parsed_class_weight(
    words: Sequence[str], classes: AnyArray
) -> str | dict[str | int | float | bool, float]:
    """Read the words of `--class-weight` as the parameter `class_weight`, for classes [C].

    >>> import numpy as np
    >>> parsed_class_weight(["yes=5"], np.array(["no", "yes"]))
    {'yes': 5.0}
    """
    if list(words) == ["balanced"]:
        return "balanced"
    by_name = {str(value): value for value in classes.tolist()}
    weights = {}
    for word in words:
        name, _, number = word.rpartition("=")
        if name not in by_name:
            raise CommandError(
                f"--class-weight {word!r} names no class; write balanced, or CLASS=WEIGHT for one of "
                f"{listed(list(by_name))}"
            )
        try:
            weights[by_name[name]] = float(number)
        except ValueError:
            raise CommandError(
                f"--class-weight {word!r}: {number!r} is not a number; write one"
            ) from None
    return weights


def _check_checkpoint(request: FitRequest, force: bool) -> None:
    """Refuse to overwrite the checkpoint of an interrupted fit unless `force`."""
    unfinished = _unfinished(request)
    if request.resume:
        if not unfinished:
            say(
                f"{_checkpoint(request)}: there is no such checkpoint to resume from; the fit starts "
                "from scratch"
            )
    elif unfinished and not force:
        raise CommandError(
            f"{unfinished[0]}: exists already, from a fit that was interrupted; continue it with "
            "--resume, or start from scratch with --force"
        )


_BUDGET = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]+)\s*", re.IGNORECASE)
_UNIT_SECONDS = {"s": 1.0, "sec": 1.0, "second": 1.0, "m": 60.0, "min": 60.0, "minute": 60.0}
_UNIT_SECONDS |= {"h": 3_600.0, "hour": 3_600.0}


def parsed_budget(words: str | None) -> dict[str, float]:
    """Read the words of `--budget` as parameters of a classifier.

    >>> parsed_budget("90s"), parsed_budget("1.5 hours")
    ({'max_seconds': 90.0}, {'max_seconds': 5400.0})
    >>> parsed_budget("3e"), parsed_budget("50 iterations")
    ({'max_epochs': 3.0}, {'max_iter': 50})
    """
    if words is None:
        return {}
    match = _BUDGET.fullmatch(words)
    if match and float(match[1]) > 0:
        number, unit = float(match[1]), match[2].lower()
        unit = unit if unit == "s" else unit.removesuffix("s")
        if unit in _UNIT_SECONDS:
            return {"max_seconds": number * _UNIT_SECONDS[unit]}
        if unit in ("e", "epoch"):
            return {"max_epochs": number}
        if unit in ("i", "it", "iteration") and number >= 1:
            return {"max_iter": int(number)}
    raise CommandError(
        f"--budget {words!r} is not understood; write 60s, 5m, 1h, '3 epochs' or '100 iterations'"
    )


def save_model(model: TableClassifier, output: Path) -> None:
    """Write the model; if that fails, save it to a temporary folder and raise the error."""
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
            say(f"could not write {output}; the model was saved to {elsewhere} instead")
        raise error.__cause__ from None


@contextmanager
def signals_explained(request: FitRequest) -> Iterator[None]:
    """Let the message of a signal that ends the fit say what was written: a model or a checkpoint."""
    before, earlier = _identity(request.output), _identities(_unfinished(request))
    try:
        yield
    except SignalledError as error:
        if error.words is not None:
            raise
        words = "nothing was written"
        if _identity(request.output) != before:
            words = f"the model was written to {request.output}"
        elif _unfinished(request) and (request.resume or _identities(_unfinished(request)) != earlier):
            words = f"no model was written; --resume continues from {_unfinished(request)[0]}"
        raise SignalledError(error.number, words) from None


def _identities(paths: list[Path]) -> list[tuple[int, int] | None]:
    """Identities of files: with --force, those of an earlier fit stay until this one has its rows."""
    return [_identity(str(path)) for path in paths]


def _identity(path: str) -> tuple[int, int] | None:
    """Inode and time of change, which differ if the file is replaced; None if there is no file."""
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


@contextmanager
def _classifier(request: FitRequest, parameters: JsonObject) -> Iterator[SparseGPClassifier]:
    """The classifier that is trained, on this machine or on a cluster for as long as the block lasts."""
    if not request.distributed:
        yield _CLASSIFIERS[request.method.value](**parameters)
        return
    from cavity.estimators.dask import DaskSEPClassifier, DaskSVIClassifier

    kind = {"sep": DaskSEPClassifier, "svi": DaskSVIClassifier}[request.method.value]
    with _client(request) as client:
        yield kind(client=client, **parameters)


@contextmanager
def _client(request: FitRequest) -> Iterator[Client]:
    """Connect to the cluster at --scheduler, or start one of --workers on this machine."""
    from distributed import Client

    from cavity.engines.dask.cluster import own_cluster

    if request.workers is not None:
        with _interrupts_held_back():
            cluster = own_cluster(request.workers)
        with cluster, Client(cluster) as client:
            say(f"{request.workers} workers; dashboard: {client.dashboard_link}")
            yield client
        return
    try:
        client = Client(request.scheduler, timeout=_SCHEDULER_TIMEOUT)
    except (OSError, ValueError) as error:
        raise CommandError(
            f"--scheduler {request.scheduler}: no Dask scheduler answers there; start one, or give "
            "--workers"
        ) from error
    with client:
        say(f"cluster at {request.scheduler}; dashboard: {client.dashboard_link}")
        yield client


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Start processes that ignore Ctrl-C; this process receives it when the block has ended.

    A terminal sends Ctrl-C to all processes at once. Workers that it kills print a traceback each and
    are started again. Here they end with the cluster, which this process closes.
    """
    if sys.platform == "win32":
        yield
        return
    # The tracker starts with the first process of multiprocessing and would unblock the signal.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
