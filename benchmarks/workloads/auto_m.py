"""Does `n_inducing="auto"` find a number of inducing points as good as the best fixed one, in time?

The best of five numbers by test NLL is partly chance: even if all were equally good, one would look
best. So the table compares with two of them: the number that is best on the very splits that are scored,
and, split by split, the number that is best on all the other splits, which can be known beforehand.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from benchmarks.context import Context
from benchmarks.data import UCI, Split, holdout, splits
from benchmarks.methods import Contender
from benchmarks.records import Repetition
from benchmarks.registry import benchmark
from benchmarks.tables import MISSING, failures, markdown

SIZES = (25, 50, 100, 200, 400)
SPLITS, MIDDLE_SPLITS = 20, 10
MIDDLE = ("banana", "image")
LARGE = ("electricity", "adult", "covtype")
LARGE_ROWS, LARGE_TEST = 20_000, 10_000
LARGE_EPOCHS = 12
AUTO = "auto"

Groups = dict[str, dict[int, Repetition]]
"""The fits of a set by label and split."""


def table(repetitions: Sequence[Repetition]) -> str:
    """One row per set: the automatic number and the best fixed one, with and without hindsight."""
    rows = []
    for dataset in dict.fromkeys(r.dataset for r in repetitions):
        groups: Groups = {}
        for r in repetitions:
            if r.dataset == dataset and r.failure is None:
                groups.setdefault(r.label, {})[r.split] = r
        auto = groups.pop(AUTO, None)
        if auto and groups:
            rows.append(_row(dataset, auto, groups))
    header = ["set", "splits", "auto m", "NLL", "s", "best m", "NLL ratio", "time ratio"]
    header += ["best m of other splits", "NLL ratio", "time ratio", "lucky by"]
    return markdown(header, rows) + "\n\n" + _verdict(rows) + failures(repetitions)


def _row(dataset: str, auto: dict[int, Repetition], groups: Groups) -> list[str]:
    complete = {label: fits for label, fits in groups.items() if set(fits) >= set(auto)}
    best = min(complete, key=lambda label: _nll(complete[label].values()))
    found = sorted(r.extra["m"] for r in auto.values())
    points = str(found[0]) if found[0] == found[-1] else f"{found[0]} … {found[-1]}"
    row = [dataset, str(len(auto)), points, f"{_nll(auto.values()):.4f}", f"{_time(auto.values()):.2f}"]
    row += [best.removeprefix("m = "), *_ratios(auto, list(complete[best].values()))]
    honest = _chosen_elsewhere(complete, list(auto))
    if not honest:
        return [*row, MISSING, MISSING, MISSING, MISSING]
    chosen = sorted({int(r.settings["parameters"]["n_inducing"]) for r in honest})
    luck = _nll(honest) / _nll(complete[best].values()) - 1.0
    return [*row, ", ".join(map(str, chosen)), *_ratios(auto, honest), f"{100 * luck:.1f} %"]


def _chosen_elsewhere(groups: Groups, indices: Sequence[int]) -> list[Repetition]:
    """For each split the fit of the number that is best on all the others; empty for a single split."""
    if len(indices) < 2:
        return []
    chosen = []
    for index in indices:
        others = {
            label: _nll([fits[k] for k in indices if k != index]) for label, fits in groups.items()
        }
        chosen.append(groups[min(others, key=lambda label: others[label])][index])
    return chosen


def _ratios(auto: dict[int, Repetition], others: Sequence[Repetition]) -> list[str]:
    nll = _nll(auto.values()) / _nll(others)
    return [f"{nll:.3f}", f"{_time(auto.values()) / _time(others):.2f}"]


def _verdict(rows: Sequence[Sequence[str]]) -> str:
    """How many sets are within 1 % of the NLL and twice the time of each comparison."""
    lines = []
    for name, nll, seconds in (("with hindsight", 6, 7), ("of other splits", 9, 10)):
        measured = [row for row in rows if row[nll] != MISSING]
        worse = [row[0] for row in measured if float(row[nll]) > 1.01]
        slower = [row[0] for row in measured if float(row[seconds]) > 2.0]
        lines.append(
            f"* Best m {name}: NLL within 1 % on {len(measured) - len(worse)} of {len(measured)} sets"
            + (f" (not: {', '.join(worse)})" if worse else "")
            + f", at most twice the time on {len(measured) - len(slower)}"
            + (f" (not: {', '.join(slower)})." if slower else ".")
        )
    return "\n".join(lines)


def _nll(fits: Iterable[Repetition]) -> float:
    return float(np.mean([r.metrics["nll"] for r in fits]))


def _time(fits: Iterable[Repetition]) -> float:
    return float(np.mean([r.seconds for r in fits if r.seconds is not None]))


def _sets(context: Context) -> list[tuple[Split, dict[str, int]]]:
    """Splits, and the parameters that every fit on them has."""
    if context.quick:
        return [(split, {}) for split in splits("heart", context.repetitions(SPLITS, quick=2))]
    n_splits = context.repetitions(SPLITS, quick=2)
    sets: list[tuple[Split, dict[str, int]]] = []
    for name in (*UCI, *MIDDLE):
        count = n_splits if name in UCI else min(n_splits, MIDDLE_SPLITS)
        sets += [(split, {}) for split in splits(name, count)]
    for name in LARGE:
        split = holdout(name, LARGE_TEST)
        train = split.train.take(slice(LARGE_ROWS))
        sets.append((Split(train, split.test, 0), {"max_epochs": LARGE_EPOCHS}))
    return sets


@benchmark(
    "auto-m",
    'n_inducing="auto" against 25, 50, 100, 200 and 400: NLL and seconds, twelve sets',
    table=table,
)
def run(context: Context) -> None:
    """Every number of points that the rows allow, and the automatic one."""
    sizes = SIZES[:2] if context.quick else SIZES
    jobs = [
        (split, {**parameters, "n_inducing": m})
        for split, parameters in _sets(context)
        for m in (*sizes, AUTO)
        if m == AUTO or int(m) <= len(split.train.y)
    ]
    context.expect(len(jobs))
    for split, parameters in jobs:
        m = parameters["n_inducing"]
        label = AUTO if m == AUTO else f"m = {m}"
        small = split.train.name in UCI
        context.measure(
            Contender(label, "here-cavity-sep" if small else "cavity-sep", {"parameters": parameters}),
            split,
            {"seed": split.index, "threads": 1 if small else None},
        )
