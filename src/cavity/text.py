"""Text for people: what may be printed, small tables, and names and values in messages."""

from __future__ import annotations

import difflib
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from html import escape
from typing import TypeVar

Thing = TypeVar("Thing")


def printable(text: str) -> str:
    r"""The text on one line, with control characters and invisible characters escaped.

    All output of the command line goes through this function or one of the next two, because names of
    columns, labels and files may come from strangers.

    >>> printable("São Paulo \x1b[31m"), printable("two\nlines")
    ('São Paulo \\x1b[31m', 'two\\nlines')
    """
    if text.isprintable():
        return text
    return "".join(c if _is_seen(c) else c.encode("unicode_escape").decode() for c in text)


def printable_lines(text: str) -> str:
    r"""The text with `printable` lines.

    >>> printable_lines("two\nlines\r")
    'two\nlines\\r'
    """
    return "\n".join(map(printable, text.split("\n")))


def printable_json(text: str) -> str:
    r"""A JSON document of the same meaning, with control and invisible characters escaped.

    >>> printable_json('"\x9b31m"')
    '"\\u009b31m"'
    """
    return "".join(c if c == "\n" or _is_seen(c) else json.dumps(c)[1:-1] for c in text)


def _is_seen(character: str) -> bool:
    return character.isprintable() or unicodedata.category(character) == "Zs"  # wide or fixed spaces


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a table as text: the first column aligned to the left, the others to the right.

    >>> print(text_table(["name", "score"], [["a", "0.5"], ["long", "-12.25"]]))
    name   score
    a        0.5
    long  -12.25
    """
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = []
    for cells in [header, *rows]:
        first, *others = (
            cell.rjust(width) if position else cell.ljust(width)
            for position, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        lines.append("  ".join([first, *others]).rstrip())
    return "\n".join(lines)


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a table as HTML, with all cells escaped.

    >>> html_table(["name"], [["<b>"]])
    '<table><thead><tr><th>name</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def abbreviated(text: str, most: int = 6) -> str:
    """The text with the middle of long lists of numbers left out, as NumPy does.

    >>> abbreviated("RBF(length_scale=[1, 2, 3, 4, 5, 6, 7, 8])")
    'RBF(length_scale=[1, 2, 3, ..., 6, 7, 8])'
    """

    def shorter(found: re.Match[str]) -> str:
        items = found[2].split(", ")
        if len(items) <= most:
            return found[0]
        side = most // 2
        return f"{found[1]}{', '.join([*items[:side], '...', *items[-side:]])}{found[3]}"

    return re.sub(r"([(\[])([-+\d.e, ]*)([)\]])", shorter, text)


_FEW = 20
"""Most names that a message lists."""


def suggestion(name: str, among: Sequence[str]) -> str:
    """End of an error message about an unknown name: the nearest known name, or all if none is near.

    >>> suggestion("delaid", ["age", "delayed"])
    "; did you mean 'delayed'?"
    >>> suggestion("y", ["age", "delayed"])
    "; there are 'age', 'delayed'"
    """
    return did_you_mean(name, among) or (f"; there are {listed(among)}" if among else "")


def did_you_mean(name: str, among: Sequence[str]) -> str:
    """End of an error message about an unknown name: the nearest known name, or nothing if none is near.

    >>> did_you_mean("delaid", ["age", "delayed"]), did_you_mean("y", ["age", "delayed"])
    ("; did you mean 'delayed'?", '')
    """
    by_lower = {other.lower(): other for other in reversed(among)}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f"; did you mean {by_lower[near[0]]!r}?" if near else ""


def listed(names: Sequence[str], most: int = _FEW) -> str:
    """List names in quotes; of many, the first few.

    >>> listed(["a", "b", "c"], most=2)
    "'a', 'b' and 1 more"
    """
    words = ", ".join(map(repr, names[:most]))
    return words if len(names) <= most else f"{words} and {len(names) - most} more"


_LONGEST = 60
"""Most characters of a cell that a message shows."""


def shortened(cell: str) -> str:
    """The beginning of a cell of text, as an example in a message.

    >>> shortened("late"), len(shortened("x" * 1_000))
    ('late', 60)
    """
    return cell[:_LONGEST]


def named_apart(things: Iterable[Thing], name_of: Callable[[Thing], str]) -> dict[str, Thing]:
    """Things by name; those of the same name are numbered.

    >>> named_apart([1, 2.5, 3], lambda number: type(number).__name__)
    {'int 1': 1, 'float': 2.5, 'int 2': 3}
    """
    things = list(things)
    names = [name_of(thing) for thing in things]
    return {
        name if names.count(name) == 1 else f"{name} {names[: i + 1].count(name)}": thing
        for i, (name, thing) in enumerate(zip(names, things, strict=True))
    }


def shown(value: object) -> str:
    """Format the value of a cell as people write it.

    >>> shown("many"), shown(0.5), shown(date(2013, 1, 31))
    ("'many'", '0.5', "'2013-01-31'")
    """
    return repr(str(value) if isinstance(value, date) else value)


def one_line(error: BaseException) -> str:
    """The words of an error on one line, without a full stop or unprintable characters."""
    return printable(" ".join(str(error).split()).rstrip("."))
