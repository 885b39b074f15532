"""Parquet files as one table: their row groups, in the order of the files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cavity.sources.locations import File
from cavity.sources.parquet_files import OpenFiles, RowGroup, Stamp, open_parquet
from cavity.sources.parquet_schema import (
    Columns,
    check_no_more_columns,
    check_same_schema,
    find_columns,
)
from cavity.sources.stores import PAGE_BYTES, Footers, check_nulls


@dataclass(frozen=True)
class ParquetFiles:
    """Files with the same columns, as they were when they were stamped."""

    stamps: dict[File, Stamp]

    @classmethod
    def of(cls, files: Sequence[File]) -> ParquetFiles:
        """Files as they are now."""
        return cls({file: Stamp.of(file) for file in files})

    def footers(self, target: str, columns: Sequence[str] | None, weight: str | None) -> Footers:
        """Read the footers of all files and check that they agree."""
        files = list(self.stamps)
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
        return Footers(used, groups, reader_bytes)

    def opened(self, most: int) -> OpenFiles:
        """Open them for reading."""
        return OpenFiles(self.stamps, most)


def _check_footer(metadata: Any, group: RowGroup, used: Columns) -> int:
    """Refuse nulls that the statistics tell of; returns the bytes that reading the row group holds."""
    names = {*used.features, used.target, used.weight}
    held = 0
    for column in map(metadata.column, range(metadata.num_columns)):
        if column.path_in_schema in names:
            held += min(PAGE_BYTES, column.total_uncompressed_size)
            if column.is_stats_set and column.statistics.has_null_count:
                check_nulls(group, column.path_in_schema, column.statistics.null_count)
    return max(held, 1)
