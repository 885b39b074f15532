"""Checkpoints: the state of a training run in a file, from which the same run can resume after a crash.

The file is a NumPy archive. It is written atomically, and each run leaves the files of other runs alone.
What is read is checked first: sizes, shapes and precisions must be those of the fit, and numbers finite.
"""

from __future__ import annotations

import json
import math
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cavity.data.scaling import Scaling
from cavity.engines.local import LocalEngine
from cavity.engines.protocol import Engine
from cavity.errors import CheckpointError, NumericalError, warn_user
from cavity.files import written_atomically
from cavity.inference.checkpoint_file import (
    Archive,
    Field,
    Fingerprint,
    prepare_path,
    race_file,
    remove,
    require_own,
    run_that_wrote,
    unreadable,
)
from cavity.inference.history import Iteration, Progress, StepInfo
from cavity.inference.schedule import Monitor
from cavity.inference.trainer import Trainer, TrainingState
from cavity.inference.updates import PosteriorUpdate
from cavity.typing import AnyArray, JsonObject

FORMAT = 6
"""Version of the file format; it increases when older files can no longer be read correctly."""
_LARGEST_COUNT = 2**53
"""Largest number of steps or epochs: larger ones are not exact as floating-point numbers."""
_FLOAT = np.dtype(np.float64)


@dataclass(frozen=True)
class Position:
    """How far a run has come, between two steps."""

    epoch: int = 0
    """Number of complete passes over the data."""
    batch: int = 0
    """Number of minibatches done in the current epoch."""
    step: int = 0
    """Number of steps done."""
    ending: float | None = None
    """Epochs at which the run decided to end early, if it did."""

    def after_step(self, whole: bool) -> Position:
        """The position after one more step, on all rows (`whole`) or on a minibatch."""
        if whole:
            return replace(self, epoch=self.epoch + 1, step=self.step + 1)
        return replace(self, batch=self.batch + 1, step=self.step + 1)

    def epochs(self, share: float) -> float:
        """Number of passes over the data so far, if a minibatch has this share of the rows."""
        return self.epoch + min(1.0, self.batch * share)

    @classmethod
    def from_json(cls, stored: object) -> Position:
        """The position that a checkpoint describes; it raises if that is impossible."""
        if not isinstance(stored, dict) or set(stored) != {field.name for field in fields(cls)}:
            raise ValueError(f"its position is {stored!r}")
        for name in ("epoch", "batch", "step"):
            if not (type(stored[name]) is int and 0 <= stored[name] <= _LARGEST_COUNT):
                raise ValueError(f"{name} is {stored[name]!r}, which is not a number of steps or epochs")
        ending, now = stored["ending"], stored["epoch"] + (stored["batch"] > 0)
        if ending is not None and not (type(ending) in (int, float) and 0.0 < ending <= now):
            raise ValueError(f"ending is {ending!r}, which is not between 0 and the present, {now}")
        return cls(**stored)


class Run(NamedTuple):
    """A training run between two steps: what a checkpoint holds, and what training goes on from."""

    trainer: Trainer
    """The trainer; in a run that is resumed, with the start of the one that wrote the checkpoint."""
    state: TrainingState
    position: Position
    progress: Progress
    monitor: Monitor


