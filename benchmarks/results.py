"""docs/results.md and the table of the README, from the stored records.

The template beside this file holds the words of the page. A line `{{ NAME }}` becomes the table, the
figure and the machine of that benchmark's record file. In the README, what stands between two comments
is replaced. Nothing is measured here.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from benchmarks import readme_table
from benchmarks.records import read
from benchmarks.registry import Benchmark, benchmarks

TEMPLATE = Path(__file__).parent / "results.template.md"
FIGURES = "../benchmarks/figures"  # as seen from docs/
_PLACE = re.compile(r"^\{\{ ([\w-]+) \}\}$", re.MULTILINE)
_README = re.compile(r"(?<=<!-- results: begin -->\n).*(?=<!-- results: end -->)", re.DOTALL)


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


def readme(text: str, records: Path) -> str:
    """The README with its table made anew."""
    if not _README.search(text):
        raise ValueError("the README lacks <!-- results: begin --> and <!-- results: end -->")
    return _README.sub(lambda place: readme_table.table(records) + "\n", text)
