"""Small sets that install with scikit-learn, under the names and with the layout of the real ones.

With them every experiment runs from beginning to end on a machine without the data, in CI for example.
Their records go to separate files, whose names say so; the scores mean nothing.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet
from sklearn.datasets import load_breast_cancer, load_digits, make_moons

_JAN_2008 = 13879


def write(folder: Path) -> None:
    """Fill a folder with the files that `benchmarks.data` reads."""
    from benchmarks.data import UCI

    folder.mkdir(parents=True, exist_ok=True)
    X, y = load_breast_cancer(return_X_y=True)
    labels = np.where(y == 0, 1, -1).astype(np.int8)
    for number, name in enumerate(UCI):
        rows = slice(60 * number, 60 * number + 120)
        np.savez(folder / f"{name}.npz", X=X[rows, :5], y=labels[rows])
    np.savez(folder / "image.npz", X=X[:300, :6], y=labels[:300])
    _write_covtype(folder, X, labels)
    X, y = make_moons(300, noise=0.25, random_state=0)
    np.savez(folder / "banana.npz", X=X, y=np.where(y == 1, 1, -1).astype(np.int8))
    _write_mnist(folder)
    _write_airline(folder)
    _write_table(folder)


def _write_covtype(folder: Path, X: NDArray[np.floating], labels: NDArray[np.int8]) -> None:
    """The tumours, repeated with noise, in three classes."""
    rng = np.random.default_rng(0)
    rows = rng.integers(len(X), size=12_000)
    noisy = X[rows, :6] + 0.3 * X[:, :6].std(axis=0) * rng.standard_normal((len(rows), 6))
    small = np.where(noisy[:, 1] > np.median(noisy[:, 1]), 2, 3)
    kind = np.where(labels[rows] == 1, 1, small).astype(np.int8)
    np.savez(folder / "covtype.npz", X=noisy, y=labels[rows], cover_type=kind)


def _write_mnist(folder: Path) -> None:
    """Odd against even digits of 8 × 8 pixels."""
    X, digit = load_digits(return_X_y=True)
    arrays: dict[str, Any] = {}
    rng = np.random.default_rng(0)
    for part, rows in (("train", rng.integers(1200, size=6_000)), ("test", slice(1200, 1500))):
        arrays[f"X_{part}"] = (X[rows] * 15.9).astype(np.uint8)
        arrays[f"y_{part}"] = np.where(digit[rows] % 2, 1, -1).astype(np.int8)
        arrays[f"digit_{part}"] = digit[rows].astype(np.uint8)
    np.savez(folder / "mnist.npz", **arrays)


def _write_airline(folder: Path) -> None:
    """The tumours again, repeated, as eight whole numbers a row."""
    X, y = load_breast_cancer(return_X_y=True)
    rng = np.random.default_rng(0)
    rows = rng.integers(len(X), size=11_000)
    noisy = X[rows, :8] / X[:, :8].std(axis=0) * 10 + rng.standard_normal((len(rows), 8))
    np.savez(
        folder / "airline_2008.npz",
        X=noisy.astype(np.int16),
        y=np.where(y[rows] == 0, 1, -1).astype(np.int8),
        issue_days=np.full(len(rows), _JAN_2008) - noisy[:, 0].astype(int),
        X_extra=np.ones((2, 8), np.int16),
        y_extra=np.array([-1, 1], np.int8),
        issue_days_extra=np.array([_JAN_2008, -1]),
    )


def _write_table(folder: Path) -> None:
    """The tumours once more, with a column of strings."""
    X, y = load_breast_cancer(return_X_y=True)
    columns: dict[str, Any] = {f"x{j}": X[:, j] for j in range(4)}
    columns["size"] = np.where(X[:, 3] > np.median(X[:, 3]), "large", "small")
    parquet.write_table(pa.table({**columns, "target": y}), folder / "german_credit.parquet")


@contextlib.contextmanager
def instead() -> Iterator[None]:
    """A context in which the folders of data and tables are one of stand-ins."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="cavity-stand-ins-") as name:
        write(Path(name))
        os.environ |= {"CAVITY_DATA": name, "CAVITY_TABLES": name}
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)