@dataclass
class Checkpointer:
    """Writes the whole state of a run to `path` at regular intervals; with path None it does nothing."""

    path: Path | None
    every: float
    """Seconds between two checkpoints."""
    make_fingerprint: Callable[[], Fingerprint]
    """Makes the fingerprint of the fit, which a checkpoint must match; called at most once."""
    _last: float = 0.0
    _writer: str | None = None
    """The run that wrote the file when this run last read or wrote it; None if there was no file."""
    _resumed: bool = False
    """Whether this run began with a checkpoint."""

    def __post_init__(self) -> None:
        self._last = time.monotonic()
        self._run = secrets.token_hex(8)

    @cached_property
    def _fingerprint(self) -> Fingerprint:
        return self.make_fingerprint()

    def after_step(self, run: Run) -> None:
        """Save a run, if the interval since the last checkpoint is over."""
        if self.path is None or time.monotonic() - self._last < self.every:
            return
        self.save(self.path, run)
        self._last = time.monotonic()

    def at_interruption(self, run: Run, exact: bool) -> None:
        """Save a run that the user has stopped, so that nothing of it is lost.

        exact: whether rows, state and records are those after the same step. If not, because the run was
        stopped while a step was being recorded, an earlier checkpoint stays; without one, the state is
        saved nevertheless, and training makes up for the difference. If the file cannot be written, that
        is a warning, since the run has a result.
        """
        if self.path is None or (self._writer is not None and not exact):
            return
        try:
            self.save(self.path, run)
        except CheckpointError as error:
            warn_user(str(error))

    def save(self, path: Path, run: Run) -> None:
        """Write a checkpoint; the previous one stays intact until the new one is complete."""
        require_own(path, self._writer)
        trainer, state, position, progress, monitor = run
        arrays: dict[str, Any] = {
            **_state_arrays("state", state, trainer.update),
            **_start_arrays(trainer),
            **trainer.engine.saved_rows(path),
            "history": _as_rows(progress.history, Iteration),
            "history.pending": _as_rows(progress.pending, StepInfo),
            "scores": np.array(monitor.scores, _FLOAT),
            "scores.window": np.array(monitor.seen, _FLOAT),
        }
        if monitor.best is not None:
            arrays |= _state_arrays("best", monitor.best, trainer.update)
        about = {
            "format": FORMAT,
            "run": self._run,
            "fingerprint": self._fingerprint.as_json(),
            "position": asdict(position),
            "seconds": progress.seconds,
        }
        arrays["about"] = np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)
        try:
            with written_atomically(path.resolve()) as file:
                np.savez(file, **arrays)
            self._writer = self._run
        except OSError as error:
            raise CheckpointError(
                f"could not write the checkpoint {str(path)!r}: {error}; the last one, if any, is "
                "intact. Free some space, or pass checkpoint=None or a folder that can be written to"
            ) from error

    def resume(self, trainer: Trainer, progress: Progress, monitor: Monitor) -> Run:
        """What to train from: the run of the checkpoint, or else one that begins."""
        if self.path is None:
            return Run(trainer, trainer.init(), Position(), progress, monitor)
        exists = prepare_path(self.path)
        self._fingerprint  # noqa: B018  (made now, so that an error comes before training)
        begun = Run(trainer, trainer.init(), Position(), progress, monitor)
        if not exists:
            return begun
        try:
            with self.path.open("rb") as file:
                resumed, arrays = self._read(self.path, Archive(file), begun)
        except CheckpointError:
            raise
        except PermissionError as error:
            raise CheckpointError(
                f"the checkpoint {str(self.path)!r} may not be read ({error.strerror}); change its "
                "permissions to resume from it, or pass another checkpoint path"
            ) from error
        except MemoryError as error:
            raise CheckpointError(
                f"the checkpoint {str(self.path)!r} needs more memory than is available, or is damaged "
                f"({error}); free some memory, or delete it to start afresh"
            ) from error
        except Exception as error:  # zipfile, NumPy and json raise many kinds for a damaged file
            raise unreadable(self.path, f"{type(error).__name__}: {error}") from error
        trainer.engine.restore_rows(self.path, arrays)  # what fails here is not the file's fault
        self._resumed = True
        progress.say(f"resuming from {self.path} at step {resumed.position.step}")
        return resumed

    def _read(self, path: Path, archive: Archive, begun: Run) -> tuple[Run, dict[str, AnyArray]]:
        """What a checkpoint says, all of it checked, and its arrays; the engine is left as it is."""
        trainer, start, _, progress, monitor = begun
        about = archive.about()
        self._check(path, about)
        position = Position.from_json(about.get("position"))
        seconds = about.get("seconds")
        if not isinstance(seconds, float) or not 0.0 <= seconds < math.inf:
            raise ValueError(f"seconds is {seconds!r}, which is not a time")
        expected = _expected_fields(archive.names, trainer, start, position.step, path)
        if unknown := sorted(archive.names - expected.keys() - {"about"}):
            raise ValueError(f"this fit has no {unknown[0]}")
        arrays = {name: archive.array(name, field) for name, field in expected.items()}
        for name, array in arrays.items():
            _check_numbers(name, array)
        if ("best.x" in arrays) != (len(arrays["scores"]) > 0):
            raise ValueError("it has a best state without scores, or scores without a best state")
        self._check_scaling(path, arrays, trainer.engine.scaling)
        trainer = _with_start(trainer, arrays)
        state = _state_from("state", arrays, trainer, start)
        best = _state_from("best", arrays, trainer, start) if "best.x" in arrays else None
        progress.history = [
            Iteration(int(row[0]), *(float(value) for value in row[1:])) for row in arrays["history"]
        ]
        progress.pending[:] = [StepInfo(*map(float, row)) for row in arrays["history.pending"]]
        progress.resume_at(seconds)
        monitor.scores, monitor.seen = arrays["scores"].tolist(), arrays["scores.window"].tolist()
        monitor.best = best
        self._writer = str(about.get("run"))
        return Run(trainer, state, position, progress, monitor), arrays

    @contextmanager
    def explaining_failures(self) -> Iterator[None]:
        """A context in which a numerical failure of a run that was resumed names the checkpoint."""
        try:
            yield
        except (NumericalError, np.linalg.LinAlgError) as error:
            if not self._resumed:
                raise
            raise CheckpointError(
                f"the fit that was resumed from the checkpoint {str(self.path)!r} failed: {error}. If "
                "the file may be damaged, delete it to start afresh"
            ) from error

    def finish(self, engine: Engine) -> None:
        """Remove the checkpoint after training, unless another run wrote it."""
        if self.path is not None and run_that_wrote(self.path) in (None, self._writer):
            remove(self.path)
            race_file(self.path).unlink(missing_ok=True)
            engine.forget_saved_rows(self.path)

    def _check(self, path: Path, about: JsonObject) -> None:
        if about.get("format") != FORMAT:
            raise CheckpointError(
                f"{str(path)!r} has checkpoint format {about.get('format')}, this version of cavity "
                f"reads {FORMAT}; finish that fit with the version that began it, or delete the file"
            )
        difference = self._fingerprint.difference(about.get("fingerprint"))
        if difference is not None:
            raise of_another_fit(path, difference)

    def _check_scaling(self, path: Path, arrays: Mapping[str, AnyArray], scaling: Scaling) -> None:
        """Raise if the table was scaled otherwise, by more than the rounding of its sums."""
        for name, now in _scaling_arrays(scaling).items():
            then = arrays[name]
            if (
                then.shape != now.shape
                or (np.abs(then - now) > _ROUNDING * _magnitude(name, scaling)).any()
            ):
                raise of_another_fit(path, "its columns are scaled otherwise, so its rows differ")


