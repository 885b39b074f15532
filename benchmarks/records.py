"""One JSON-lines file per benchmark: machine facts, then a line for every repetition.

A run appends each result at once, so an interrupted run loses nothing, and the next one
goes on where it stopped. Each run that adds a repetition writes its own machine line first:
a repetition was measured on the machine of the last machine line above it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

_PATH = re.compile(r"(?<![\w.])(?:/[\w.+@~-]+)+/")


def scrub(text: str) -> str:
    """Cut the folders off every absolute path, so that a record does not tell where it was made.

    >>> scrub('File "/home/someone/env/lib/model.py", line 3')
    'File "model.py", line 3'
    """
    return _PATH.sub("", text)


@dataclass(frozen=True)
class Repetition:
    """One method, fitted once to one split of one dataset."""

    workload: str
    label: str  # the name in the tables
    method: str  # the name in `benchmarks.methods`
    dataset: str
    split: int
    settings: Mapping[str, Any]
    budget: float | None = None
    seconds: float | None = None  # training only
    metrics: Mapping[str, float] = field(default_factory=dict)
    curve: list[dict[str, float]] = field(default_factory=list)
    peak_memory: float | None = None  # bytes
    extra: Mapping[str, Any] = field(default_factory=dict)
    failure: str | None = None

    @property
    def key(self) -> str:
        """Two repetitions with the same key are the same experiment."""
        parts = (self.workload, self.method, self.dataset, self.split, self.settings, self.budget)
        return json.dumps(parts, sort_keys=True)


@dataclass(frozen=True)
class Records:
    """What a record file holds."""

    machines: list[dict[str, Any]]
    repetitions: list[Repetition]


def read(path: Path) -> Records:
    """Read a record file; the last record of an experiment replaces earlier ones of its key."""
    machines: list[dict[str, Any]] = []
    latest: dict[str, Repetition] = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if row.pop("kind") == "machine":
                machines.append(row)
            else:
                repetition = Repetition(**row)
                latest[repetition.key] = repetition
    return Records(machines, list(latest.values()))


class RecordFile:
    """Appends repetitions to a record file.

    Failed repetitions are kept in the file, but do not count as recorded: a rerun tries again.
    """

    def __init__(self, path: Path, facts: Callable[[], dict[str, Any]], fresh: bool = False):
        self.path = path
        self._facts = facts
        self._machine_written = False
        if fresh:
            path.unlink(missing_ok=True)
        self._done = {r.key for r in read(path).repetitions if r.failure is None}

    def has(self, repetition: Repetition) -> bool:
        """Whether this experiment is already recorded."""
        return repetition.key in self._done

    def append(self, repetition: Repetition) -> None:
        """Write one repetition to disk now."""
        if not self._machine_written:
            self._write({"kind": "machine", **self._facts()})
            self._machine_written = True
        self._write({"kind": "repetition", **asdict(repetition)})
        if repetition.failure is None:
            self._done.add(repetition.key)

    def _write(self, row: Mapping[str, Any]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as handle:
            handle.write(json.dumps(row, ensure_ascii=False) + "\n")
