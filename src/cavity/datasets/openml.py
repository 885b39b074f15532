"""Datasets from OpenML: downloaded by number, checked by name and checksum, and read from ARFF.

The reader knows as much of ARFF as tables of numbers and categories need, and reads in chunks, so that
large tables of small whole numbers take little memory.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TextIO

import numpy as np
from sklearn.utils import Bunch

from cavity.datasets.download import Checksum, download_file, download_json, in_cache
from cavity.errors import DatasetError
from cavity.typing import AnyArray

_ATTRIBUTE = re.compile(r"@attribute\s+('(?:[^'\\]|\\.)*'|\"[^\"]*\"|\S+)\s+(.+)", re.IGNORECASE)
_NUMERIC = {"numeric", "real", "integer"}
"""Types of attributes that are numbers, in lower case."""
_ROWS = 2_000
"""Rows that are read at a time."""
API = "https://www.openml.org/api/v1/json"


def read_arff(path: Path) -> dict[str, AnyArray]:
    """Read the columns [n] of an ARFF file, by name.

    A column of numbers has NaN where a value is missing, and type uint8 if its numbers allow it; a
    column of text has "?" where a value is missing.
    """
    with path.open(encoding="utf-8", newline="") as file:
        try:
            numeric = dict(_attributes(file))
            chunks = list(_chunks(file, list(numeric.values())))
        except (ValueError, csv.Error, UnicodeDecodeError) as error:
            raise DatasetError(f"{path} is not a readable ARFF file: {error}") from error
    if not chunks:
        raise DatasetError(f"{path} has no rows")
    columns = (np.concatenate(parts) for parts in zip(*chunks, strict=True))
    return dict(zip(numeric, columns, strict=True))


def _attributes(file: TextIO) -> Iterator[tuple[str, bool]]:
    """Read the header: the name of each column, and whether it is of numbers."""
    for line in file:
        text = line.strip()
        if text.lower() == "@data":
            return
        if text.lower().startswith("@attribute"):
            match = _ATTRIBUTE.match(text)
            if match is None:
                raise ValueError(f"it has an unreadable line {text!r}")
            yield match[1].strip("'\""), match[2].strip().lower() in _NUMERIC
    raise ValueError("it has no @data")


def _chunks(file: TextIO, numeric: list[bool]) -> Iterator[list[AnyArray]]:
    """Read the data in chunks of columns; numeric: which columns are of numbers."""
    lines = (line for line in file if line.strip() and not line.startswith("%"))
    rows = csv.reader(lines, quotechar="'", skipinitialspace=True, escapechar="\\")
    while chunk := list(islice(rows, _ROWS)):
        yield [
            _numbers(values) if is_number else np.array([value.strip() for value in values])
            for values, is_number in zip(zip(*chunk, strict=True), numeric, strict=True)
        ]


def _numbers(values: tuple[str, ...]) -> AnyArray:
    found = np.array([value.replace("?", "nan") for value in values], dtype=np.float64)
    small = found.astype(np.uint8) if ((found >= 0) & (found < 256)).all() else found
    return small if small.dtype == np.uint8 and (small == found).all() else found


@dataclass(frozen=True)
class OpenML:
    """A dataset of OpenML, and how its columns become features and classes."""

    number: int
    name: str
    target: str
    """Name of the column with the classes."""
    positive: tuple[str, ...] = ()
    """Values of the target that form the second class; by default the rarer of two values."""
    drop: tuple[str, ...] = ()
    """Columns that are left out."""
    complete_rows: bool = False
    """Whether rows with missing values are left out."""
    categories: bool = False
    """Whether a column of text is one-hot encoded."""
    standardized: bool = False
    """Whether the features are scaled to mean 0 and standard deviation 1."""

    def read(self) -> Bunch:
        """Read the dataset from the cache; download it first if it is not there."""
        path = self._file()
        columns = read_arff(path)
        missing = [name for name in (self.target, *self.drop) if name not in columns]
        if missing:
            raise DatasetError(f"{path} has no column {missing[0]!r}; it has {', '.join(columns)}")
        labels = _as_text(columns[self.target])
        parts: dict[str, AnyArray] = {}
        for name, values in columns.items():
            if name != self.target and name not in self.drop:
                parts |= _numeric_parts(name, values, self.categories)
        X = np.column_stack(list(parts.values())).astype(np.float32 if len(labels) > 20_000 else float)
        if self.complete_rows:
            complete = np.isfinite(X).all(axis=1)
            X, labels = X[complete], labels[complete]
        if self.standardized:
            X = (X - X.mean(axis=0)) / X.std(axis=0)
        return Bunch(
            data=X,
            target=np.isin(labels, self.positive or _rarer(labels)).astype(np.int8),
            feature_names=list(parts),
            labels=labels,
            origin=f"OpenML, dataset {self.number} ({self.name})",
        )

    def _file(self) -> Path:
        name = f"openml/{self.number}-{self.name}.arff"
        if in_cache(name).exists():
            return in_cache(name)
        response = download_json(f"{API}/data/{self.number}")
        try:
            about = response["data_set_description"]
            url, md5, found = str(about["url"]), str(about["md5_checksum"]), str(about["name"])
        except (KeyError, TypeError) as error:
            raise DatasetError(
                f"OpenML did not describe its dataset {self.number}: {response!r}"
            ) from error
        if found != self.name:
            raise DatasetError(f"OpenML's dataset {self.number} is {found!r}, expected {self.name!r}")
        return download_file(url, name, Checksum("md5", md5))


def _as_text(values: AnyArray) -> AnyArray:
    if values.dtype.kind == "U":
        return values
    return np.array([f"{value:g}" for value in values.tolist()])


def _rarer(labels: AnyArray) -> tuple[str, ...]:
    values, counts = np.unique(labels, return_counts=True)
    return (str(values[np.argmin(counts)]),)


def _numeric_parts(name: str, values: AnyArray, categories: bool) -> dict[str, AnyArray]:
    """Turn a column into one of numbers, or into one for each of its categories."""
    if values.dtype.kind != "U":
        return {name: values}
    if categories:
        return {f"{name}={value}": values == value for value in np.unique(values).tolist()}
    try:
        return {name: np.array([value.replace("?", "nan") for value in values.tolist()], dtype=float)}
    except ValueError as error:
        raise DatasetError(f"column {name!r} has text where numbers were expected: {error}") from error
