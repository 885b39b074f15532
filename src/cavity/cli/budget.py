"""How long training may take, as people write it."""

from __future__ import annotations

import re
from typing import Any

from cavity.cli.guard import CommandError

_SECONDS = {"s": 1.0, "sec": 1.0, "second": 1.0, "m": 60.0, "min": 60.0, "minute": 60.0}
_SECONDS |= {"h": 3_600.0, "hour": 3_600.0}
_EPOCHS = {"e", "epoch"}
_ITERATIONS = {"i", "it", "iteration"}
_FORM = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]+)\s*", re.IGNORECASE)


def parsed_budget(words: str | None) -> dict[str, Any]:
    """The parameters of an estimator that a budget means.

    >>> parsed_budget("90s"), parsed_budget("1.5 hours")
    ({'max_seconds': 90.0}, {'max_seconds': 5400.0})
    >>> parsed_budget("3e"), parsed_budget("50 iterations")
    ({'max_epochs': 3.0}, {'max_iter': 50})
    """
    if words is None:
        return {}
    match = _FORM.fullmatch(words)
    if match and float(match[1]) > 0:
        number, unit = float(match[1]), match[2].lower()
        unit = unit if unit in ("s",) else unit.removesuffix("s")
        if unit in _SECONDS:
            return {"max_seconds": number * _SECONDS[unit]}
        if unit in _EPOCHS:
            return {"max_epochs": number}
        if unit in _ITERATIONS and number >= 1:
            return {"max_iter": int(number)}
    raise CommandError(
        f"--budget {words!r} is not understood; write 60s, 5m, 1h, '3 epochs' or '100 iterations'"
    )
