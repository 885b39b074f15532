"""One streaming pass over the target column: rows, classes, label codes and the checks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.errors import SourceError
from cavity.sources.parquet_files import (
    OpenFiles,
    RowGroup,
    Stamp,
    check_nulls,
    open_parquet,
    record_batches,
)
from cavity.sources.parquet_labels import Labels
from cavity.sources.parquet_schema import (
    Columns,
    check_no_more_columns,
    check_same_schema,
    find_columns,
    import_pyarrow,
    list_files,
)
from cavity.typing import IntArray

_ROWS = 2**17
_PAGE_BYTES = 2**20
"""Of a page, by pyarrow's default: what a reader has to hold of each column."""


@dataclass(frozen=True)
class Scan:
    """All that is known of a Parquet source before its features are read."""

    columns: Columns
    groups: list[RowGroup]
    stamps: dict[Path, Stamp]
    classes: NDArray[Any]
    codes: IntArray
    """[n] in int8, or int16 for many classes: a byte a row, and no target column to decode again."""
    class_totals: NDArray[np.float64]
    """[C]: total weight of each class."""
    reader_bytes: int
    """What reading one row group holds in memory, about."""


def scan(
    path: str | os.PathLike[str],
    target: str,
    columns: Sequence[str] | None,
    weight: str | None,
    classes: Any,
) -> Scan:
    """Scan the files of a Parquet source."""
    files = list_files(path)
    stamps = {file: Stamp.of(file) for file in files}
    used, groups, reader_bytes = _read_footers(files, target, columns, weight)
    n_rows = sum(group.rows for group in groups)
    if n_rows == 0:
        raise SourceError(f"{path}: has no rows")
    labels = Labels(n_rows, target, classes)
    for group, batch in _target_batches(groups, used, stamps):
        weight_values = None
        if used.weight is not None:
            weight_values = _weights(batch.column(used.weight), group, used.weight)
        labels.add(batch.column(target), group, weight_values)
    found, codes = labels.finish()
    if len(found) < 2:
        raise SourceError(
            f"{path}: the target {target!r} has one class ({found[0]!r}); a classifier needs at least "
            "two: check the column or the filter before it"
        )
    if labels.totals.sum() <= 0.0:
        raise SourceError(f"{path}: the weights in column {used.weight!r} sum to zero")
    return Scan(used, groups, stamps, found, codes, labels.totals, reader_bytes)


def _read_footers(
    files: list[Path], target: str, columns: Sequence[str] | None, weight: str | None
) -> tuple[Columns, list[RowGroup], int]:
    groups: list[RowGroup] = []
    first = used = None
    n_rows = reader_bytes = 0
    for path in files:
        with open_parquet(path) as file:
            schema = file.schema_arrow
            if used is None:
                first, used = schema, find_columns(schema, path, target, columns, weight)
            check_same_schema(schema, path, first, files[0], used)
            if columns is None:
                check_no_more_columns(schema, path, first, files[0])
            for number in range(file.num_row_groups):
                metadata = file.metadata.row_group(number)
                group = RowGroup(path, number, n_rows, metadata.num_rows)
                if group.rows > 0:
                    groups.append(group)
                    n_rows += group.rows
                    reader_bytes = max(reader_bytes, _check_footer(metadata, group, used))
    assert used is not None
    return used, groups, reader_bytes


def _check_footer(metadata: Any, group: RowGroup, used: Columns) -> int:
    """Refuse nulls that the statistics tell of; returns the bytes that reading the row group holds."""
    names = {*used.features, used.target, used.weight}
    held = 0
    for column in map(metadata.column, range(metadata.num_columns)):
        if column.path_in_schema in names:
            held += min(_PAGE_BYTES, column.total_uncompressed_size)
            if column.is_stats_set and column.statistics.has_null_count:
                check_nulls(group, column.path_in_schema, column.statistics.null_count)
    return max(held, 1)


def _target_batches(
    groups: list[RowGroup], used: Columns, stamps: dict[Path, Stamp]
) -> Iterator[tuple[RowGroup, Any]]:
    names = [used.target] if used.weight is None else [used.target, used.weight]
    files = OpenFiles(stamps, most=1)
    try:
        for group in groups:
            for batch in record_batches(files.get(group.path), group, names, _ROWS):
                yield group, batch
    finally:
        files.close()


def _weights(column: Any, group: RowGroup, name: str) -> NDArray[np.float64]:
    pyarrow, _ = import_pyarrow()
    weight: NDArray[np.float64] = column.cast(pyarrow.float64()).to_numpy(zero_copy_only=False)
    if not np.isfinite(weight).all() or weight.min() < 0.0:
        raise SourceError(f"{group}: the weights in column {name!r} must be finite and not negative")
    return weight
