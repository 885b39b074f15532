"""The list of benchmarks: a decorator adds a function, and the command line runs it by name.

@benchmark("uci", "seven small sets, five splits", table=tables.by_dataset)
def run(context): ...

`table` makes Markdown and `draw` a picture. Both need the recorded repetitions only, so they can be made
again without running anything.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import tables
from benchmarks.losses import NLL, Measure
from benchmarks.records import Repetition

if TYPE_CHECKING:
    from benchmarks.context import Context

Run = Callable[["Context"], None]
Table = Callable[[Sequence[Repetition]], str]
Draw = Callable[[Sequence[Repetition], Path], list[Path]]
"""Draws into files with a given stem, and returns their paths."""


@dataclass(frozen=True)
class Benchmark:
    """A named workload and the function that runs it."""

    name: str
    description: str
    run: Run
    table: Table
    draw: Draw | None = None
    timed: bool = True
    """Whether it measures seconds; only one such run may be under way on a machine."""
    minutes: float | None = None
    """About how long the full form takes on 2 cores."""
    measures: Sequence[Measure] = (NLL,)
    """By what `benchmarks.losses` compares our methods with the peers."""


ALIASES = {"fig3-nodes": "dask"}
"""Other names: the paper's Figure 3 (right), time against nodes, is the workload of the Dask engine."""

_BENCHMARKS: dict[str, Benchmark] = {}


def benchmark(
    name: str,
    description: str,
    *,
    table: Table = tables.table,
    draw: Draw | None = None,
    timed: bool = True,
    minutes: float | None = None,
    measures: Sequence[Measure] = (NLL,),
) -> Callable[[Run], Run]:
    """Register the decorated function under `name`; a name can be taken once."""

    def register(run: Run) -> Run:
        if name in _BENCHMARKS:
            raise ValueError(f"two benchmarks are named {name!r}")
        _BENCHMARKS[name] = Benchmark(name, description, run, table, draw, timed, minutes, measures)
        return run

    return register


def benchmarks() -> dict[str, Benchmark]:
    """All benchmarks by name; imports every module of `benchmarks.workloads` to find them."""
    from benchmarks import workloads

    for module in pkgutil.iter_modules(workloads.__path__):
        importlib.import_module(f"{workloads.__name__}.{module.name}")
    return dict(sorted(_BENCHMARKS.items()))