_ROUNDING = 1e-9
"""Relative difference of the scalings of the same table that rounding may explain."""


def _magnitude(name: str, scaling: Scaling) -> AnyArray | float:
    """The size of numbers of a scaling, by which their rounding is measured."""
    if name == "scaling.centre":
        return np.asarray(scaling.scale + np.abs(scaling.centre))
    now = np.abs(_scaling_arrays(scaling)[name])
    return now if name == "scaling.scale" else float(now.max(initial=0.0))


def of_another_fit(path: Path, difference: str) -> CheckpointError:
    """The error for a file that another fit has written; difference: how that one differs."""
    return CheckpointError(
        f"{str(path)!r} is the checkpoint of another fit: {difference}; fit with the same data "
        "and parameters, pass another checkpoint path, or delete the file to start afresh"
    )


def _as_rows(entries: Sequence[Iteration | StepInfo], kind: type[Iteration | StepInfo]) -> AnyArray:
    """Records as the rows of an array."""
    return np.array([astuple(entry) for entry in entries], _FLOAT).reshape(-1, len(fields(kind)))


def _start_arrays(trainer: Trainer) -> dict[str, AnyArray]:
    """The start of a run, as far as its later steps depend on it.

    Chosen again, for instance with another number of threads, it could differ: k-means rounds otherwise.
    """
    space = trainer.problem.space
    return {
        "start.theta": np.asarray(space.kernel.theta, _FLOAT),
        "start.Z": np.asarray(space.Z, _FLOAT),
        "start.centre": np.asarray(trainer.problem.hyperprior.centre, _FLOAT),
        **_scaling_arrays(trainer.engine.scaling),
    }


def _scaling_arrays(scaling: Scaling) -> dict[str, AnyArray]:
    """All numbers of a scaling, by their names in a checkpoint."""
    return {f"scaling.{name}": array for name, array in scaling.arrays().items()}


def _with_start(trainer: Trainer, arrays: Mapping[str, AnyArray]) -> Trainer:
    """The trainer of the same problem from the start in a checkpoint."""
    problem = trainer.problem
    space, theta = problem.space, arrays["start.theta"]
    kernel = space.kernel
    if not np.array_equal(kernel.theta, theta):  # setting the same values again would round them
        kernel = kernel.clone_with_theta(theta)
    space = replace(space, kernel=kernel, Z=arrays["start.Z"])
    hyperprior = replace(problem.hyperprior, centre=arrays["start.centre"])
    return replace(trainer, problem=replace(problem, space=space, hyperprior=hyperprior))


