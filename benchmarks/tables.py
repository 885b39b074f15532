"""Markdown tables from recorded repetitions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.records import Repetition

MISSING = "–"


def table(repetitions: Sequence[Repetition]) -> str:
    """The table that fits: sets in columns if there are several, else one row of measures."""
    if all("nll" not in r.metrics and r.failure is None for r in repetitions):
        return notes(repetitions)
    datasets = {r.dataset for r in repetitions}
    if len(datasets) == 1:
        return by_method(repetitions)
    return by_dataset(repetitions) + failures(repetitions)


def by_dataset(repetitions: Sequence[Repetition], metric: str = "nll") -> str:
    """Mean `metric` by method and dataset, its mean over the datasets, and seconds a fit.

    A method that failed on a split lacks a split that the others were scored on, often a hard one. The
    mean of that set has a star then, and the method gets no mean over the sets.
    """
    datasets = sorted({r.dataset for r in repetitions})
    rows = []
    for label, group in _by_label(repetitions).items():
        cells, means, complete = [], [], True
        for dataset in datasets:
            here = [r for r in group if r.dataset == dataset]
            done = [r.metrics[metric] for r in here if r.failure is None]
            means.append(_mean(done))
            failed = len(done) < len(here)
            complete &= bool(done) and not failed
            cells.append(_cell(means[-1], ".3f") + ("*" if done and failed else ""))
        overall = f"**{np.mean(means):.3f}**" if complete else MISSING
        seconds = _mean([r.seconds for r in group if r.seconds is not None])
        rows.append([label, *cells, overall, _cell(seconds, ".2f"), _failures(group)])
    return markdown(["method", *datasets, "mean", "s/fit", "failed"], rows)


def by_method(repetitions: Sequence[Repetition]) -> str:
    """One row a method: scores, training seconds, steps a second, peak memory."""
    rows = []
    for label, group in _by_label(repetitions).items():
        done = [r for r in group if r.failure is None]
        rate = _mean([r.extra["steps_per_second"] for r in done if "steps_per_second" in r.extra])
        memory = _mean([r.peak_memory / 2**30 for r in done if r.peak_memory is not None])
        rows.append(
            [
                label,
                _cell(_mean([r.metrics["nll"] for r in done]), ".4f"),
                _cell(100 * _mean([r.metrics["error"] for r in done]), ".2f"),
                _cell(_mean([r.metrics["ece"] for r in done if "ece" in r.metrics]), ".4f"),
                _cell(_mean([r.seconds for r in done if r.seconds is not None]), ".1f"),
                _cell(rate, ".1f"),
                _cell(memory, ".2f"),
                _failures(group),
            ]
        )
    header = ["method", "NLL", "error %", "ECE", "seconds", "steps/s", "peak GB", "failed"]
    return markdown(header, rows) + failures(repetitions)


def failures(repetitions: Sequence[Repetition]) -> str:
    """The last line of each failure; an empty string if there is none."""
    words: dict[tuple[str, str], list[str]] = {}
    for r in repetitions:
        if r.failure is not None:
            text = r.failure.strip().splitlines()[-1][:160]
            words.setdefault((r.label, text), []).append(r.dataset)
    several = len({r.dataset for r in repetitions}) > 1
    return "".join(
        f"\n\n* {label} failed{' on ' + ', '.join(dict.fromkeys(sets)) if several else ''}: `{text}`"
        for (label, text), sets in words.items()
    )


def choices(repetitions: Sequence[Repetition]) -> str:
    """What the search of a peer chose, a line each; an empty string if none searched."""
    lines = []
    for r in repetitions:
        chosen = r.extra.get("chosen")
        if chosen is not None and r.failure is None:
            words = ", ".join(f"{value} ({name.replace('_', ' ')})" for name, value in chosen.items())
            lines.append(
                f"* {r.label} on {r.dataset} chose {words} of {len(r.extra['search'])} candidates, in "
                f"{r.extra['search_seconds']:.0f} s that are not counted."
            )
    return "\n".join(dict.fromkeys(lines))


def curves(repetitions: Sequence[Repetition], moments: Sequence[float]) -> str:
    """Test NLL at given training seconds: the last evaluation at or before each of them."""
    rows = []
    for label, group in _by_label(repetitions).items():
        cells = [_cell(_mean([_at(r.curve, t) for r in group if r.curve]), ".4f") for t in moments]
        rows.append([label, *cells])
    return markdown(["NLL after", *(f"{t:g} s" for t in moments)], rows)


def seconds_to_reach(repetitions: Sequence[Repetition], targets: Sequence[float]) -> str:
    """Training seconds until the test NLL first is as low as each target; – if it never was.

    If a method has several budgets, the shortest fit that reaches the target counts.
    """
    rows = []
    for label, group in _by_label(repetitions).items():
        points = [p for r in group if r.failure is None for p in r.curve]
        cells = []
        for target in targets:
            reached = [p["seconds"] for p in points if p["nll"] <= target]
            cells.append(_cell(min(reached, default=np.nan), ".1f"))
        rows.append([label, *cells])
    return markdown(["seconds until NLL", *(f"≤ {t:g}" for t in targets)], rows)


def notes(repetitions: Sequence[Repetition]) -> str:
    """Measurements that are not fits: one row each, one column a quantity, one table a kind."""
    kinds: dict[tuple[str, ...], list[Repetition]] = {}
    for r in repetitions:
        kinds.setdefault(tuple(r.extra), []).append(r)
    return "\n\n".join(
        markdown(
            ["", *(name.replace("_", " ") for name in names)],
            [[r.label, *(_value(r.extra[name]) for name in names)] for r in alike],
        )
        for names, alike in kinds.items()
    )


def _value(value: object) -> str:
    """A number that people can read: four digits, thousands apart.

    >>> _value(4_479_812.3), _value(0.0337512), _value({"1": 0.25})
    ('4,479,812', '0.03375', '1: 0.25')
    """
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_value(part)}" for key, part in value.items())
    if not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"


def first_steps(repetitions: Sequence[Repetition], least: float = 0.5) -> str:
    """Which methods spend more than `least` seconds a fit on their first step, such as on tracing."""
    words = []
    for label, group in _by_label(repetitions).items():
        first = _mean([r.extra["first_step_seconds"] for r in group if "first_step_seconds" in r.extra])
        if first > least:
            words.append(
                f"\n\nOf the seconds of {label}, {first:.1f} are its first step, in every process."
            )
    return "".join(words)


def budgets(repetitions: Sequence[Repetition]) -> str:
    """Test NLL and error of fits with different budgets: one column a budget."""
    moments = sorted({r.budget for r in repetitions if r.budget is not None})
    rows = []
    for label, group in _by_label(repetitions).items():
        cells = []
        for seconds in moments:
            here = [r.metrics for r in group if r.budget == seconds and r.failure is None]
            nll, error = _mean([m["nll"] for m in here]), 100 * _mean([m["error"] for m in here])
            cells.append(f"{_cell(nll, '.4f')} / {_cell(error, '.2f')} %")
        rows.append([label, *cells])
    return markdown(["NLL / error, budget of", *(f"{t:g} s" for t in moments)], rows)


def _at(curve: Sequence[dict[str, float]], seconds: float) -> float:
    # The last step of a budget ends a little after it; that point still belongs to the budget.
    before = [point["nll"] for point in curve if point["seconds"] <= 1.02 * seconds]
    return before[-1] if before else np.nan


def _by_label(repetitions: Sequence[Repetition]) -> dict[str, list[Repetition]]:
    groups: dict[str, list[Repetition]] = {}
    for repetition in repetitions:
        groups.setdefault(repetition.label, []).append(repetition)
    return groups


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else np.nan


def _cell(value: float, form: str) -> str:
    return MISSING if np.isnan(value) else format(value, form)


def _failures(group: Sequence[Repetition]) -> str:
    count = sum(r.failure is not None for r in group)
    return f"{count}/{len(group)}" if count else ""


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
