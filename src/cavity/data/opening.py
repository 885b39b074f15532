"""Opens what a user passes to `fit` as a source of rows with labels, classes and weights."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cavity.data.arrays import ArraySource, npy_source
from cavity.data.arrow import ParquetSource, is_arrow_stream, is_dataset, is_table, table_source
from cavity.data.contract import (
    GuardedSource,
    UserSource,
    check_members,
    loaded,
    require,
)
from cavity.data.labels import check_classes, encode_labels, require_one_kind, whole_labels
from cavity.data.locations import (
    FEATHER,
    PARQUET,
    explain_permission_error,
    format_of,
    local_path,
)
from cavity.data.source import (
    Source,
    booleans_as_integers,
    missing_members,
    rows_to_look_at,
    weights_by_class,
)
from cavity.data.weights import (
    check_total_weight,
    class_factors,
    rows_with_weight,
    validated_sample_weight,
    weighted_source,
)
from cavity.errors import SourceError
from cavity.typing import (
    AnyArray,
    Array,
    ArrayOrSparse,
    ClassWeight,
    InputLabels,
    InputRows,
    InputWeights,
)


class OpenedRows(NamedTuple):
    """Checked rows to train on, and their classes."""

    source: Source
    classes: AnyArray
    """[C]: the class values, whose positions are the label codes of the source."""


def open_labelled_rows(
    X: InputRows,
    y: InputLabels = None,
    sample_weight: InputWeights = None,
    *,
    class_weight: ClassWeight = None,
) -> OpenedRows:
    """Turn whatever `fit` accepts into a source with labels, classes and weights, checked once.

    X, y and sample_weight are as in `open_source`, or arrays, which scikit-learn's `check_X_y` checks.

    >>> rows = open_labelled_rows(np.eye(3), ["b", "a", "b"], [1.0, 2.0, 0.0])
    >>> rows.source.n_rows, rows.source.total_weight, rows.classes.tolist()
    (2, 3.0, ['a', 'b'])
    """
    source = open_source(X, y, sample_weight)
    if source is not None:
        return rows_of_source(source, class_weight)
    return rows_of_arrays(*_checked_arrays(X, whole_labels(y)), sample_weight, class_weight)


def rows_of_source(source: Source, class_weight: ClassWeight) -> OpenedRows:
    """The rows of a source that `open_source` has returned, with the weights of their classes."""
    classes = class_values(source)
    listed = source.classes is not None
    weighted = weighted_source(source, classes, class_weight)
    return OpenedRows(weighted, check_classes(classes, source.n_rows, listed_by_user=listed))


def rows_of_arrays(
    X: ArrayOrSparse, y: AnyArray, sample_weight: InputWeights, class_weight: ClassWeight
) -> OpenedRows:
    """The rows X [n, d], numbers that are known to be finite, with labels y [n] and weights [n]."""
    require_one_kind(y)
    _check_targets(y)
    weight = validated_sample_weight(sample_weight, len(y))
    rows, classes = weighted_arrays(booleans_as_integers(X), y, weight, class_weight)
    return OpenedRows(rows, check_classes(classes, rows.n_rows))


def _check_targets(y: AnyArray) -> None:
    """Raise if labels y [n] are continuous, or have several columns."""
    from sklearn.utils.multiclass import check_classification_targets  # slow to import

    check_classification_targets(y)


def _checked_arrays(X: InputRows, y: InputLabels) -> tuple[ArrayOrSparse, AnyArray]:
    from sklearn.utils import check_X_y

    checked: tuple[ArrayOrSparse, AnyArray] = check_X_y(X, y, accept_sparse="csr", dtype="numeric")
    return checked


def open_source(
    X: InputRows, y: InputLabels = None, sample_weight: InputWeights = None
) -> Source | None:
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
        target, weight = target_name(y, what), weight_name(sample_weight, what)
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
    if isinstance(X, Source) and X.is_checked:
        return X
    if type(X) is not ArraySource:
        return GuardedSource(X)
    _check_arrays(X)
    return X


def weighted_arrays(
    X: ArrayOrSparse,
    y: AnyArray,
    sample_weight: Array | None,
    class_weight: ClassWeight,
    classes: AnyArray | None = None,
) -> tuple[ArraySource, AnyArray]:
    """The source of rows X [n, d] that have any weight, and the classes behind its label codes.

    Rows of weight 0 are left out altogether: a fit does not depend on them, not even by a random draw.
    With `classes`, the codes are positions among these; otherwise among the labels that are left.
    """
    found, codes = encode_labels(y, classes)
    source = rows_that_count(ArraySource(X, codes, sample_weight, is_checked=True), class_weight, found)
    if classes is None and source.rows is not None:  # a class may have no row any more
        present, source.labels = encode_labels(source.labels)
        found = found[present]
    return source, found


def rows_that_count(source: ArraySource, class_weight: ClassWeight, classes: AnyArray) -> ArraySource:
    """The rows of an array that have any weight, with the weights of its classes [C] multiplied.

    >>> source = ArraySource(np.eye(3), np.array([0, 1, 1]), np.array([1.0, 0.0, 2.0]))
    >>> counted = rows_that_count(source, {"b": 5.0}, np.array(["a", "b"]))
    >>> counted.rows.tolist(), counted.weight.tolist()
    ([0, 2], [1.0, 10.0])
    """
    labels, weight = source.labels, source.weight
    if class_weight is not None:
        totals = np.bincount(labels, weight, len(classes)).astype(np.float64)
        factors = class_factors(class_weight, classes, totals)
        assert factors is not None
        with np.errstate(all="ignore"):
            weight = weights_by_class(weight, labels, factors)
            total = float(weight.sum())
        if total == 0.0:
            raise ValueError(
                f"class_weight={class_weight!r} leaves no row with any weight; give at least two "
                "classes a positive one"
            )
        check_total_weight(total, f"the weights after class_weight={class_weight!r}")
    rows, weight = rows_with_weight(weight)
    if rows is not None:
        labels = labels[rows]
    if source.rows is not None:
        rows = source.rows if rows is None else source.rows[rows]
    return ArraySource(source.X, labels, weight, rows=rows, is_checked=source.is_checked)


def _check_arrays(source: ArraySource) -> None:
    """Raise if the arrays of a user's `ArraySource` break the contract, in one pass over them."""
    check_members(source)
    n, name = source.n_rows, type(source).__name__
    for what, values in (("labels", source.labels), ("weight", source.weight)):
        shape = (n,) if values is None else np.shape(values)
        require(shape == (n,), f"{name}: {what} has shape {shape}, but there are {n} rows")
    if source.path is None:  # else its rows are checked whenever they are read
        for block in source.blocks(rows_to_look_at(source.n_features)):
            loaded(source, block, name)


