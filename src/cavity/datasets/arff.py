"""Reading ARFF, the format of OpenML: as much of it as its tables of numbers and categories need."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from cavity.errors import DatasetError

_ATTRIBUTE = re.compile(r"@attribute\s+('(?:[^'\\]|\\.)*'|\"[^\"]*\"|\S+)\s+(.+)", re.IGNORECASE)
_NUMERIC = {"numeric", "real", "integer"}
_ROWS = 2_000


@dataclass(frozen=True)
class Arff:
    """A table of columns, in their order."""

    columns: dict[str, NDArray[Any]]
    """[n] each: numbers, NaN where missing, or text, "?" where missing."""


def read_arff(path: Path) -> Arff:
    """The columns of an ARFF file; numbers that are whole and small take little memory."""
    with path.open(encoding="utf-8", newline="") as file:
        try:
            numeric = dict(_attributes(file))
            chunks = list(_chunks(file, list(numeric.values())))
        except (ValueError, csv.Error, UnicodeDecodeError) as error:
            raise DatasetError(f"{path} is not a readable ARFF file: {error}") from error
    if not chunks:
        raise DatasetError(f"{path} has no rows")
    columns = (np.concatenate(parts) for parts in zip(*chunks, strict=True))
    return Arff(dict(zip(numeric, columns, strict=True)))


def _attributes(file: TextIO) -> Iterator[tuple[str, bool]]:
    """Name of each column, and whether it is of numbers; stops where the data begin."""
    for line in file:
        text = line.strip()
        if text.lower() == "@data":
            return
        if text.lower().startswith("@attribute"):
            match = _ATTRIBUTE.match(text)
            if match is None:
                raise ValueError(f"cannot make sense of {text!r}")
            yield match[1].strip("'\""), match[2].strip().lower() in _NUMERIC
    raise ValueError("it has no @data")


def _chunks(file: TextIO, numeric: list[bool]) -> Iterator[list[NDArray[Any]]]:
    lines = (line for line in file if line.strip() and not line.startswith("%"))
    rows = csv.reader(lines, quotechar="'", skipinitialspace=True, escapechar="\\")
    while chunk := list(islice(rows, _ROWS)):
        yield [
            _numbers(values) if is_number else np.array([value.strip() for value in values])
            for values, is_number in zip(zip(*chunk, strict=True), numeric, strict=True)
        ]


def _numbers(values: tuple[str, ...]) -> NDArray[Any]:
    found = np.array([value.replace("?", "nan") for value in values], dtype=np.float64)
    small = found.astype(np.uint8) if ((found >= 0) & (found < 256)).all() else found
    return small if small.dtype == np.uint8 and (small == found).all() else found
