"""Sets from OpenML: found by number, checked by name and by the checksum that OpenML gives."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.utils import Bunch

from cavity.datasets.arff import read_arff
from cavity.datasets.download import Checksum, fetch, fetch_json, in_cache
from cavity.errors import DatasetError
from cavity.typing import Array

API = "https://www.openml.org/api/v1/json"


@dataclass(frozen=True)
class OpenML:
    """Where a set is on OpenML, and how its columns become ours."""

    number: int
    name: str
    target: str
    """Name of the column with the classes."""
    positive: tuple[str, ...] = ()
    """Values of the target that make the second class; none: those of the rarer one."""
    drop: tuple[str, ...] = ()
    """Columns that are left out."""
    complete_rows: bool = False
    """Whether rows with missing values are left out."""
    categories: bool = False
    """Whether columns of text become a column for each of their values."""
    standardized: bool = False

    def load(self) -> Bunch:
        """Download it, if it is not in the cache, and read it."""
        path = self._file()
        columns = read_arff(path).columns
        lacking = [name for name in (self.target, *self.drop) if name not in columns]
        if lacking:
            raise DatasetError(f"{path}: has no column {lacking[0]!r}; it has {', '.join(columns)}")
        labels = _as_text(columns[self.target])
        parts: dict[str, Array] = {}
        for name, values in columns.items():
            if name != self.target and name not in self.drop:
                parts |= _numbers(name, values, self.categories)
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
            origin=f"OpenML, set {self.number} ({self.name})",
        )

    def _file(self) -> Path:
        name = f"openml/{self.number}-{self.name}.arff"
        if in_cache(name).exists():
            return in_cache(name)
        answer = fetch_json(f"{API}/data/{self.number}")
        try:
            about = answer["data_set_description"]
            url, md5, found = str(about["url"]), str(about["md5_checksum"]), str(about["name"])
        except (KeyError, TypeError) as error:
            raise DatasetError(f"OpenML did not describe its set {self.number}: {answer!r}") from error
        if found != self.name:
            raise DatasetError(f"OpenML's set {self.number} is {found!r}, expected {self.name!r}")
        return fetch(url, name, Checksum("md5", md5))


def _as_text(values: Array) -> Array:
    if values.dtype.kind == "U":
        return values
    return np.array([f"{value:g}" for value in values.tolist()])


def _rarer(labels: Array) -> tuple[str, ...]:
    values, counts = np.unique(labels, return_counts=True)
    return (str(values[np.argmin(counts)]),)


def _numbers(name: str, values: Array, categories: bool) -> dict[str, Array]:
    """A column as one of numbers, or one for each of its categories."""
    if values.dtype.kind != "U":
        return {name: values}
    if categories:
        return {f"{name}={value}": values == value for value in np.unique(values).tolist()}
    try:
        return {name: np.array([value.replace("?", "nan") for value in values.tolist()], dtype=float)}
    except ValueError as error:
        raise DatasetError(f"column {name!r} has text where numbers were expected: {error}") from error
