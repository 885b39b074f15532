"""`TableClassifier` beside boosted trees, logistic regression, xRFM and RealMLP, on tables of all kinds.

All methods have the same splits. Ours has a minute (two on the flights); the others stop by themselves.
xRFM and RealMLP are slow on the CPU, and are trained on the smaller tables only.
"""

from collections.abc import Mapping, Sequence
from math import exp, log
from pathlib import Path
from statistics import mean

from benchmarks import summary
from benchmarks.context import Context
from benchmarks.methods import Contender
from benchmarks.records import Repetition
from benchmarks.registry import benchmark
from benchmarks.table_data import FLIGHTS, TABLES, table_split
from benchmarks.tables import MISSING, failures, markdown

SECONDS, QUICK_SECONDS, FLIGHT_SECONDS = 60.0, 3.0, 120.0
QUICK = ("german_credit",)
OURS = Contender("cavity", "cavity-table")
TREES = (Contender("LightGBM", "table-lightgbm"), Contender("CatBoost", "table-catboost"))
LINEAR = Contender("logistic regression", "table-logistic")
HGB = Contender("HistGradientBoosting", "table-hgb")
NEURAL = (
    Contender("xRFM", "table-xrfm", {"timeout": 3600}),
    Contender("RealMLP", "table-realmlp", {"timeout": 3600}),
)
EVERYWHERE = (OURS, *TREES, HGB, LINEAR)
NEURAL_ROWS = 20_000
"""The most training rows of a table on which the last two are trained."""
GOALS: Mapping[str, float] = {"airline": 0.56, "nycflights13": 0.40}
"""Largest test NLL on flights."""
LARGEST_MEAN, LARGEST_RATIO, EXCEPTIONS = 1.0, 1.05, 2
"""Limits of the ratio to the better tree: geometric mean, each table, tables that may be above."""
LARGEST_RATIO_TO_LINEAR = 1.01


def table(repetitions: Sequence[Repetition]) -> str:
    """NLL and ECE of all methods by table, and a line for each goal."""
    done: dict[str, dict[str, Repetition]] = {}
    for r in repetitions:
        if r.failure is None:
            done.setdefault(r.dataset, {})[r.label] = r
    there = {label for here in done.values() for label in here}
    contenders = [c for c in (*EVERYWHERE, *NEURAL) if c.label in there]
    rows, ratios, linear, ece_ours, ece_tree, chance, lines = [], {}, {}, [], [], [], []
    for name, here in done.items():
        cells = [_cell(here.get(c.label)) for c in contenders]
        ours = here.get(OURS.label)
        trees = [here[c.label] for c in TREES if c.label in here]
        ratio = MISSING
        if ours is not None and trees:
            better = min(trees, key=lambda r: r.metrics["nll"])
            ratios[name] = ours.metrics["nll"] / better.metrics["nll"]
            ratio = f"{ratios[name]:.3f}"
            ece_ours.append(ours.metrics["ece"])
            ece_tree.append(better.metrics["ece"])
            if "ece_by_chance" in ours.metrics:
                chance.append(ours.metrics["ece_by_chance"])
        if ours is not None and LINEAR.label in here:
            linear[name] = ours.metrics["nll"] / here[LINEAR.label].metrics["nll"]
        if ours is not None and name in GOALS:
            lines.append(_line(f"{name}, NLL", ours.metrics["nll"], GOALS[name]))
        rows.append([name, *cells, ratio])
    header = ["NLL / ECE / s", *(c.label for c in contenders), "ratio to the better tree"]
    shared = {name: ratio for name, ratio in ratios.items() if name in TABLES}
    if shared:
        typical = exp(mean(log(ratio) for ratio in shared.values()))
        lines.insert(0, _line("geometric mean of the ratios on tables", typical, LARGEST_MEAN))
        above = sorted(name for name, ratio in shared.items() if ratio > LARGEST_RATIO)
        words = f"tables with a ratio above {LARGEST_RATIO:g} ({', '.join(above) or 'none'})"
        lines.insert(1, _line(words, len(above), EXCEPTIONS))
        lines.append(_line("mean ECE", mean(ece_ours), mean(ece_tree)))
        if len(chance) == len(ece_ours):
            lines.append(
                f"* mean ECE by chance if our probabilities were exactly right: {mean(chance):.4g}"
            )
    if linear:
        worst = max(linear, key=linear.__getitem__)
        words = f"worst ratio to logistic regression ({worst})"
        lines.append(_line(words, linear[worst], LARGEST_RATIO_TO_LINEAR))
    parts = [markdown(header, rows), "\n".join(lines), *_summaries(repetitions)]
    return "\n\n".join(filter(None, parts)) + failures(repetitions)


def _summaries(repetitions: Sequence[Repetition]) -> list[str]:
    """Ranks on the tables that all common methods have, and on those that the slow ones have too."""
    scores = summary.Scores.of([r for r in repetitions if r.dataset in TABLES])
    if not scores.labels:
        return []
    slow = [c.label for c in NEURAL if c.label in scores.labels]
    parts = [scores.complete(), *([scores.only(slow[0])] if slow else [])]
    return [summary.table(part) for part in parts]


def draw(repetitions: Sequence[Repetition], stem: Path) -> list[Path]:
    """NLL against seconds, all methods."""
    return summary.draw(summary.Scores.of(repetitions), stem)


def _cell(r: Repetition | None) -> str:
    if r is None:
        return MISSING
    return f"{r.metrics['nll']:.4f} / {r.metrics['ece']:.4f} / {r.seconds:.0f}"


def _line(name: str, value: float, limit: float) -> str:
    verdict = "met" if value <= limit else "**missed**"
    return f"* {name}: {value:.4g}, at most {limit:.4g}: {verdict}"


@benchmark(
    "tables",
    "TableClassifier beside trees, logistic regression, xRFM, RealMLP: eleven tables, two of flights",
    table=table,
    draw=draw,
    minutes=120,
)
def run(context: Context) -> None:
    """One split a table."""
    names = QUICK if context.quick else (*TABLES, *FLIGHTS)
    context.expect(len(names) * (len(EVERYWHERE) + len(NEURAL)))
    for name in names:
        split = table_split(name)
        is_small = len(split.train.y) <= NEURAL_ROWS
        full = FLIGHT_SECONDS if name in FLIGHTS else SECONDS
        for contender in (*EVERYWHERE, *(NEURAL if is_small else ())):
            ours = contender is OURS
            budget = context.seconds(full, QUICK_SECONDS) if ours else None
            context.measure(contender, split, {"seed": 0}, budget)
