"""The paper's Table 1: seven UCI sets, m = 15, 25 and 50 %, test NLL and training seconds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.context import Context
from benchmarks.data import UCI, splits
from benchmarks.methods import Contender
from benchmarks.paper.numbers import FRACTIONS, TABLE1
from benchmarks.records import Repetition
from benchmarks.registry import benchmark
from benchmarks.tables import MISSING, failures, markdown

SPLITS = 20
_PAPER = {"scheme": "paper"}
_DEFAULT = {"scheme": "default"}

SPARSE = (
    Contender("GFITC, paper", "here-gfitc", _PAPER),
    Contender("SEP, paper", "here-sep", _PAPER),
    Contender("SVI, paper", "here-svi", _PAPER),
    Contender("SEP, default", "here-sep", _DEFAULT),
    Contender("SVI, default", "here-svi", _DEFAULT),
)
FULL = (
    Contender("logistic regression", "logistic"),
    Contender("scikit-learn GPC", "sklearn-gpc"),
)


def table(repetitions: Sequence[Repetition]) -> str:
    """NLL as mean ± standard deviation over the splits, the paper's number in brackets, and seconds."""
    parts = []
    for fraction in FRACTIONS:
        rows = _rows(repetitions, fraction)
        if rows:
            header = [f"m = {100 * fraction:.0f} %", *(c.label for c in (*SPARSE, *FULL))]
            parts.append(markdown(header, rows))
    return "\n\n".join([*parts, _verdict(repetitions)]) + failures(repetitions)


def _cells(
    repetitions: Sequence[Repetition], name: str, fraction: float, label: str
) -> list[Repetition]:
    """The fits of a cell; those without inducing points serve every m."""
    return [
        r
        for r in repetitions
        if r.dataset == name
        and r.label == label
        and r.failure is None
        and r.settings.get("fraction", fraction) == fraction
    ]


def _rows(repetitions: Sequence[Repetition], fraction: float) -> list[list[str]]:
    if not any(r.settings.get("fraction") == fraction for r in repetitions):
        return []
    rows: list[list[str]] = []
    seconds: dict[str, list[float]] = {c.label: [] for c in (*SPARSE, *FULL)}
    for name in UCI:
        row = [name]
        for contender in (*SPARSE, *FULL):
            group = _cells(repetitions, name, fraction, contender.label)
            seconds[contender.label] += [r.seconds for r in group if r.seconds is not None]
            row.append(_cell([r.metrics["nll"] for r in group], _printed(name, fraction, contender)))
        rows.append(row)
    times = [
        _cell(seconds[c.label], _printed("seconds", fraction, c), form=".2f")
        if seconds[c.label]
        else MISSING
        for c in (*SPARSE, *FULL)
    ]
    return [*rows, ["seconds a fit", *times]]


def _printed(name: str, fraction: float, contender: Contender) -> tuple[float, float] | None:
    """What the paper prints for this cell."""
    method, _, scheme = contender.label.partition(", ")
    return TABLE1.get((name, fraction, method)) if scheme == "paper" else None


def _cell(values: Sequence[float], printed: tuple[float, float] | None, form: str = ".3f") -> str:
    if not values:
        return MISSING
    spread = f" ± {np.std(values):{form}}" if form == ".3f" else ""
    paper = ""
    if printed is not None:
        paper = f" [{printed[0]:.2f} ± {printed[1]:.2f}]" if form == ".3f" else f" [{printed[0]:g}]"
    return f"{np.mean(values):{form}}{spread}{paper}"


def _verdict(repetitions: Sequence[Repetition]) -> str:
    """Which cells are worse than the paper's mean plus its ±, and the methods' relative seconds."""
    n_splits = len({r.split for r in repetitions})
    lines = [f"{n_splits} of {SPLITS} splits are recorded."] if n_splits < SPLITS else []
    worse, cells = [], 0
    for contender in SPARSE[:4]:
        method = contender.label.partition(", ")[0]
        for fraction in FRACTIONS:
            for name in UCI:
                nll = [r.metrics["nll"] for r in _cells(repetitions, name, fraction, contender.label)]
                mean, spread = TABLE1[name, fraction, method]
                cells += bool(nll)
                if nll and np.mean(nll) > mean + spread:
                    worse.append(f"{contender.label} on {name} at {100 * fraction:.0f} %")
    lines.append(
        f"{cells - len(worse)} of {cells} cells (GFITC, SEP and SVI in the paper's setting, SEP at its "
        "defaults) are within the paper's ± or better"
        + (f"; not: {', '.join(worse)}." if worse else ".")
    )
    for fraction in FRACTIONS:
        means = {}
        for contender in SPARSE[:3]:
            fits = [r for n in UCI for r in _cells(repetitions, n, fraction, contender.label)]
            taken = [r.seconds for r in fits if r.seconds is not None]
            if taken:
                means[contender.label.partition(",")[0]] = float(np.mean(taken))
        order = sorted(means, key=lambda name: means[name])
        if len(order) == 3:
            text = ", ".join(f"{name} {means[name] / means[order[0]]:.1f}" for name in order)
            lines.append(f"Seconds at {100 * fraction:.0f} %, as multiples of the fastest: {text}.")
    return "\n".join(lines)


@benchmark(
    "table1",
    "the paper's Table 1: seven UCI sets, m = 15/25/50 %, 20 splits, three systems and two yardsticks",
    table=table,
    minutes=150,
)
def run(context: Context) -> None:
    """Split by split through all sets and m, so that a run that is cut short has a balanced table."""
    names = ("heart", "crabs") if context.quick else UCI
    fractions = FRACTIONS[:2] if context.quick else FRACTIONS
    n_splits = context.repetitions(SPLITS, quick=2)
    context.expect(n_splits * len(names) * (len(fractions) * len(SPARSE) + len(FULL)))
    every = {name: list(splits(name, n_splits)) for name in names}
    for index in range(n_splits):
        for name in names:
            split = every[name][index]
            # One thread: these matrices are small, and a second thread slows every library down.
            common = {"seed": index, "threads": 1}
            n = len(split.train.y) + len(split.test.y)
            for contender in FULL:
                # The GPC starts at the lengthscale of the largest common start.
                context.measure(contender, split, {**common, "m": round(FRACTIONS[-1] * n)})
            for fraction in fractions:
                settings = {**common, "m": round(fraction * n), "fraction": fraction}
                if context.quick:
                    settings["iterations"] = 50
                for contender in SPARSE:
                    context.measure(contender, split, settings)
