"""docs/results.md and the table of the README, from the stored records.

The template beside this file holds the words of the page. A line `{{ NAME }}` becomes the table, the
figure and the machine of that benchmark's record file. In the README, what stands between two comments
is replaced. Nothing is measured here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import exp, log
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks.records import Repetition, read
from benchmarks.registry import Benchmark, benchmarks
from benchmarks.tables import markdown

TEMPLATE = Path(__file__).parent / "results.template.md"
FIGURES = "../benchmarks/figures"  # as seen from docs/
_PLACE = re.compile(r"^\{\{ ([\w-]+) \}\}$", re.MULTILINE)
_SHORT = re.compile(r"(?<=<!-- records of tables -->\n).*?(?=<!-- end -->)", re.DOTALL)
_METHODS = ("cavity", "LightGBM", "CatBoost", "logistic regression")


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
    """The README's text with its table, which sums up the benchmark of tables, made anew."""
    stored = read(records / "tables.jsonl")
    short = in_short(stored.repetitions) + "\n\n*" + machine(stored.machines[-1]) + "*\n"
    return _SHORT.sub(lambda _: short, text)


def in_short(repetitions: Sequence[Repetition]) -> str:
    """Means over the tables that every method has fitted, and the tables where ours is not the best.

    >>> def fit(label, nll, ece):
    ...     scores = {"nll": nll, "ece": ece, "error": 0.1}
    ...     return Repetition("tables", label, label, "crabs", 0, {}, seconds=2.0, metrics=scores)
    >>> scores = {"cavity": (0.3, 0.02), "LightGBM": (0.2, 0.03), "CatBoost": (0.4, 0.03)}
    >>> scores["logistic regression"] = (0.5, 0.01)
    >>> print(in_short([fit(label, *pair) for label, pair in scores.items()]).rpartition("|")[2].strip())
    NLL higher than the better tree's: crabs; than logistic regression's: none.
    ECE higher than logistic regression's: crabs.
    """
    fits: dict[str, dict[str, Repetition]] = {}
    for r in repetitions:
        if r.failure is None:
            fits.setdefault(r.dataset, {})[r.label] = r
    shared = {name: here for name, here in fits.items() if set(_METHODS) <= set(here)}

    def metric(label: str, name: str) -> list[float]:
        return [here[label].metrics[name] for here in shared.values()]

    def line(words: str, value: Callable[[str], str]) -> list[str]:
        return [words, *(value(label) for label in _METHODS)]

    def where(name: str, *others: str) -> str:
        worse = [
            table
            for table, here in shared.items()
            if here[_METHODS[0]].metrics[name] > min(here[label].metrics[name] for label in others)
        ]
        return ", ".join(worse) or "none"

    lowest = [min(_METHODS, key=lambda label: here[label].metrics["nll"]) for here in shared.values()]
    rows = [
        line("NLL, geometric mean", lambda m: f"{exp(mean(map(log, metric(m, 'nll')))):.4f}"),
        line("tables with the lowest NLL", lambda m: str(lowest.count(m))),
        line("error, mean", lambda m: f"{mean(metric(m, 'error')):.2%}"),
        line("calibration error (ECE), mean", lambda m: f"{mean(metric(m, 'ece')):.4f}"),
        line(
            "seconds a fit, median",
            lambda m: f"{median(here[m].seconds or 0.0 for here in shared.values()):.1f}",
        ),
    ]
    table = markdown([f"{len(shared)} tables, test rows", *_METHODS], rows)
    return (
        f"{table}\n\nNLL higher than the better tree's: {where('nll', *_METHODS[1:3])}; than logistic "
        f"regression's: {where('nll', _METHODS[3])}.\nECE higher than logistic regression's: "
        f"{where('ece', _METHODS[3])}."
    )
