"""Names of columns, finding the one that was meant, and values in messages."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from datetime import date
from typing import Any

_FEW = 20


def suggestion(name: str, among: Sequence[str]) -> str:
    """Words to end an error with: the nearest name, or all of them if they are few.

    >>> suggestion("delaid", ["age", "delayed"])
    "; did you mean 'delayed'?"
    >>> suggestion("y", ["age", "delayed"])
    "; there are 'age', 'delayed'"
    """
    by_lower = {other.lower(): other for other in reversed(among)}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1)
    if near:
        return f"; did you mean {by_lower[near[0]]!r}?"
    return f"; there are {listed(among)}" if among else ""


def listed(names: Sequence[str], most: int = _FEW) -> str:
    """Names in quotes, the first few of many.

    >>> listed(["a", "b", "c"], most=2)
    "'a', 'b' and 1 more"
    """
    words = ", ".join(map(repr, names[:most]))
    return words if len(names) <= most else f"{words} and {len(names) - most} more"


def shown(value: Any) -> str:
    """A value of a cell, as people write it.

    >>> shown("many"), shown(0.5), shown(date(2013, 1, 31))
    ("'many'", '0.5', "'2013-01-31'")
    """
    return repr(str(value) if isinstance(value, date) else value)
