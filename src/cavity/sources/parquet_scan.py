"""One streaming pass over the target column: rows, classes, label codes and the checks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.errors import SourceError
from cavity.rows import countable
from cavity.sources.parquet_labels import Labels
from cavity.sources.parquet_schema import Columns, import_pyarrow
from cavity.sources.stores import Footers, Group, Store
from cavity.typing import IntArray

_ROWS = 2**17


@dataclass(frozen=True)
class Scan:
    """All that is known of a table on disk before its features are read."""

    columns: Columns
    groups: list[Any]
    """`Group`s of rows."""
    classes: NDArray[Any]
    codes: IntArray
    """[n] in int8, or int16 for many classes: a byte a row, and no target column to decode again."""
    class_totals: NDArray[np.float64]
    """[C]: total weight of each class."""
    reader_bytes: int
    """What reading one group holds in memory, about."""


def scan(
    store: Store,
    path: object,
    target: str,
    columns: Sequence[str] | None,
    weight: str | None,
    classes: Any,
) -> Scan:
    """Scan a table; path is what errors call it."""
    footers = store.footers(target, columns, weight)
    used, groups, reader_bytes = footers
    n_rows = sum(group.rows for group in groups)
    if n_rows == 0:
        raise SourceError(f"{path}: has no rows")
    labels = Labels(n_rows, target, classes)
    for group, batch in _target_batches(store, footers):
        weight_values = None
        if used.weight is not None:
            weight_values = column_weights(batch.column(used.weight), group, used.weight)
        labels.add(batch.column(target), group, weight_values)
    found, codes = labels.finish()
    if len(found) < 2:
        raise SourceError(
            f"{path}: the target {target!r} has one class ({found.tolist()[0]!r}); a classifier needs "
            "at least two: check the column or the filter before it"
        )
    check_total(labels.totals, path, used.weight)
    return Scan(used, groups, found, codes, labels.totals, reader_bytes)


def check_total(weights: NDArray[np.float64], path: object, column: str | None) -> None:
    """Refuse weights, or totals of them, whose sum is zero or no number."""
    with np.errstate(over="ignore"):
        total = float(weights.sum())
    if total <= 0.0:
        raise SourceError(f"{path}: the weights in column {column!r} sum to zero")
    if not np.isfinite(total):
        raise SourceError(
            f"{path}: the sum of the weights in column {column!r} is not finite; divide them by a "
            "constant"
        )


def _target_batches(store: Store, footers: Footers) -> Iterator[tuple[Group, Any]]:
    used = footers.columns
    names = [used.target] if used.weight is None else [used.target, used.weight]
    files = store.opened(most=1)
    try:
        for group in footers.groups:
            for batch in files.batches(group, names, _ROWS):
                yield group, batch
    finally:
        files.close()


def column_weights(column: Any, group: Group, name: str) -> NDArray[np.float64]:
    """The weights [t] of a column, finite and not negative."""
    pyarrow, _ = import_pyarrow()
    weight: NDArray[np.float64] = column.cast(pyarrow.float64()).to_numpy(zero_copy_only=False)
    if not countable(weight).all():
        raise SourceError(f"{group}: the weights in column {name!r} must be finite and not negative")
    return weight
