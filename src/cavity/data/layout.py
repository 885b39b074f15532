"""Numeric tables before their features are read: columns by role, row groups, labels and weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from cavity.data.frames import check_column_names
from cavity.data.labels import LabelScan
from cavity.data.locations import File
from cavity.data.parts import FilePart, FileVersion, PartReader, import_arrow, open_parquet, reading
from cavity.data.source import tile_precision
from cavity.data.weights import check_total_weight, check_weights
from cavity.errors import SourceError
from cavity.text import suggestion
from cavity.typing import AnyArray, AnyDtype, Array, Dtype, IntArray

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.parquet import RowGroupMetaData

_PAGE_BYTES = 2**20
"""Bytes of a page by pyarrow's default: what a reader holds of each column."""


@dataclass(frozen=True)
class ColumnRoles:
    """The columns of a numeric table, by role."""

    features: tuple[str, ...]
    target: str
    weight: str | None
    dtype: Dtype
    """Precision of the features: float32 or float64."""

    @property
    def used(self) -> list[str]:
        """Names of all columns that are read."""
        return [*self.features, self.target, *([] if self.weight is None else [self.weight])]


def find_columns(
    schema: pa.Schema, path: object, target: str, columns: Sequence[str] | None, weight: str | None
) -> ColumnRoles:
    """The columns to be used of a file with that schema."""
    names: list[str] = schema.names
    check_column_names(names, str(path))
    for role, name in (("target", target), ("weight", weight)):
        if name is not None and name not in names:
            raise SourceError(f"{path}: has no {role} column {name!r}{suggestion(name, names)}")
    if columns is None:
        features = [name for name in names if name not in (target, weight, *_index_columns(schema))]
    else:
        features = [columns] if isinstance(columns, str) else list(columns)
    for name in features:
        if name not in names:
            raise SourceError(f"{path}: has no feature column {name!r}{suggestion(name, names)}")
        if name == target or features.count(name) > 1:
            what = "is the target" if name == target else "is listed twice"
            raise SourceError(f"columns={features}: {name!r} {what}; leave it out")
    if not features:
        raise SourceError(
            f"{path}: has no feature columns besides the target {target!r}; name another target, or add "
            "columns"
        )
    dtypes = _feature_dtypes(schema, path, features)
    if weight is not None:
        _feature_dtypes(schema, path, [weight])
    return ColumnRoles(tuple(features), target, weight, tile_precision(np.result_type(*dtypes)))


def _check_same_schema(
    schema: pa.Schema, path: object, first: pa.Schema, first_name: str, columns: ColumnRoles
) -> None:
    """Raise if the used columns of a file are not those of the first."""
    for name in columns.used:
        if name not in schema.names:
            raise SourceError(f"{path}: has no column {name!r}, which {first_name} has")
        ours, theirs = schema.field(name).type, first.field(name).type
        if ours != theirs:
            raise SourceError(
                f"{path}: column {name!r} is {ours}, but {theirs} in {first_name}; the files of a "
                "folder need the same types: cast it"
            )


def _check_no_more_columns(schema: pa.Schema, path: object, first: pa.Schema, first_name: str) -> None:
    """Raise if a file has columns that the first has not: they might be features."""
    extra = [name for name in schema.names if name not in (*first.names, *_index_columns(schema))]
    if extra:
        raise SourceError(
            f"{path}: has columns {extra}, which {first_name} has not; name the features, as in "
            "ParquetSource(path, target, columns=[...]), or write the files with the same columns"
        )


def _feature_dtypes(schema: pa.Schema, path: object, names: Sequence[str]) -> list[AnyDtype]:
    types = import_arrow()[0].types
    dtypes: list[AnyDtype] = []
    refused = []
    for name in names:
        kind = schema.field(name).type
        if types.is_decimal(kind):
            dtypes.append(np.dtype(np.float64))
        elif types.is_boolean(kind):
            dtypes.append(np.dtype(np.uint8))
        elif types.is_integer(kind) or types.is_floating(kind):
            dtypes.append(np.dtype(kind.to_pandas_dtype()))
        else:
            refused.append(f"{name!r} ({kind})")
    if refused:
        raise SourceError(
            f"{path}: columns that are not numeric: {', '.join(refused)}; use TableClassifier, which "
            "takes strings and dates, or encode them as numbers, or leave them out (of files, by "
            "ParquetSource(path, target, columns=[...]))"
        )
    return dtypes


