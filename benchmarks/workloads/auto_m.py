"""Does `n_inducing="auto"` find a number of inducing points as good as the best fixed one, in time?"""

import numpy as np

from benchmarks.context import Context
from benchmarks.data import UCI, Split, holdout, splits
from benchmarks.methods import Contender
from benchmarks.records import Repetition
from benchmarks.registry import benchmark

SIZES = (25, 50, 100, 200, 400)
SPLITS = 3
LARGE_ROWS, LARGE_TEST = 20_000, 10_000
LARGE = {"max_epochs": 12}
AUTO = Contender("auto", "cavity-sep", {"parameters": {"n_inducing": "auto"}})


def _sets(quick: bool) -> list[tuple[Split, dict[str, int]]]:
    """Splits, and the parameters that every fit on them has."""
    if quick:
        return [(split, {}) for split in splits("heart", 1)]
    small = [(split, {}) for name in UCI for split in splits(name, SPLITS)]
    middle = [(split, {}) for name in ("banana", "image") for split in splits(name, 1)]
    large = []
    for name in ("electricity", "adult", "covtype"):
        split = holdout(name, LARGE_TEST)
        large.append((Split(split.train.take(slice(LARGE_ROWS)), split.test, 0), LARGE))
    return small + middle + large


@benchmark("auto-m", 'n_inducing="auto" against 25, 50, 100, 200 and 400: NLL and seconds, many sets')
def run(context: Context) -> None:
    """Every number of points that the rows allow, and the automatic one."""
    for split, parameters in _sets(context.quick):
        settings = {"seed": split.index, "threads": 1 if split.train.name in UCI else None}
        for m in SIZES[:2] if context.quick else SIZES:
            if m <= len(split.train.y):
                fixed = Contender(
                    f"m = {m}", "cavity-sep", {"parameters": {"n_inducing": m, **parameters}}
                )
                context.measure(fixed, split, settings)
        parameters = {**AUTO.settings["parameters"], **parameters}
        context.measure(Contender(AUTO.label, AUTO.method, {"parameters": parameters}), split, settings)
    print(_table(context.recorded()))


def _table(recorded: list[Repetition]) -> str:
    done = [r for r in recorded if r.failure is None]
    lines = ["| set | best m | NLL | s | auto m | NLL | s | NLL ratio | time ratio |", "|---" * 9 + "|"]
    for dataset in dict.fromkeys(r.dataset for r in done):
        groups: dict[str, list[Repetition]] = {}
        for r in done:
            if r.dataset == dataset:
                groups.setdefault(r.label, []).append(r)
        auto = groups.pop(AUTO.label, None)
        if auto is None or not groups:
            continue
        best = min(groups.values(), key=_nll)
        points = ", ".join(str(r.extra["m"]) for r in auto)
        lines.append(
            f"| {dataset} | {best[0].label.removeprefix('m = ')} | {_nll(best):.4f} "
            f"| {_seconds(best):.2f} "
            f"| {points} | {_nll(auto):.4f} | {_seconds(auto):.2f} "
            f"| {_nll(auto) / _nll(best):.3f} | {_seconds(auto) / _seconds(best):.2f} |"
        )
    return "\n".join(lines)


def _nll(group: list[Repetition]) -> float:
    return float(np.mean([r.metrics["nll"] for r in group]))


def _seconds(group: list[Repetition]) -> float:
    return float(np.mean([r.seconds for r in group if r.seconds is not None]))
