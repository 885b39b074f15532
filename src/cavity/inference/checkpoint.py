"""Checkpoints: the state of a training run in a file, from which the same run can resume after a crash.

The file is a NumPy archive. It is written atomically, and each run leaves the files of other runs alone.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, astuple, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cavity.engines.protocol import Engine
from cavity.errors import CheckpointError, warn_user
from cavity.files import check_writable, remove_unfinished, written_atomically
from cavity.inference.fingerprint import Fingerprint
from cavity.inference.history import Iteration, Progress, StepInfo
from cavity.inference.schedule import Monitor
from cavity.inference.trainer import Trainer, TrainingState
from cavity.inference.updates import PosteriorUpdate
from cavity.typing import AnyArray, JsonObject


def prepare_path(path: Path) -> bool:
    """Check a path before training and remove unfinished files; returns whether there is a checkpoint.

    It raises if the path cannot be written to.
    """
    try:
        if path.is_dir():
            example = path / "fit.ckpt"
            raise CheckpointError(
                f"checkpoint={str(path)!r} is a folder; name a file, for instance {str(example)!r}"
            )
        if path.exists() and not path.is_file():
            raise _unusable(path, "it is not a regular file")
        check_writable(path)
        remove_unfinished(path)  # left by a run that was killed while it was writing
        path.stat()
    except FileNotFoundError as error:
        if path.parent.is_dir():
            return False
        raise _unusable(path, f"there is no folder {str(path.parent)!r}") from error
    except NotADirectoryError as error:
        raise _unusable(path, f"{str(path.parent)!r} is not a folder") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise _unusable(path, reason or str(error)) from error
    return True


def run_that_wrote(path: Path) -> str | None:
    """The identifier of the run that wrote the checkpoint at `path`; None if there is no file."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return str(json.loads(archive["about"].tobytes()).get("run"))
    except FileNotFoundError:
        return None
    except Exception:  # an unreadable file was not written by this run
        return "unknown"


def require_own(path: Path, known: str | None) -> None:
    """Raise if the checkpoint at `path` was written by another run than `known`."""
    if run_that_wrote(path) not in (None, known):
        raise CheckpointError(
            f"the checkpoint {str(path)!r} was written by another fit while this one was running, and "
            "was not changed; give each fit a checkpoint path of its own"
        )


def _unusable(path: Path, why: str) -> CheckpointError:
    return CheckpointError(
        f"checkpoint={str(path)!r} cannot be used: {why}; pass a path in a folder that exists and can "
        "be written to, or checkpoint=None"
    )


