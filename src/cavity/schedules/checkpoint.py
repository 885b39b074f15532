"""Saving a training run so that it can go on after a crash as if nothing had happened."""

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
from cavity.errors import CheckpointError
from cavity.files import written_atomically
from cavity.history import Iteration
from cavity.schedules import checkpoint_file
from cavity.schedules.fingerprint import Fingerprint
from cavity.schedules.monitor import Monitor
from cavity.schedules.posterior_update import PosteriorUpdate
from cavity.schedules.progress import Progress, StepInfo
from cavity.schedules.step import Trainer, TrainingState

FORMAT = 2
"""Raised whenever an older file could no longer be read as meant."""


@dataclass(frozen=True)
class Position:
    """Where a run stands between two steps."""

    epoch: int = 0
    """Whole passes over the data behind it."""
    batch: int = 0
    """Minibatches of the current epoch behind it."""
    step: int = 0
    """Steps behind it."""
    ending: float | None = None
    """Epochs at which it was decided to end early, if it was."""

    def after_batch(self) -> Position:
        """One minibatch on."""
        return replace(self, batch=self.batch + 1, step=self.step + 1)

    def epochs(self, share: float) -> float:
        """Passes over the data behind it, if a minibatch is this share of the rows."""
        return self.epoch + min(1.0, self.batch * share)


@dataclass
class Checkpointer:
    """Writes the whole state of a run to `path` every so many seconds; None writes nothing."""

    path: Path | None
    every: float
    """Seconds between two checkpoints."""
    make_fingerprint: Callable[[], Fingerprint]
    """What a run must have in common with a checkpoint to go on from it; asked for once, if at all."""
    _last: float = 0.0
    _writer: str | None = None
    """The run that has written the file, as far as this one knows; None if there was no file."""

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
        """Save, if it is time."""
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
        """Write a checkpoint; the one before stays whole until this one is."""
        checkpoint_file.require_own(path, self._writer)
        engine = trainer.engine
        arrays = {
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
        """The state and position to train from: those of the checkpoint, or the start."""
        if self.path is None:
            return trainer.start(), Position()
        found = checkpoint_file.found(self.path)
        self._fingerprint  # noqa: B018  (what is wrong with it is to be known before the work)
        if not found:
            return trainer.start(), Position()
        arrays, about = checkpoint_file.read(self.path)
        self._check(self.path, about)
        self._writer = str(about.get("run"))
        try:
            state, position = self._restore(self.path, arrays, about, trainer, progress, monitor)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise checkpoint_file.unreadable(self.path, error) from error
        progress.say(f"resuming from {self.path} at step {position.step}")
        return state, position

    def _restore(
        self,
        path: Path,
        arrays: dict[str, Any],
        about: dict[str, Any],
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
        """The run is over: nothing is left to resume. What another run has written there stays."""
        if self.path is not None and checkpoint_file.writer(self.path) in (None, self._writer):
            checkpoint_file.remove(self.path)
            engine.forget_saved_rows(self.path)

    def _check(self, path: Path, about: dict[str, Any]) -> None:
        if about.get("format") != FORMAT:
            raise CheckpointError(
                f"{str(path)!r} has checkpoint format {about.get('format')}, this version of cavity "
                f"reads {FORMAT}; finish that fit with the version that began it, or delete the file"
            )
        difference = self._fingerprint.difference(about.get("fingerprint"))
        if difference is not None:
            raise CheckpointError(
                f"{str(path)!r} is the checkpoint of another fit: {difference}; fit with what it was "
                "begun with, pass another checkpoint path, or delete the file to start afresh"
            )


def _state_arrays(prefix: str, state: TrainingState, update: PosteriorUpdate) -> dict[str, Any]:
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


def _state_from(prefix: str, arrays: dict[str, Any], trainer: Trainer) -> TrainingState:
    def get(name: str) -> Any:
        value = arrays[f"{prefix}.{name}"]
        return value.item() if value.ndim == 0 else value

    def group(name: str) -> dict[str, Any]:
        start = f"{prefix}.{name}."
        return {
            key[len(start) :]: get(key[len(prefix) + 1 :]) for key in arrays if key.startswith(start)
        }

    update = trainer.update
    return TrainingState(
        x=get("x"),
        q=update.from_arrays(group("q")),
        optimizer_state=replace(trainer.start().optimizer_state, **group("optimizer")),
        damping=get("damping"),
        previous=(get("previous.x"), update.from_arrays(group("previous.q"))),
    )
