"""The list of benchmarks: a decorator puts a function on it, the command line takes it off.

@benchmark("uci", "seven small sets, five splits")
def run(context): ...
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.context import Context

Run = Callable[["Context"], None]


@dataclass(frozen=True)
class Benchmark:
    """A named workload and the function that runs it."""

    name: str
    description: str
    run: Run


_BENCHMARKS: dict[str, Benchmark] = {}


def benchmark(name: str, description: str) -> Callable[[Run], Run]:
    """Register the decorated function under `name`; a name can be taken once."""

    def register(run: Run) -> Run:
        if name in _BENCHMARKS:
            raise ValueError(f"two benchmarks are named {name!r}")
        _BENCHMARKS[name] = Benchmark(name, description, run)
        return run

    return register


def benchmarks() -> dict[str, Benchmark]:
    """All benchmarks by name; imports every module of `benchmarks.workloads` to find them."""
    from benchmarks import workloads

    for module in pkgutil.iter_modules(workloads.__path__):
        importlib.import_module(f"{workloads.__name__}.{module.name}")
    return dict(sorted(_BENCHMARKS.items()))
