"""The datasets and their splits, the same for every method.

The files are read from the folder named by the environment variable CAVITY_DATA; its
SOURCES.md tells where each set comes from. Nothing is downloaded here: a copy from elsewhere may have
its rows in another order, and so other splits. Labels are −1 and +1.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cavity.data.statistics import Moments
from cavity.datasets.catalogue import CATALOGUE, read_folder

UCI = ("australian", "breast", "crabs", "heart", "ionosphere", "pima", "sonar")
PLAIN = (*UCI, "banana", "image", "covtype", "adult", "electricity", "nycflights13")
FILES_ONLY = ("eeg_eye", "phishing", "skin")
"""Sets that the catalogue of `cavity.datasets` does not have."""
NAMES = (*PLAIN, *FILES_ONLY, "mnist", "airline")
TEST_ROWS, TEST_FRACTION = 10_000, 0.3
"""The test rows of `one_split`, whichever are fewer."""


class DataNotFoundError(RuntimeError):
    """The data folder, or a file in it, is not there."""


@dataclass(frozen=True)
class Dataset:
    """Rows X: [n, d] and labels y: [n] in ±1."""

    X: NDArray[np.floating]
    y: NDArray[np.int8]
    name: str
    digit: NDArray[np.integer] | None = None  # all classes, if there are more than two: 0, 1, …
    n_test: int = 0  # the last n_test rows are the set's own test rows
    f: NDArray[np.float64] | None = None  # the true latent function, of drawn sets: p(+1) = Φ(f)
    n_foreign: int = 0  # the last rows are of another source, and their labels mean nothing

    def take(self, rows: NDArray[np.integer] | slice) -> Dataset:
        """The same dataset with these rows only."""
        digit = None if self.digit is None else self.digit[rows]
        return Dataset(self.X[rows], self.y[rows], self.name, digit)

    def write(self, folder: Path, suffix: str = "") -> None:
        """Write the rows and labels for a worker process."""
        np.save(folder / f"X{suffix}.npy", self.X)
        np.save(folder / f"y{suffix}.npy", self.y)


@dataclass(frozen=True)
class Split:
    """Training and test rows; the training rows decide the scaling."""

    train: Dataset
    test: Dataset
    index: int


def load(name: str) -> Dataset:
    """Read one dataset, raw (not standardised). Integer columns become float32."""
    if name not in NAMES:
        raise ValueError(f"no dataset {name!r}; the datasets are {', '.join(NAMES)}")
    path = _file(name)
    if name in FILES_ONLY:
        with np.load(path, allow_pickle=False) as arrays:
            X, y = arrays["X"], arrays["y"]
        return Dataset(X if X.dtype.kind == "f" else X.astype(np.float32), y, name)
    bunch = read_folder(path.parent, name)
    y = np.where(bunch.target == 1, 1, -1).astype(np.int8)
    classes = bunch.cover_type - 1 if "cover_type" in bunch else bunch.get("digit")
    return Dataset(bunch.data, y, name, classes, bunch.get("n_test", 0))


def many_classes(split: Split) -> Split:
    """The same split with all classes, 0, 1, …, for labels."""

    def relabelled(part: Dataset) -> Dataset:
        if part.digit is None:
            raise ValueError(f"{part.name!r} has two classes")
        return Dataset(part.X, part.digit.astype(np.int8), f"{part.name}-classes")

    return Split(relabelled(split.train), relabelled(split.test), split.index)


def splits(name: str, n_splits: int, test_fraction: float = 0.1, seed: int = 0) -> Iterator[Split]:
    """Random splits, a function of (name's rows, seed, index) only; standardised on training rows.

    Split k is the same however many splits are asked for.
    """
    data = load(name)
    for index in range(n_splits):
        yield _random_split(data, round(test_fraction * len(data.y)), seed, index)


def holdout(name: str, n_test: int, seed: int = 0) -> Split:
    """`n_test` rows drawn at random for the test, all others for training; standardised."""
    return _random_split(load(name), n_test, seed, 0)


def one_split(name: str) -> Split:
    """The set's own test rows (MNIST), or 10,000 at random, or 30 % if these are fewer."""
    data = load(name)
    if data.n_test:
        return _with_own_number_of_test_rows(data, lambda n: slice(None), 0)
    return _random_split(data, min(TEST_ROWS, round(TEST_FRACTION * len(data.y))), 0, 0)


def fixed(name: str) -> Split:
    """The set's own training and test rows (MNIST), pixels divided by 255.

    Pixels are not standardised: border pixels are lit in a handful of training rows, and a unit
    variance would give each of them as much weight as the middle of the image.
    """
    return _with_own_number_of_test_rows(load(name), lambda n: slice(None), 0)


def redrawn(name: str, seed: int) -> Split:
    """As `fixed`, but with as many test rows drawn at random from all rows; another draw per seed."""
    return _with_own_number_of_test_rows(load(name), np.random.default_rng(seed).permutation, seed)


def whitened(split: Split) -> Split:
    """The same split as `scaling="whiten"` sees it, for methods that have no such option."""
    scaling = Moments.of(split.train.X, None, products=True).scaling()
    return _scaled(split.train, split.test, split.index, lambda X: scaling.apply(X, np.dtype(X.dtype)))


def _with_own_number_of_test_rows(
    data: Dataset, order: Callable[[int], NDArray[np.integer] | slice], index: int
) -> Split:
    if not data.n_test:
        raise ValueError(f"{data.name!r} has no test rows of its own; use splits or holdout")
    rows, n_test = data.take(order(len(data.y))), data.n_test
    train, test = rows.take(slice(None, -n_test)), rows.take(slice(-n_test, None))
    return _scaled(train, test, index, lambda X: X / np.float32(255.0))


def _random_split(data: Dataset, n_test: int, seed: int, index: int) -> Split:
    order = np.random.default_rng([seed, index]).permutation(len(data.y))
    train, test = data.take(order[n_test:]), data.take(order[:n_test])
    mean = train.X.mean(axis=0, dtype=np.float64)
    scale = train.X.std(axis=0, dtype=np.float64)
    scale[scale == 0.0] = 1.0  # a constant column becomes zero and takes no part
    return _scaled(train, test, index, lambda X: ((X - mean) / scale).astype(X.dtype))


def _scaled(
    train: Dataset,
    test: Dataset,
    index: int,
    scale: Callable[[NDArray[np.floating]], NDArray[np.floating]],
) -> Split:
    def apply(part: Dataset) -> Dataset:
        return Dataset(scale(part.X), part.y, part.name, part.digit)

    return Split(apply(train), apply(test), index)


def _file(name: str) -> Path:
    folder = os.environ.get("CAVITY_DATA")
    if not folder:
        raise DataNotFoundError(
            "CAVITY_DATA is not set; set it to the folder with the benchmark data, "
            "for example: export CAVITY_DATA=path/to/data"
        )
    path = Path(folder) / (CATALOGUE[name].file if name in CATALOGUE else f"{name}.npz")
    if not path.exists():
        raise DataNotFoundError(f"{path.name} is not in the folder named by CAVITY_DATA")
    return path
