"""Where another method is better than ours, from the records: every set, every measure that is compared.

Compared are the means (of rates, the best rounds) over the splits that both have, at the longest budget
of each. A failed repetition is no comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from benchmarks.records import Repetition
from benchmarks.tables import markdown

OURS = ("cavity", "here-", "paper-")
"""How the names of our own methods begin."""
MAIN = ("cavity SEP", "cavity", "SEPClassifier()")
"""What we compare if it is there: the classifier at its defaults; else our best."""


@dataclass(frozen=True)
class Measure:
    """A number by which methods are compared."""

    name: str
    of: Callable[[Repetition], float | None]
    form: str = ".4f"
    larger: bool = False
    """Whether the larger number is the better one."""
    over: Callable[[Iterable[float]], float] = fmean
    """What stands for several splits or rounds."""


def number(r: Repetition, *names: str) -> float | None:
    """A number among a record's further results, or None.

    >>> number(Repetition("w", "A", "a", "d", 0, {}, extra={"b": {"c": 2.0}}), "b", "c")
    2.0
    """
    value: object = r.extra
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, float) else None


NLL = Measure("NLL", lambda r: r.metrics.get("nll"))
SECONDS = Measure("seconds of a fit", lambda r: r.seconds, ".3g")
# Other work on the machine can only make a round slower.
STEPS = Measure(
    "steps a second, best round", lambda r: number(r, "steps_per_second"), ".0f", larger=True, over=max
)
ONE_ROW = Measure("microseconds of a prediction", lambda r: number(r, "one_row_microseconds"), ",.0f")


@dataclass(frozen=True)
class Loss:
    """One set on which others are better."""

    benchmark: str
    dataset: str
    measure: Measure
    ours: tuple[str, float]
    better: Mapping[str, float] = field(default_factory=dict)

    def row(self) -> list[str]:
        """The cells of a table."""
        label, value = self.ours
        form = self.measure.form
        better = "; ".join(f"{name} {other:{form}}" for name, other in self.better.items())
        return [self.benchmark, self.dataset, self.measure.name, f"{label} {value:{form}}", better]


def is_ours(r: Repetition) -> bool:
    """Whether a record is of one of our own methods."""
    return r.method.startswith(OURS)


def losses(
    benchmark: str, repetitions: Sequence[Repetition], measures: Iterable[Measure] = (NLL,)
) -> list[Loss]:
    """The sets of one benchmark on which a peer is better than ours."""
    found = []
    datasets = dict.fromkeys(r.dataset for r in repetitions)
    for measure in measures:
        for dataset in datasets:
            here = _longest([r for r in repetitions if r.dataset == dataset and r.failure is None])
            loss = _compared(benchmark, dataset, measure, here)
            if loss is not None:
                found.append(loss)
    return found


def table(found: Sequence[Loss]) -> str:
    """Markdown: a row a set."""
    if not found:
        return "*Nowhere in these records.*"
    header = ["benchmark", "set", "measure", "ours", "better"]
    return markdown(header, [loss.row() for loss in found])


def _compared(benchmark: str, dataset: str, measure: Measure, here: Sequence[Repetition]) -> Loss | None:
    found: dict[str, dict[int, list[float]]] = {}
    ours = {r.label for r in here if is_ours(r)}
    for r in here:
        value = measure.of(r)
        if value is not None:
            found.setdefault(r.label, {}).setdefault(r.split, []).append(value)
    values = {
        label: {split: fmean(several) for split, several in by_split.items()}
        for label, by_split in found.items()
    }
    sign = -1.0 if measure.larger else 1.0
    mine = {
        label: measure.over(by_split.values()) for label, by_split in values.items() if label in ours
    }
    if not mine:
        return None
    label = next((name for name in MAIN if name in mine), min(mine, key=lambda n: sign * mine[n]))
    better = {}
    for other, by_split in values.items():
        both = [split for split in by_split if split in values[label]]
        if other in ours or not both:
            continue
        theirs = measure.over(by_split[split] for split in both)
        if sign * theirs < sign * measure.over(values[label][split] for split in both):
            better[other] = theirs
    ordered = dict(sorted(better.items(), key=lambda item: sign * item[1]))
    return Loss(benchmark, dataset, measure, (label, mine[label]), ordered) if ordered else None


def _longest(here: Sequence[Repetition]) -> list[Repetition]:
    """The repetitions with the longest budget of each method."""
    last: dict[tuple[str, int, str], Repetition] = {}
    for r in here:
        key = r.label, r.split, str({**r.settings, "timeout": None})
        if key not in last or (r.budget or 0.0) >= (last[key].budget or 0.0):
            last[key] = r
    return list(last.values())
