"""One JSON-lines file per benchmark: machine facts, then a line for every repetition.

A run appends each result at once, so an interrupted run loses nothing, and the next one
goes on where it stopped. Each run that adds a repetition writes its own machine line first:
a repetition was measured on the machine of the last machine line above it, by the commit named there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

MOST_REFUSED = 0.5
"""Share of its steps that a method may refuse before it counts as failed."""
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
    code: str | None = None  # fingerprint of the code that was measured, see `benchmarks.code`
    load: float | None = None  # cores that other processes used meanwhile

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
    where: list[int] = field(default_factory=list)
    """For each repetition the number of its machine line."""

    def machine(self, number: int) -> dict[str, Any]:
        """The facts that belong to a repetition, by its number."""
        return self.machines[self.where[number]]


def read(path: Path) -> Records:
    """Read a record file; the last record of an experiment replaces earlier ones of its key."""
    machines: list[dict[str, Any]] = []
    latest: dict[str, tuple[Repetition, int]] = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if row.pop("kind") == "machine":
                machines.append(row)
            else:
                repetition = judged(Repetition(**row))
                latest[repetition.key] = repetition, len(machines) - 1
    return Records(machines, [r for r, _ in latest.values()], [k for _, k in latest.values()])


def prune(path: Path, keep: Callable[[Repetition], bool]) -> int:
    """Rewrite a record file with the repetitions that `keep` accepts; how many lines were dropped.

    Lines that a later one of the same experiment replaces are dropped too, and so are machines without
    repetitions. A file that would hold none is removed.
    """
    stored, before = read(path), path.read_text(encoding="utf-8").count('"kind": "repetition"')
    kept: dict[int, list[Repetition]] = {}
    for r, where in zip(stored.repetitions, stored.where, strict=True):
        if keep(r):
            kept.setdefault(where, []).append(r)
    lines = []
    for where in sorted(kept):
        lines.append({"kind": "machine", **stored.machines[where]})
        lines += [{"kind": "repetition", **asdict(r)} for r in kept[where]]
    if lines:
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        path.write_text(text, encoding="utf-8")
    else:
        path.unlink()
    return before - sum(len(group) for group in kept.values())


def judged(r: Repetition) -> Repetition:
    """The same record, as a failure if the method refused most of its steps: it has not trained.

    >>> r = Repetition("w", "A", "a", "d", 0, {}, extra={"steps": 4, "refused_steps": 3})
    >>> judged(r).failure
    'refused 3 of 4 steps'
    """
    refused, steps = r.extra.get("refused_steps", 0), r.extra.get("steps", 0)
    if r.failure is None and refused > MOST_REFUSED * steps:
        return replace(r, failure=f"refused {refused} of {steps} steps")
    return r


class RecordFile:
    """Appends repetitions to a record file.

    Failed repetitions are kept in the file, but do not count as recorded: a rerun tries again. Nor do
    those that `counts` turns down, such as measurements of other code.
    """

    def __init__(
        self,
        path: Path,
        facts: Callable[[], dict[str, Any]],
        fresh: bool = False,
        counts: Callable[[Repetition], bool] = lambda repetition: True,
    ):
        self.path = path
        self._facts = facts
        self._machine_written = False
        if fresh:
            path.unlink(missing_ok=True)
        done = (r for r in read(path).repetitions if r.failure is None)
        self._done = {r.key for r in done if counts(r)}

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
