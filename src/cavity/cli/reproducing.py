"""`cavity reproduce`."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer

from cavity.cli.guard import CommandError


def run_reproduce(name: str | None, quick: bool) -> None:
    """Run a benchmark, or print the names of all."""
    benchmarks = _benchmarks()
    if name is None:
        print("\n".join(f"{entry.name:16} {entry.description}" for entry in benchmarks.values()))
        return
    if name not in benchmarks:
        from cavity.tables.names import suggestion

        raise CommandError(f"there is no benchmark {name!r}{suggestion(name, list(benchmarks))}")
    status = import_module("benchmarks.__main__").main(["run", name, *(["--quick"] if quick else [])])
    if status:
        raise typer.Exit(status)


def benchmark_names() -> list[str]:
    """The names of all benchmarks, for the shell to complete; none outside a checkout."""
    try:
        return list(_benchmarks())
    except CommandError:
        return []


def _benchmarks() -> dict[str, Any]:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    if find_spec("benchmarks") is None or find_spec("benchmarks.registry") is None:
        raise CommandError(
            "the benchmarks are not installed with the package; run this in a checkout of the repository"
        )
    return dict(import_module("benchmarks.registry").benchmarks())
