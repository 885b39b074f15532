"""Rows as the user knows them: the columns of a data frame, before they became features."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cavity.plot.canvas import number
from cavity.typing import Array, IntArray


class Cells(NamedTuple):
    """Some columns of some rows, as words."""

    columns: list[str]
    rows: list[list[str]]
    n_columns: int
    """Columns there are."""


def cells_of_features(X: Array, names: list[str], order: IntArray, most: int) -> Cells:
    """The most important features of inputs X [k, d]."""
    shown = order[:most]
    rows = [[number(float(value)) for value in row] for row in X[:, shown]]
    return Cells([names[i] for i in shown], rows, len(names))


def cells_of_frame(frame: Any, names: list[str], order: IntArray, most: int) -> Cells:
    """The columns of a data frame that the most important features were made of.

    >>> import pandas
    >>> frame = pandas.DataFrame({"age": [31], "carrier": ["AA"]})
    >>> cells_of_frame(frame, ["age", "carrier=AA", "carrier=UA"], np.array([2, 0, 1]), most=2)
    Cells(columns=['carrier', 'age'], rows=[['AA', '31']], n_columns=2)
    """
    ranked = [names[i] for i in order]
    columns = sorted(frame.columns, key=lambda column: _rank(str(column), ranked))[:most]
    rows = [[as_words(frame[column].iloc[i]) for column in columns] for i in range(len(frame))]
    return Cells([str(column) for column in columns], rows, len(frame.columns))


def _rank(column: str, ranked: list[str]) -> int:
    """Position of the first feature whose name begins with that of the column."""
    for position, name in enumerate(ranked):
        rest = name[len(column) :]
        if name.startswith(column) and not rest[:1].isalnum() and not rest.startswith("_"):
            return position
    return len(ranked)


def as_words(value: Any) -> str:
    """A cell of a table.

    >>> as_words(3.14159), as_words(np.True_), as_words(None), as_words("x" * 50)[-3:]
    ('3.14', 'True', '', 'xx…')
    """
    if value is None or str(value) in ("nan", "NaT", "<NA>"):
        return ""
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value))
    if isinstance(value, (int, float, np.number)):
        return number(float(value))
    words = str(value).removesuffix(" 00:00:00")
    return words if len(words) <= 40 else f"{words[:39]}…"