def _refuse_paths(X: InputRows, y: InputLabels) -> None:
    """Raise for a list of paths, which would otherwise be read as an array of strings."""
    if not isinstance(X, (list, tuple)) or not X:
        return
    if not all(isinstance(path, (str, os.PathLike)) for path in X):
        return
    named = all(format_of(str(path)) or Path(path).suffix.lower() == ".npy" for path in X)
    if named or any(isinstance(path, os.PathLike) for path in X) or isinstance(y, str):
        raise SourceError(
            f"X is a list of {len(X)} paths, such as {os.fspath(X[0])!r}; pass the folder that the "
            "Parquet files lie in, or pyarrow.dataset.dataset([...]) of the paths"
        )


def is_source(X: object) -> bool:
    """Whether an object has the members of a `Source`; `check_source` tells whether they are right."""
    return not isinstance(X, type) and not missing_members(X)


def described_source(X: object) -> str | None:
    """A path, dataset, Arrow stream or source in words; None for rows in memory.

    >>> described_source("flights.parquet"), described_source([[1.0, 2.0]])
    ("'flights.parquet'", None)
    """
    if isinstance(X, (str, os.PathLike)):
        return repr(str(X))
    return f"a {type(X).__name__}" if is_dataset(X) or is_arrow_stream(X) or is_source(X) else None


def class_values(source: UserSource) -> AnyArray:
    """The class values of a source: its own `classes`, or else the label codes found in one pass.

    >>> from cavity.data import ArraySource
    >>> class_values(ArraySource(np.eye(3), np.array([0, 1, 1])))
    array([0, 1])
    """
    source = source if isinstance(source, Source) else GuardedSource(source)
    if source.classes is not None:
        return np.asarray(source.classes)
    seen: AnyArray = np.zeros(0, np.int64)
    for block in source.blocks(rows_to_look_at(source.n_features)):
        seen = np.union1d(seen, block.load().labels)
    require(len(seen) > 0, f"{type(source).__name__}: blocks has no rows")
    require(
        bool(seen[0] == 0 and seen[-1] == len(seen) - 1),
        f"{type(source).__name__}: labels has the codes {seen[:20].tolist()}; codes are the positions "
        "0, 1, … of the classes: encode the labels, or give the source the attribute `classes`",
    )
    return seen


def _open_path(given: str | os.PathLike[str], y: InputLabels, sample_weight: InputWeights) -> Source:
    path = local_path(given)
    what = f"the Parquet data in {given}"
    if path is None:
        weight = weight_name(sample_weight, what)
        return ParquetSource(given, target_name(y, what), weight=weight)
    if path.suffix.lower() == ".npy":
        return npy_source(path, y, sample_weight)
    with explain_permission_error(path):
        is_file = path.is_file()
    if is_file and format_of(path.name) != FEATHER and not _is_parquet(path):
        raise SourceError(
            f"{path}: neither a Parquet file, nor a folder of them, nor a .npy file; TableClassifier "
            "reads CSV files, or convert it, for instance with pandas.read_csv(...).to_parquet(...)"
        )
    return ParquetSource(path, target_name(y, what), weight=weight_name(sample_weight, what))


def target_name(y: InputLabels, what: str) -> str:
    """The name of the target column of some rows, for which y must be it; `what` is what they are.

    >>> target_name("late", "the Parquet data in flights")
    'late'
    """
    if not isinstance(y, str):
        raise SourceError(f"y={_short(y)}: for {what}, y is the name of the target column")
    return y


def weight_name(sample_weight: InputWeights, what: str) -> str | None:
    """The name of the weight column of some rows, or None, which sample_weight must be.

    >>> weight_name(None, "the Parquet data in flights") is None
    True
    """
    if sample_weight is not None and not isinstance(sample_weight, str):
        raise SourceError(
            f"sample_weight={_short(sample_weight)}: for {what}, sample_weight is the name of the "
            "weight column"
        )
    return sample_weight


def _is_parquet(path: Path) -> bool:
    if format_of(path.name) == PARQUET:
        return True
    with explain_permission_error(path), path.open("rb") as file:
        return file.read(4) == b"PAR1"


def _short(y: object) -> str:
    return repr(y) if y is None or isinstance(y, str) else f"<{type(y).__name__}>"
