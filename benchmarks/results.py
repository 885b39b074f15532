"""docs/results.md and the README's table, from the templates and the stored records.

The template holds the words. A line `{{ NAME }}` becomes the table, the figure and the footer of that
benchmark's record file, and `{{ where-we-lose }}` what `benchmarks.losses` finds. Nothing is measured
here, and the page depends on the records alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import losses, readme_table
from benchmarks.load import LIMIT
from benchmarks.records import Records, Repetition, read
from benchmarks.registry import Benchmark, benchmarks

TEMPLATE = Path(__file__).parent / "results.template.md"
FIGURES = "../benchmarks/figures"  # as seen from docs/
LOSSES = "where-we-lose"
_PLACE = re.compile(r"^\{\{ ([\w-]+) \}\}$", re.MULTILINE)
_README = re.compile(r"(?<=<!-- results: begin -->\n).*(?=<!-- results: end -->)", re.DOTALL)
_NAMES = {"numpy": "NumPy", "sklearn": "scikit-learn", "blas": "BLAS"}


def page(records: Path, template: str | None = None) -> str:
    """The page, from a folder of record files."""
    known = benchmarks()
    newest = newest_code(read(path) for path in sorted(records.glob("*.jsonl")))

    def filled(place: re.Match[str]) -> str:
        name = place[1]
        if name == LOSSES:
            return losses.table(all_losses(records))
        if name not in known:
            raise ValueError(f"the template asks for {name!r}; there are {', '.join(known)}")
        return section(known[name], records / f"{name}.jsonl", newest)

    text = TEMPLATE.read_text(encoding="utf-8") if template is None else template
    return _PLACE.sub(filled, text)


def section(item: Benchmark, path: Path, newest: str | None = None) -> str:
    """Command, table, figure and footer of one benchmark, or how to get them."""
    command = f"`python -m benchmarks run {item.name}`"
    stored = read(path)
    if not stored.repetitions:
        return f"*Not recorded yet; {command} measures it.*"
    parts = [f"{command}: {item.description}.", item.table(stored.repetitions)]
    if item.draw is not None:
        parts.append(f"![{item.description}]({FIGURES}/{item.name}.png)")
    return "\n\n".join([*parts, footer(stored, newest)])


def all_losses(records: Path) -> list[losses.Loss]:
    """Every benchmark's, in the order of their names."""
    found = []
    for item in benchmarks().values():
        repetitions = read(records / f"{item.name}.jsonl").repetitions
        found += losses.losses(item.name, repetitions, item.measures)
    return found


def newest_code(stored: Iterable[Records]) -> str | None:
    """The fingerprint of our code that the last run of any benchmark had; None if none tells."""
    machines = (facts for records in stored for facts in records.machines if facts.get("code"))
    last = max(machines, key=lambda facts: (facts["date"], facts["time"]), default=None)
    return None if last is None else str(last["code"])


def footer(stored: Records, newest: str | None) -> str:
    """On what the numbers of a table were measured, when, by which commit; and what to beware of."""
    used = [stored.machines[k] for k in sorted(set(stored.where)) if k >= 0]
    versions = _versions(used, stored.repetitions)
    dates = sorted({facts["date"] for facts in used if "date" in facts})
    commits = _counted(str(stored.machine(k).get("commit", "unknown")) for k in range(len(stored.where)))
    when = _range(dates) if dates else "date unknown"
    text = f"*{machines(used)}; {versions}; {when}; commit {commits}.*"
    flags = warnings(stored, newest)
    return "\n\n".join([text, *([f"⚠ {' '.join(flags)}"] if flags else [])])


def warnings(stored: Records, newest: str | None) -> list[str]:
    """What a reader should know before trusting a table: other code, a changed tree, a busy machine."""
    n, found = len(stored.repetitions), []
    commits = [str(stored.machine(k).get("commit", "unknown")) for k in range(n)]
    loose = sum(commit == "unknown" or commit.endswith("+") for commit in commits)
    old = sum(r.code is None or (losses.is_ours(r) and r.code != newest) for r in stored.repetitions)
    busy = sum(r.load is not None and r.load > LIMIT for r in stored.repetitions)
    if old:
        found.append(f"{_share(old, n)} older code than the newest on this page.")
    if loose:
        found.append(f"{_share(loose, n)} a tree with changes or no known commit.")
    if busy:
        found.append(f"{_share(busy, n)} a busy machine.")
    return found


def machines(used: Iterable[Mapping[str, Any]]) -> str:
    """The machines that numbers were measured on, with the rates that matrix products had there.

    >>> rates = [{"float64_all_threads": rate} for rate in (93.4, 97.0)]
    >>> machines({"cpu": "A", "cores": 2, "gemm_gflops": rate} for rate in rates)
    'A, 2 cores, GEMM 93 to 97 Gflop/s (float64)'
    """
    rates: dict[str, list[float]] = {}
    for facts in used:
        name = f"{facts.get('cpu', 'unknown machine')}, {facts.get('cores', '?')} cores"
        rate = facts.get("gemm_gflops", {}).get("float64_all_threads")
        rates.setdefault(name, []).extend([rate] if rate else [])
    return "; ".join(
        f"{name}, GEMM {_range([f'{min(found):.0f}', f'{max(found):.0f}'])} Gflop/s (float64)"
        if found
        else name
        for name, found in rates.items()
    )


def _range(ends: Sequence[str]) -> str:
    return " to ".join(dict.fromkeys((ends[0], ends[-1])))


def _versions(used: Sequence[Mapping[str, Any]], repetitions: Sequence[Repetition]) -> str:
    """Ours and the peers'; several of one library are all named."""
    found: dict[str, dict[str, None]] = {}
    for facts in used:
        for key, name in _NAMES.items():
            if facts.get(key):
                found.setdefault(name, {})[str(facts[key])] = None
    for r in repetitions:
        if not losses.is_ours(r):
            for name, version in r.extra.get("versions", {}).items():
                if name not in ("numpy", "scikit-learn", "scipy"):
                    found.setdefault(name, {})[version] = None
    return ", ".join(f"{name} {' and '.join(versions)}" for name, versions in found.items())


def _counted(names: Iterable[str]) -> str:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{name} ({count})" for name, count in counts.items())


def _share(some: int, n: int) -> str:
    return f"{'All' if some == n else f'{some} of'} {n} measurements are of"


def readme(text: str, records: Path) -> str:
    """The README with its table made anew."""
    if not _README.search(text):
        raise ValueError("the README lacks <!-- results: begin --> and <!-- results: end -->")
    return _README.sub(lambda place: readme_table.table(records) + "\n", text)