def _index_columns(schema: pa.Schema) -> list[str]:
    """Columns in which pandas has written the index of a frame; they are not features."""
    index = (schema.pandas_metadata or {}).get("index_columns", [])
    return [name for name in index if isinstance(name, str)]


@dataclass(frozen=True)
class TableLayout:
    """Columns, row groups and files of a table on disk, known before its rows are read."""

    columns: ColumnRoles
    groups: list[FilePart]
    """Row groups, or files of other formats; none is empty."""
    reader_bytes: int
    """Approximate number of bytes that reading one group holds in memory."""
    versions: dict[File, FileVersion]
    """Identity of the files when the table was opened."""

    def reader(self, most: int) -> PartReader:
        """A reader that keeps at most so many files open."""
        return PartReader(most, self.versions)


def layout_of(
    parts: Sequence[FilePart],
    schema: pa.Schema | None,
    target: str,
    columns: Sequence[str] | None,
    weight: str | None,
) -> TableLayout:
    """Read the footers of all files and check that they agree.

    schema: that of a dataset, which may differ from those of its files; None for plain files.
    """
    versions = {part.file: FileVersion.of(part.file) for part in parts if part.file is not None}
    used = None if schema is None else find_columns(schema, "the dataset", target, columns, weight)
    first = first_name = None
    groups: list[FilePart] = []
    n_rows = held = 0
    for part in parts:
        own, found = _row_groups(part)
        if schema is None:
            own = _with_key_fields(own, part)
            if used is None:
                used = find_columns(own, part, target, columns, weight)
                first, first_name = own, part.place
            _check_same_schema(own, part, first, _file_name(first_name), used)
            if columns is None:
                _check_no_more_columns(own, part, first, _file_name(first_name))
        assert used is not None
        for group, metadata in found:
            if part.file is not None and schema is not None and not _same_types(own, schema, used, part):
                # The dataset casts the columns of this file, or fills missing ones.
                assert part.fragment is not None
                some = part.fragment.subset(row_group_ids=list(group.row_groups or ()))
                group = replace(group, file=None, fragment=some, keys={})
            if group.rows:
                groups.append(replace(group, first=n_rows))
                n_rows += group.rows
                held = max(held, _held_bytes(metadata, group, used))
    assert used is not None
    return TableLayout(used, groups, held, versions)


def _row_groups(part: FilePart) -> tuple[pa.Schema, list[tuple[FilePart, RowGroupMetaData | None]]]:
    """The schema of a part and its row groups with their metadata, None if the format has none."""
    if part.file is None:
        assert part.fragment is not None
        with reading(part.place):
            return part.schema, [(replace(part, rows=part.fragment.count_rows()), None)]
    with open_parquet(part.file) as file:
        numbers = range(file.num_row_groups) if part.row_groups is None else part.row_groups
        found = [(i, file.metadata.row_group(i)) for i in numbers]
        groups = [
            (replace(part, place=f"{part.place}, row group {i}", row_groups=(i,), rows=m.num_rows), m)
            for i, m in found
        ]
        return file.schema_arrow, groups


def _with_key_fields(schema: pa.Schema, part: FilePart) -> pa.Schema:
    """A schema with the keys of a hive folder as columns."""
    pa, _ = import_arrow()
    for name, value in part.keys.items():
        schema = schema.append(pa.field(name, pa.scalar(value).type))
    return schema


def _same_types(
    schema: pa.Schema, dataset_schema: pa.Schema, columns: ColumnRoles, part: FilePart
) -> bool:
    inside = [name for name in columns.used if name not in part.keys]
    return all(
        name in schema.names and schema.field(name).type == dataset_schema.field(name).type
        for name in inside
    )


