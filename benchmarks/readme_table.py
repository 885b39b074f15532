"""The table of the README: `TableClassifier` beside boosted trees and logistic regression, in short."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp, log
from pathlib import Path
from statistics import mean, median

from benchmarks.records import Repetition, read
from benchmarks.tables import markdown

METHODS = ("cavity", "LightGBM", "CatBoost", "logistic regression")


def table(records: Path) -> str:
    """The table from the records of the benchmark `tables`, when it was measured, and where we lose."""
    stored = read(records / "tables.jsonl")
    facts = stored.machines[-1]
    measured = f"Measured on {facts['date']} on {facts['cores']} cores of an {facts['cpu']}."
    return f"{summed_up(stored.repetitions)}\n{measured}"


def summed_up(repetitions: Sequence[Repetition]) -> str:
    """Means over the tables that every method has fitted, and the tables where ours is not the best.

    >>> def fit(label, nll, ece):
    ...     scores = {"nll": nll, "ece": ece, "error": 0.1}
    ...     return Repetition("tables", label, label, "crabs", 0, {}, seconds=2.0, metrics=scores)
    >>> scores = {"cavity": (0.3, 0.02), "LightGBM": (0.2, 0.03), "CatBoost": (0.4, 0.03)}
    >>> scores["logistic regression"] = (0.5, 0.01)
    >>> text = summed_up([fit(label, *pair) for label, pair in scores.items()])
    >>> print(text.rpartition("|")[2].strip())
    NLL higher than the better tree's: crabs; than logistic regression's: none.
    ECE higher than logistic regression's: crabs.
    """
    fits: dict[str, dict[str, Repetition]] = {}
    for r in repetitions:
        if r.failure is None:
            fits.setdefault(r.dataset, {})[r.label] = r
    shared = {name: here for name, here in fits.items() if set(METHODS) <= set(here)}

    def metric(label: str, name: str) -> list[float]:
        return [here[label].metrics[name] for here in shared.values()]

    def line(words: str, value: Callable[[str], str]) -> list[str]:
        return [words, *(value(label) for label in METHODS)]

    def where(name: str, *others: str) -> str:
        worse = [
            table
            for table, here in shared.items()
            if here[METHODS[0]].metrics[name] > min(here[label].metrics[name] for label in others)
        ]
        return ", ".join(worse) or "none"

    lowest = [min(METHODS, key=lambda label: here[label].metrics["nll"]) for here in shared.values()]
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
    table = markdown([f"{len(shared)} tables, test rows", *METHODS], rows)
    return (
        f"{table}\n\nNLL higher than the better tree's: {where('nll', *METHODS[1:3])}; than logistic "
        f"regression's: {where('nll', METHODS[3])}.\nECE higher than logistic regression's: "
        f"{where('ece', METHODS[3])}."
    )
