"""Decisions of the commands: the positive class, a threshold, or what mistakes cost."""

from __future__ import annotations

import numpy as np

from cavity.cli.guard import CommandError
from cavity.cli.options import Deciding
from cavity.data.labels import Classes, positive_class
from cavity.gp.metrics import Decision
from cavity.text import listed, suggestion
from cavity.typing import Array


def decision_of(options: Deciding, labels: Classes) -> Decision:
    """How labels are predicted, from the options of a command and the classes of a model."""
    words = [str(value) for value in labels.values.tolist()]
    if options.threshold is not None and options.cost:
        raise CommandError("--threshold and --cost both decide the label; give only one of them")
    if options.threshold is not None and len(words) > 2:
        raise CommandError(
            f"--threshold is for two classes, and there are {len(words)}; --cost decides among more"
        )
    if options.threshold is not None and not 0.0 < options.threshold < 1.0:
        raise CommandError(
            f"--threshold {options.threshold:g} is not between 0 and 1; give a probability such as 0.3"
        )
    positive = positive_code(options.positive, labels)
    costs = parsed_costs(options.cost, words) if options.cost else None
    return Decision(1 if positive is None else positive, options.threshold, costs)


def positive_code(name: str | None, labels: Classes) -> int | None:
    """Code of the positive class: the one of this name, or the usual one; None if there are many."""
    words = [str(value).strip() for value in labels.values.tolist()]
    if name is None:
        return positive_class(labels.values, labels.counts) if len(words) == 2 else None
    if len(words) > 2:
        raise CommandError(f"--positive is for two classes, and there are {len(words)}; leave it out")
    if name.strip() not in words:
        raise CommandError(f"--positive {name!r} is not a class{suggestion(name, words)}")
    return words.index(name.strip())


def parsed_costs(given: list[str], words: list[str]) -> Array:
    """Costs [C, C] of predicting the class of a column for a row of that of a line; by default 1.

    >>> parsed_costs(["yes:no=5"], ["no", "yes"]).tolist()
    [[0.0, 1.0], [5.0, 0.0]]
    """
    costs = 1.0 - np.eye(len(words))
    for word in given:
        pair, _, number = word.rpartition("=")
        # A name may have colons of its own.
        found = [
            (i, j)
            for i in range(len(words))
            for j in range(len(words))
            if i != j and pair == f"{words[i]}:{words[j]}"
        ]
        if len(found) != 1:
            raise CommandError(
                f"--cost {word!r} is not understood; write TRUE:PREDICTED=COST with two of the classes "
                f"{listed(words)}, for instance {f'{words[-1]}:{words[0]}=5'!r}"
            )
        try:
            cost = float(number)
        except ValueError:
            cost = -1.0
        if not 0.0 < cost < np.inf:
            raise CommandError(f"--cost {word!r}: {number!r} is not a positive number; write one")
        costs[found[0]] = cost
    return costs


def decision_line(decision: Decision, words: list[str]) -> str | None:
    """Say which class is the positive one and when it is predicted; None for more than two classes.

    >>> decision_line(Decision(1, 0.3), ["no", "yes"])
    "positive class: 'yes', predicted from a probability of 0.3 on"
    """
    if len(words) > 2:
        return "labels: those of least expected cost" if decision.costs is not None else None
    return (
        f"positive class: {words[decision.positive]!r}, predicted from a probability of "
        f"{decision.least_probability:.4g} on"
    )