def _expected_fields(
    names: set[str], trainer: Trainer, start: TrainingState, step: int, path: Path
) -> dict[str, Field]:
    """The arrays that a checkpoint of this fit has after some steps; `names` are those that it has."""
    engine = trainer.engine
    arrays = {**_state_arrays("state", start, trainer.update), **_start_arrays(trainer)}
    if "best.x" in names:
        arrays |= _state_arrays("best", start, trainer.update)
    if isinstance(engine, LocalEngine):
        arrays |= engine.saved_rows(path)
    expected = {name: Field.like(array) for name, array in arrays.items()}
    if not isinstance(engine, LocalEngine):
        expected["shards.version"] = Field((), _VERSIONS)
    for name in ("scaling.knots.positions", "scaling.knots.values"):
        if name in expected:  # those of other rows may be more or fewer, and are then refused as such
            expected[name] = Field((range(_LARGEST_COUNT),), (_FLOAT,))
    entries = range(step + 1)  # no step adds more than one
    return expected | {
        "history": Field((entries, len(fields(Iteration))), (_FLOAT,)),
        "history.pending": Field((entries, len(fields(StepInfo))), (_FLOAT,)),
        "scores": Field((entries,), (_FLOAT,)),
        "scores.window": Field((entries,), (_FLOAT,)),
    }


_VERSIONS = tuple(np.dtype(f"U{length}") for length in range(1, 100))
"""Types of the name under which the workers of a cluster have saved their rows."""


def _check_numbers(name: str, array: AnyArray) -> None:
    """Raise for numbers that no run can have."""
    if array.dtype.kind == "U":
        if not re.fullmatch(r"[\w-]+", str(array)):
            raise ValueError(f"{name} is {str(array)!r}")
    elif array.dtype.kind in "iu":
        if not ((array >= 0) & (array <= _LARGEST_COUNT)).all():
            raise ValueError(f"{name} is not a number of steps")
    elif name == "log_predictive":  # NaN for rows that no step has visited yet
        if np.isinf(array).any():
            raise ValueError("log_predictive has infinite numbers")
    elif not np.isfinite(array).all():
        raise ValueError(f"{name} has numbers that are not finite")
    if name in ("state.damping", "best.damping") and not 0.0 < float(array) <= 1.0:
        raise ValueError(f"{name} is {float(array)!r}, which is not between 0 and 1")


def _state_arrays(prefix: str, state: TrainingState, update: PosteriorUpdate) -> dict[str, AnyArray]:
    last_x, last_q = state.previous
    values = {
        "x": state.x,
        "damping": state.damping,
        "previous.x": last_x,
        **{f"q.{name}": value for name, value in update.as_arrays(state.q).items()},
        **{f"previous.q.{name}": value for name, value in update.as_arrays(last_q).items()},
        **{f"optimizer.{name}": value for name, value in vars(state.optimizer_state).items()},
    }
    return {f"{prefix}.{name}": np.asarray(value) for name, value in values.items()}


def _state_from(
    prefix: str, arrays: Mapping[str, AnyArray], trainer: Trainer, start: TrainingState
) -> TrainingState:
    """A state from its arrays; `start` says which fields the optimiser's state has."""

    def get(name: str) -> Any:
        value = arrays[f"{prefix}.{name}"]
        return value.item() if value.ndim == 0 else value

    def group(name: str) -> JsonObject:
        start = f"{prefix}.{name}."
        return {
            key[len(start) :]: get(key[len(prefix) + 1 :]) for key in arrays if key.startswith(start)
        }

    update, space = trainer.update, trainer.problem.space
    for name in ("x", "previous.x"):
        if not np.allclose(space.project(get(name)), get(name), rtol=_ROUNDING, atol=_ROUNDING):
            raise ValueError(f"{prefix}.{name} is outside the kernel's bounds")
    optimizer_state = replace(start.optimizer_state, **group("optimizer"))
    with np.errstate(all="ignore"):
        n_moved = len(start.x) + (start.q.size if isinstance(start.q, np.ndarray) else 0)
        move, _ = trainer.optimizer.step(optimizer_state, np.zeros(n_moved))
    if not np.isfinite(move).all():
        raise ValueError(f"{prefix}.optimizer has numbers from which no step can be made")
    return TrainingState(
        x=get("x"),
        q=update.from_arrays(group("q"), start.q),
        optimizer_state=optimizer_state,
        damping=get("damping"),
        previous=(get("previous.x"), update.from_arrays(group("previous.q"), start.q)),
    )
