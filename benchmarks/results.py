"""docs/results.md, from the template beside this file and the stored records.

The template holds the words. A line `{{ NAME }}` becomes the table, the figure and the machine of that
benchmark's record file. Nothing is measured here.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from benchmarks.records import read
from benchmarks.registry import Benchmark, benchmarks

TEMPLATE = Path(__file__).parent / "results.template.md"
FIGURES = "../benchmarks/figures"  # as seen from docs/
_PLACE = re.compile(r"^\{\{ ([\w-]+) \}\}$", re.MULTILINE)


def page(records: Path, template: str | None = None) -> str:
    """The page, from a folder of record files."""
    known = benchmarks()

    def filled(place: re.Match[str]) -> str:
        name = place[1]
        if name not in known:
            raise ValueError(f"the template asks for {name!r}; there are {', '.join(known)}")
        return section(known[name], records / f"{name}.jsonl")

    text = TEMPLATE.read_text(encoding="utf-8") if template is None else template
    return _PLACE.sub(filled, text)


def section(item: Benchmark, path: Path) -> str:
    """Command, table, figure and machine of one benchmark, or how to get them."""
    command = f"`python -m benchmarks run {item.name}`"
    stored = read(path)
    if not stored.repetitions:
        return f"*Not recorded yet; {command} measures it.*"
    parts = [f"{command}: {item.description}.", item.table(stored.repetitions)]
    if item.draw is not None:
        parts.append(f"![{item.description}]({FIGURES}/{item.name}.png)")
    parts.append("*" + machine(stored.machines[-1]) + "*")
    return "\n\n".join(parts)


def machine(facts: dict[str, Any]) -> str:
    """One line on what the numbers were measured on.

    >>> machine({"cpu": "A", "cores": 2, "gemm_gflops": {"float64_all_threads": 9.0}, "numpy": "2.0"})
    'A, 2 cores, GEMM 9 Gflop/s (float64); NumPy 2.0'
    """
    rate = facts.get("gemm_gflops", {}).get("float64_all_threads")
    parts = [str(facts.get("cpu", "unknown machine")), f"{facts.get('cores', '?')} cores"]
    parts += [f"GEMM {rate:.0f} Gflop/s (float64)"] if rate else []
    names = {"numpy": "NumPy", "sklearn": "scikit-learn", "blas": "BLAS", "commit": "commit"}
    versions = [f"{name} {facts[key]}" for key, name in names.items() if facts.get(key)]
    return ", ".join(parts) + "; " + ", ".join([*versions, *filter(None, [facts.get("date")])])
