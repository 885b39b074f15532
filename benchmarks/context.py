"""What a workload is given: the options of the run, and `measure`, which runs and records one fit."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks import code
from benchmarks.data import Split
from benchmarks.load import OtherWork, Quiet
from benchmarks.methods import Contender, Method, MethodFailedError, Result, code_of
from benchmarks.progress import Bar
from benchmarks.records import RecordFile, Repetition, read, scrub


class TimeUpError(RuntimeError):
    """The time of this run is up. The next run goes on from what is recorded."""


@dataclass(frozen=True)
class Context:
    """One run of one benchmark."""

    workload: str
    records: RecordFile
    methods: Mapping[str, Method]
    quick: bool = False
    budget: float | None = None  # overrides the workload's own
    only: Collection[str] = field(default_factory=tuple)  # labels or methods; empty means all
    splits: int | None = None  # overrides the workload's own number of repetitions
    deadline: float | None = None  # of `time.monotonic`; no repetition begins after it
    quiet: Quiet | None = None  # keeps measurements apart from other work; None lets them be
    bar: Bar = field(default_factory=Bar)

    def seconds(self, full: float, quick: float) -> float:
        """The training budget: the user's, or else the workload's."""
        return self.budget if self.budget is not None else (quick if self.quick else full)

    def repetitions(self, full: int, quick: int) -> int:
        """The number of splits: the user's, or else the workload's."""
        return self.splits if self.splits is not None else (quick if self.quick else full)

    def expect(self, repetitions: int) -> None:
        """Tell the progress bar how many calls of `measure` are to come."""
        self.bar.expect(repetitions)

    def measure(
        self,
        contender: Contender,
        split: Split,
        settings: Mapping[str, Any],
        budget: float | None = None,
    ) -> None:
        """Run one repetition and record it, unless it is recorded or was not asked for.

        `settings` are the workload's (m, seed); the contender's own settings win over them.
        """
        if self.only and not {contender.label, contender.method} & set(self.only):
            self.bar.step(measured=False)
            return
        blank = Repetition(
            workload=self.workload,
            label=contender.label,
            method=contender.method,
            dataset=split.train.name,
            split=split.index,
            settings={**settings, **contender.settings},
            budget=budget,
        )
        if self.records.has(blank):
            self.bar.step(measured=False)
            return
        self.ready()
        self.bar.starting(f"{split.train.name} {split.index}, {contender.label}")
        method = self.methods[contender.method]
        blank = replace(blank, code=code_of(method))
        others = OtherWork()
        try:
            result = method(split.train, split.test, blank.settings, budget)
        except MethodFailedError as failure:
            done = replace(blank, failure=scrub(str(failure)))
        else:
            done = _filled(blank, result)
        self._append(done, others)
        self.bar.clear()
        print(_line(done), flush=True)

    def note(self, name: str, measurement: Mapping[str, Any] | Callable[[], Mapping[str, Any]]) -> None:
        """Record a measurement that is not the fit of a method, unless it is recorded.

        Given as a function, it is only taken when it is needed.
        """
        blank = Repetition(self.workload, name, name, "-", split=0, settings={}, code=code.ours())
        if self.records.has(blank):
            self.bar.step(measured=False)
            return
        self.ready()
        self.bar.starting(name)
        others = OtherWork()
        values = measurement() if callable(measurement) else measurement
        self._append(replace(blank, extra=dict(values)), others)

    def ready(self) -> None:
        """Before something is measured: there is time left, and the machine is quiet."""
        if self.quiet is not None:
            self.quiet.wait()
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise TimeUpError("the time of this run is up; run it again to go on")

    def noted(self, *names: str) -> bool:
        """Whether these measurements, which are not fits, are all recorded."""
        blanks = (Repetition(self.workload, name, name, "-", split=0, settings={}) for name in names)
        return all(self.records.has(blank) for blank in blanks)

    def recorded(self) -> list[Repetition]:
        """Everything recorded so far, of this run and of earlier ones."""
        return read(self.records.path).repetitions

    def _append(self, done: Repetition, others: OtherWork) -> None:
        load = others.cores()
        self.records.append(replace(done, load=load))
        if self.quiet is not None:
            self.quiet.seen(load)
        self.bar.step(measured=True)


def _filled(blank: Repetition, result: Result) -> Repetition:
    metrics = {"nll": result.nll, "error": result.error}
    for name in ("ece", "ece_by_chance"):
        if (value := getattr(result, name)) is not None:
            metrics[name] = value
    return replace(
        blank,
        seconds=result.seconds,
        metrics=metrics,
        curve=result.curve,
        peak_memory=result.peak_memory,
        extra=dict(result.extra),
    )


def _line(r: Repetition) -> str:
    head = f"{r.dataset:12s} {r.split:2d}  {r.label:32s}"
    if r.failure is not None:
        return f"{head} FAILED: {r.failure.strip().splitlines()[-1][:120]}"
    return f"{head} nll {r.metrics['nll']:.4f}  error {r.metrics['error']:.4f}  {r.seconds:.2f} s"
