"""Arrow tables in memory, and what can be made one, as arrays."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np

from cavity.errors import SourceError
from cavity.sources.arrays import ArraySource
from cavity.sources.parquet_labels import Labels
from cavity.sources.parquet_read import check_finite, numbers
from cavity.sources.parquet_scan import check_total, column_weights
from cavity.sources.parquet_schema import find_columns, import_pyarrow
from cavity.sources.stores import without_nulls


class _Part(NamedTuple):
    """A record batch of a table, for errors."""

    name: str
    number: int
    first: int
    rows: int

    def __str__(self) -> str:
        return f"{self.name}, record batch {self.number}"


def is_dataset(X: Any) -> bool:
    """Whether X is a `pyarrow.dataset.Dataset`."""
    module = sys.modules.get("pyarrow.dataset")
    return module is not None and isinstance(X, module.Dataset)


def is_arrow_stream(X: Any) -> bool:
    """Whether X gives up its record batches once only, so that it is nothing but a table."""
    module = sys.modules.get("pyarrow")
    return module is not None and isinstance(X, module.RecordBatchReader)


def is_table(X: Any) -> bool:
    """Whether X is an Arrow table or record batches, or speaks Arrow's C interface (polars, pandas)."""
    if isinstance(X, (list, tuple)):
        return bool(X) and all(hasattr(part, "__arrow_c_array__") for part in X)
    return hasattr(X, "__arrow_c_stream__") or hasattr(X, "__arrow_c_array__")


def table_source(X: Any, target: str, weight: str | None = None) -> ArraySource:
    """The rows of a table as a source; target and weight are columns of it.

    >>> import pyarrow
    >>> table = pyarrow.table({"age": [31.0, 47.0, 52.0], "delayed": ["no", "yes", "no"]})
    >>> source = table_source(table, "delayed")
    >>> source.X.tolist(), source.labels.tolist(), source.classes.tolist()
    ([[31.0], [47.0], [52.0]], [0, 1, 0], ['no', 'yes'])
    """
    name = f"the {type(X).__name__}"
    table = _as_table(X, name)
    used = find_columns(table.schema, name, target, None, weight)
    if table.num_rows == 0:
        raise SourceError(f"{name}: has no rows")
    rows = np.empty((table.num_rows, len(used.features)), used.dtype)
    labels = Labels(table.num_rows, target, None)
    weights = None if weight is None else np.empty(table.num_rows)
    first = 0
    for number, batch in enumerate(table.to_batches()):
        part = _Part(name, number, first, len(batch))
        without_nulls(part, [*used.features, target, *([] if weight is None else [weight])], batch)
        inside = rows[first : first + len(batch)]
        for j, column in enumerate(used.features):
            inside[:, j] = numbers(batch.column(column))
        check_finite(inside, part, used.features)
        if weight is not None and weights is not None:
            weights[first : first + len(batch)] = column_weights(batch.column(weight), part, weight)
        labels.add(batch.column(target), part)
        first += len(batch)
    if weights is not None:
        check_total(weights, name, weight)
    classes, codes = labels.finish()
    return ArraySource(rows, codes, weights, classes=classes, feature_names=used.features)


def _as_table(X: Any, name: str) -> Any:
    pyarrow, _ = import_pyarrow()
    try:
        if isinstance(X, (list, tuple)):
            return pyarrow.Table.from_batches([pyarrow.record_batch(part) for part in X])
        if isinstance(X, pyarrow.RecordBatchReader):
            return X.read_all()
        return pyarrow.table(X)
    except (TypeError, pyarrow.ArrowException) as error:
        raise SourceError(f"{name}: cannot be read as an Arrow table ({error})") from error