def _file_name(place: str | None) -> str:
    return str(place).rpartition("/")[2]


def _held_bytes(metadata: RowGroupMetaData | None, group: FilePart, used: ColumnRoles) -> int:
    """Bytes that reading a group holds; raises if its statistics count null values."""
    if metadata is None:
        return _PAGE_BYTES * len(used.features)
    held = 0
    for column in map(metadata.column, range(metadata.num_columns)):
        if column.path_in_schema in used.used:
            held += min(_PAGE_BYTES, column.total_uncompressed_size)
            if column.is_stats_set and column.statistics.has_null_count:
                _check_nulls(group, column.path_in_schema, column.statistics.null_count)
    return max(held, 1)


def without_nulls(place: object, columns: Sequence[str], batch: pa.RecordBatch) -> pa.RecordBatch:
    """The record batch; raises if one of these columns has null values."""
    for name in columns:
        # Counted here and not in the footer: its statistics are optional.
        _check_nulls(place, name, batch.column(name).null_count, at_least=True)
    return batch


def _check_nulls(place: object, column: str, count: int, *, at_least: bool = False) -> None:
    if count:
        raise SourceError(
            f"{place}: column {column!r} has {'at least ' if at_least else ''}{count} null values; "
            "impute them or drop their rows"
        )


_SCAN_ROWS = 2**17
"""Rows of the target that are read at a time."""


@dataclass(frozen=True)
class TargetScan:
    """The classes of a table on disk and the labels of all its rows."""

    classes: AnyArray
    codes: IntArray
    """[n]: one byte a row, so that the target need not be read again."""
    class_totals: Array
    """[C]: total weight of each class."""


def scan_target(layout: TableLayout, name: object, target: str, classes: ArrayLike | None) -> TargetScan:
    """Read the target and the weights once; `name` is what errors call the table."""
    used = layout.columns
    n_rows = sum(group.rows for group in layout.groups)
    if n_rows == 0:
        raise SourceError(f"{name}: has no rows")
    labels = LabelScan(target, str(name), classes)
    names = [target] if used.weight is None else [target, used.weight]
    codes = []
    reader = layout.reader(most=1)
    try:
        for group in layout.groups:
            for batch in reader.batches(group, names, _SCAN_ROWS):
                without_nulls(group, names, batch)
                weights = column_weights(batch, used.weight, group)
                codes.append(add_labels(labels, batch.column(target), weights, group))
    finally:
        reader.close()
    found = labels.finish()
    with np.errstate(over="ignore"):
        check_total_weight(float(found.totals.sum()), f"the weight {used.weight!r}", name)
    if sum(map(len, codes)) != n_rows:
        raise SourceError(
            f"{name}: the target {target!r} has {sum(map(len, codes))} rows, the footers say {n_rows}; "
            "a file is damaged"
        )
    return TargetScan(found.values, labels.sorted(np.concatenate(codes)), found.totals)


def add_labels(labels: LabelScan, column: pa.Array, weights: Array | None, place: object) -> IntArray:
    """Codes [t] of the next labels, as `LabelScan.add` gives them; none may be missing."""
    codes = labels.add(column, weights, place)
    if labels.missing:
        raise SourceError(
            f"{place}: the target {labels.target!r} has the value nan; drop the rows without a label"
        )
    return codes


def column_values(column: pa.Array) -> AnyArray:
    """The values of a numeric Arrow column as an array."""
    pyarrow, _ = import_arrow()
    if pyarrow.types.is_decimal(column.type):
        column = column.cast(pyarrow.float64())
    values: AnyArray = column.to_numpy(zero_copy_only=False)
    return values


def column_weights(batch: pa.RecordBatch, name: str | None, place: object) -> Array | None:
    """The weights [t] in a column of a record batch, checked; None if there is no such column."""
    if name is None:
        return None
    weight = np.asarray(column_values(batch.column(name)), dtype=np.float64)
    check_weights(weight, f"the weight {name!r}", place)
    return weight