def read(path: Path) -> tuple[dict[str, AnyArray], JsonObject]:
    """The arrays of a checkpoint and its description."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        about = json.loads(arrays["about"].tobytes())
        if not isinstance(about, dict):
            raise TypeError("no description")
    except PermissionError as error:
        raise CheckpointError(
            f"the checkpoint {str(path)!r} may not be read ({error.strerror}); change its "
            "permissions to resume from it, or pass another checkpoint path"
        ) from error
    except MemoryError as error:
        raise CheckpointError(
            f"the checkpoint {str(path)!r} needs more memory than is available, or is damaged "
            f"({error}); free some memory, or delete it to start afresh"
        ) from error
    except Exception as error:  # zipfile, NumPy and json raise many kinds for a damaged file
        raise unreadable(path, error) from error
    return arrays, about


def unreadable(path: Path, error: Exception) -> CheckpointError:
    """The error for a file that is not a checkpoint."""
    return CheckpointError(
        f"{str(path)!r} is not a readable checkpoint ({type(error).__name__}: {error}); delete it "
        "to start afresh"
    )


def remove(path: Path) -> None:
    """Remove the checkpoint of a finished fit; a failure is only a warning, since the fit succeeded."""
    try:
        path.unlink(missing_ok=True)
        remove_unfinished(path)
    except OSError as error:
        warn_user(
            f"the fit is done, but its checkpoint {str(path)!r} could not be removed "
            f"({error.strerror}); delete it, or the next fit with this path resumes from it"
        )


FORMAT = 3
"""Version of the file format; it increases when older files can no longer be read correctly."""


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

    def __post_init__(self) -> None:
        self._last = time.monotonic()
        self._run = secrets.token_hex(8)

    @cached_property
    def _fingerprint(self) -> Fingerprint:
        return self.make_fingerprint()

    def after_step(
        self,
        state: TrainingState,
        position: Position,
        trainer: Trainer,
        progress: Progress,
        monitor: Monitor,
    ) -> None:
        """Save the state, if the interval since the last checkpoint is over."""
        if self.path is None or time.monotonic() - self._last < self.every:
            return
        self.save(self.path, state, position, trainer, progress, monitor)
        self._last = time.monotonic()

    def save(
        self,
        path: Path,
        state: TrainingState,
        position: Position,
        trainer: Trainer,
        progress: Progress,
        monitor: Monitor,
    ) -> None:
        """Write a checkpoint; the previous one stays intact until the new one is complete."""
        require_own(path, self._writer)
        engine = trainer.engine
        arrays: dict[str, Any] = {
            **_state_arrays("state", state, trainer.update),
            **engine.saved_rows(path),
            "history": np.array([list(asdict(entry).values()) for entry in progress.history]),
            "history.pending": np.array([astuple(info) for info in progress.pending]),
            "scores": np.array(monitor.scores),
            "scores.window": np.array(monitor.seen),
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
            with written_atomically(path) as file:
                np.savez(file, **arrays)
            self._writer = self._run
        except OSError as error:
            raise CheckpointError(
                f"could not write the checkpoint {str(path)!r}: {error}; the last one, if any, is "
                "intact. Free some space, or pass checkpoint=None or a folder that can be written to"
            ) from error

    def resume(
        self, trainer: Trainer, progress: Progress, monitor: Monitor
    ) -> tuple[TrainingState, Position]:
        """The state and position to train from: those of the checkpoint, or else the start."""
        if self.path is None:
            return trainer.init(), Position()
        exists = prepare_path(self.path)
        self._fingerprint  # noqa: B018  (made now, so that an error comes before training)
        if not exists:
            return trainer.init(), Position()
        arrays, about = read(self.path)
        self._check(self.path, about)
        self._writer = str(about.get("run"))
        try:
            state, position = self._restore(self.path, arrays, about, trainer, progress, monitor)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise unreadable(self.path, error) from error
        progress.say(f"resuming from {self.path} at step {position.step}")
        return state, position

    def _restore(
        self,
        path: Path,
        arrays: dict[str, AnyArray],
        about: JsonObject,
        trainer: Trainer,
        progress: Progress,
        monitor: Monitor,
    ) -> tuple[TrainingState, Position]:
        state, position = _state_from("state", arrays, trainer), Position(**about["position"])
        trainer.engine.restore_rows(path, arrays)
        progress.history = [
            Iteration(int(row[0]), *(float(value) for value in row[1:])) for row in arrays["history"]
        ]
        progress.pending[:] = [StepInfo(*map(float, row)) for row in arrays.get("history.pending", ())]
        progress.resume_at(float(about["seconds"]))
        monitor.scores = arrays["scores"].tolist()
        monitor.seen = arrays["scores.window"].tolist()
        if "best.x" in arrays:
            monitor.best = _state_from("best", arrays, trainer)
        return state, position

    def finish(self, engine: Engine) -> None:
        """Remove the checkpoint after training, unless another run wrote it."""
        if self.path is not None and run_that_wrote(self.path) in (None, self._writer):
            remove(self.path)
            engine.forget_saved_rows(self.path)

    def _check(self, path: Path, about: JsonObject) -> None:
        if about.get("format") != FORMAT:
            raise CheckpointError(
                f"{str(path)!r} has checkpoint format {about.get('format')}, this version of cavity "
                f"reads {FORMAT}; finish that fit with the version that began it, or delete the file"
            )
        difference = self._fingerprint.difference(about.get("fingerprint"))
        if difference is not None:
            raise CheckpointError(
                f"{str(path)!r} is the checkpoint of another fit: {difference}; fit with the same data "
                "and parameters, pass another checkpoint path, or delete the file to start afresh"
            )


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


def _state_from(prefix: str, arrays: dict[str, AnyArray], trainer: Trainer) -> TrainingState:
    def get(name: str) -> Any:
        value = arrays[f"{prefix}.{name}"]
        return value.item() if value.ndim == 0 else value

    def group(name: str) -> JsonObject:
        start = f"{prefix}.{name}."
        return {
            key[len(start) :]: get(key[len(prefix) + 1 :]) for key in arrays if key.startswith(start)
        }

    update = trainer.update
    return TrainingState(
        x=get("x"),
        q=update.from_arrays(group("q")),
        optimizer_state=replace(trainer.init().optimizer_state, **group("optimizer")),
        damping=get("damping"),
        previous=(get("previous.x"), update.from_arrays(group("previous.q"))),
    )
