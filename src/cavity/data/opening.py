"""The one entry for what a user passes to `fit` instead of arrays: a path, or a source."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.data.arrays import ArraySource, npy_source
from cavity.data.arrow import ParquetSource, is_arrow_stream, is_dataset, is_table, table_source
from cavity.data.contract import MEMBERS, GuardedSource, check_members, loaded, require
from cavity.data.locations import explain_permission_error, is_parquet_name, list_files, local_path
from cavity.data.source import Source, rows_to_look_at
from cavity.errors import SourceError

_OURS = (ArraySource, ParquetSource, GuardedSource)
"""Kinds of sources that need no guard."""


def open_source(X: Any, y: Any = None, sample_weight: Any = None) -> Source | None:
    """The source that X and y mean, or None if they are arrays, to be validated as such.

    X is the path or URL of a Parquet file or of a folder of them, an Arrow table or dataset, with y the
    name of the target column; or the path of a .npy file, with y an array [n] or the path of another;
    or a source, which has its own labels. `sample_weight` is the name of a column too, or for a .npy
    file an array [n] or the path of another; a source has its own weights.

    >>> open_source(np.eye(2), [0, 1]) is None
    True
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/X.npy", np.eye(3))
    ...     open_source(f"{folder}/X.npy", ["a", "b", "a"]).n_rows
    3
    """
    if isinstance(X, (str, os.PathLike)):
        return _open_path(X, y, sample_weight)
    _refuse_paths(X, y)
    if is_dataset(X) or is_arrow_stream(X) or (is_table(X) and isinstance(y, str)):
        what = f"a {type(X).__name__}"
        target, weight = _target_name(y, what), _weight_name(sample_weight, what)
        return (
            ParquetSource(X, target, weight=weight) if is_dataset(X) else table_source(X, target, weight)
        )
    if not is_source(X):
        return None
    if y is not None:
        raise SourceError(
            f"y={_short(y)} was passed along with a {type(X).__name__}; a source has its own labels: "
            "leave y out"
        )
    if sample_weight is not None:
        raise SourceError(
            f"sample_weight={_short(sample_weight)} was passed along with a {type(X).__name__}; a "
            "source has its own weights, in the blocks that it yields: leave sample_weight out"
        )
    if type(X) is ArraySource:
        _check_arrays(X)
    return X if type(X) in _OURS else GuardedSource(X)


def _check_arrays(source: ArraySource) -> None:
    """Refuse arrays that a user has put together and that break the contract, in one pass over them."""
    check_members(source)
    n, name = source.n_rows, type(source).__name__
    for what in ("labels", "weight"):
        values: Any = getattr(source, what)
        fits = values is None or np.shape(values) == (n,)
        require(fits, f"{name}: {what} has shape {np.shape(values)}, but there are {n} rows")
    if source.path is None:  # else its rows are checked whenever they are read
        for block in source.blocks(rows_to_look_at(source.n_features)):
            loaded(source, block, name)


def _refuse_paths(X: Any, y: Any) -> None:
    """A list of paths is no array of text, whatever validation would say of it."""
    if not isinstance(X, (list, tuple)) or not X:
        return
    if not all(isinstance(path, (str, os.PathLike)) for path in X):
        return
    named = all(is_parquet_name(Path(path)) or Path(path).suffix.lower() == ".npy" for path in X)
    if named or any(isinstance(path, os.PathLike) for path in X) or isinstance(y, str):
        raise SourceError(
            f"X is a list of {len(X)} paths, such as {os.fspath(X[0])!r}; pass the folder that the "
            "Parquet files lie in, or pyarrow.dataset.dataset([...]) of the paths"
        )


def is_source(X: Any) -> bool:
    """Whether an object has the members of a `Source`; `check_source` tells whether they are right."""
    return not isinstance(X, type) and all(hasattr(X, name) for name in MEMBERS)


def class_values(source: Source) -> NDArray[Any]:
    """The class values of a source: its own `classes`, or else the label codes that occur, by a pass.

    >>> from cavity.data import ArraySource
    >>> class_values(ArraySource(np.eye(3), np.array([0, 1, 1])))
    array([0, 1])
    """
    classes = getattr(source, "classes", None)
    if classes is not None:
        return np.asarray(classes)
    seen: NDArray[Any] = np.zeros(0, np.int64)
    for block in source.blocks(rows_to_look_at(source.n_features)):
        seen = np.union1d(seen, block.load().labels)
    require(len(seen) > 0, f"{type(source).__name__}: blocks has no rows")
    require(
        bool(seen[0] == 0 and seen[-1] == len(seen) - 1),
        f"{type(source).__name__}: labels has the codes {seen[:20].tolist()}; codes are the positions "
        "0, 1, … of the classes: encode the labels, or give the source the attribute `classes`",
    )
    return seen


def _open_path(given: str | os.PathLike[str], y: Any, sample_weight: Any) -> Source:
    path = local_path(given)
    what = f"the Parquet data in {given}"
    if path is None:
        weight = _weight_name(sample_weight, what)
        return ParquetSource(given, _target_name(y, what), weight=weight)
    if path.suffix.lower() == ".npy":
        return npy_source(path, y, sample_weight)
    with explain_permission_error(path):
        is_file = path.is_file()
    if is_file and not _is_parquet(path):
        raise SourceError(
            f"{path}: neither a Parquet file, nor a folder of them, nor a .npy file; convert it, for "
            "instance with pandas.read_csv(...).to_parquet(...)"
        )
    list_files(path)
    return ParquetSource(path, _target_name(y, what), weight=_weight_name(sample_weight, what))


def _target_name(y: Any, what: str) -> str:
    if not isinstance(y, str):
        raise SourceError(f"y={_short(y)}: for {what}, y is the name of the target column")
    return y


def _weight_name(sample_weight: Any, what: str) -> str | None:
    if sample_weight is not None and not isinstance(sample_weight, str):
        raise SourceError(
            f"sample_weight={_short(sample_weight)}: for {what}, sample_weight is the name of the "
            "weight column"
        )
    return sample_weight


def _is_parquet(path: Path) -> bool:
    if is_parquet_name(path):
        return True
    with explain_permission_error(path), path.open("rb") as file:
        return file.read(4) == b"PAR1"


def _short(y: Any) -> str:
    return repr(y) if y is None or isinstance(y, str) else f"<{type(y).__name__}>"
