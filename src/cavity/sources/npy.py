"""Arrays in .npy files, read where they lie."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from cavity.errors import SourceError
from cavity.rows import countable
from cavity.sources.arrays import ArraySource
from cavity.sources.blocks import encode_labels, row_number_type
from cavity.sources.denied import permitted
from cavity.typing import Array, IntArray


def open_npy(path: str | os.PathLike[str]) -> Any:
    """The array in a .npy file as a read-only `np.memmap`: nothing is read yet.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/X.npy", np.eye(3))
    ...     open_npy(f"{folder}/X.npy").shape
    (3, 3)
    """
    path = Path(path)
    try:
        with permitted(path):
            return np.load(path, mmap_mode="r", allow_pickle=False)
    except SourceError:
        raise
    except FileNotFoundError as error:
        raise SourceError(f"{path}: there is no such file") from error
    except (OSError, ValueError, EOFError) as error:
        raise SourceError(
            f"{path}: not an array of numbers or strings in NumPy's .npy format ({error}); "
            "write it with numpy.save"
        ) from error


def npy_source(path: str | os.PathLike[str], y: Any, sample_weight: Any = None) -> ArraySource:
    """Rows X [n, d] of a .npy file with labels y [n], an array or the path of another .npy file.

    The weights [n], if any, are likewise an array or a path; rows of no weight are left out.
    """
    X = open_npy(path)
    if X.ndim != 2 or 0 in X.shape:
        raise SourceError(f"{path}: has shape {X.shape}; rows and features are needed: (n, d)")
    if X.dtype.kind not in "fiub":
        raise SourceError(f"{path}: has dtype {X.dtype}; real numbers are needed")
    if y is None:
        raise SourceError(f"{path} has no labels: pass y, an array [n] or the path of another .npy file")
    origin = os.fspath(y) if isinstance(y, (str, os.PathLike)) else "y"
    labels = np.asarray(open_npy(y) if isinstance(y, (str, os.PathLike)) else y)
    if labels.shape != (len(X),):
        raise SourceError(f"{origin} has shape {labels.shape}, but {path} has {len(X)} rows")
    if labels.dtype.kind == "f" and not (np.isfinite(labels) & (labels == np.floor(labels))).all():
        raise SourceError(f"{origin} is continuous or has NaN; a classifier needs classes: bin it first")
    rows, weight = _rows_with_weight(path, len(X), sample_weight)
    classes, codes = encode_labels(labels if rows is None else labels[rows])
    if len(classes) < 2:
        raise SourceError(
            f"{origin} has one class ({classes.tolist()[0]!r}); a classifier needs at least two"
        )
    return ArraySource(X, codes, weight, rows=rows, classes=classes, path=path)


def _rows_with_weight(path: Any, n: int, given: Any) -> tuple[IntArray | None, Array | None]:
    """Numbers of the rows that have any weight (None: all) and their weights (None: one each)."""
    if given is None:
        return None, None
    is_path = isinstance(given, (str, os.PathLike))
    origin = os.fspath(given) if is_path else "sample_weight"
    weight = np.asarray(open_npy(given) if is_path else given)
    if weight.shape != (n,) or weight.dtype.kind not in "fiub":
        raise SourceError(f"{origin} is {weight.dtype}{weight.shape}, but {path} needs {n} numbers")
    weight = weight.astype(np.float64)
    if not countable(weight).all() or not weight.any():
        raise SourceError(f"{origin} has weights that are negative or not finite, or no other than zero")
    if weight.all():
        return None, weight
    rows = np.flatnonzero(weight).astype(row_number_type(n))
    return rows, weight[rows]
