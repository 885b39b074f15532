"""A pyarrow dataset as a table: its fragments, cut into row groups where they have any."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from cavity.errors import SourceError
from cavity.sources.parquet_files import STREAM_BYTES, damaged_column, reading
from cavity.sources.parquet_schema import find_columns, import_pyarrow
from cavity.sources.stores import PAGE_BYTES, Footers, without_nulls


class FragmentRows(NamedTuple):
    """Where some rows lie."""

    fragment: Any
    place: str
    first: int
    rows: int

    def __str__(self) -> str:
        return self.place


@dataclass(frozen=True)
class DatasetFragments:
    """A `pyarrow.dataset.Dataset`: of any format, in any file system, partitioned or not."""

    dataset: Any

    def footers(self, target: str, columns: Sequence[str] | None, weight: str | None) -> Footers:
        """Columns of the dataset's schema, partitions among them, and the rows of its fragments."""
        used = find_columns(self.dataset.schema, "the dataset", target, columns, weight)
        groups: list[FragmentRows] = []
        n_rows = 0
        for fragment, place, rows in self._fragments():
            if rows > 0:
                groups.append(FragmentRows(fragment, place, n_rows, rows))
                n_rows += rows
        return Footers(used, groups, PAGE_BYTES * len(used.features))

    def opened(self, most: int) -> DatasetFragments:
        """The dataset opens and closes its files itself."""
        return self

    def batches(self, group: FragmentRows, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """Arrow record batches of at most `rows` rows: some columns of one group, in order."""

        def read(names: list[str]) -> Iterator[Any]:
            scanner = group.fragment.scanner(
                schema=self.dataset.schema,
                columns=names,
                batch_size=rows,
                batch_readahead=1,
                fragment_readahead=1,
                fragment_scan_options=_scan_options(group.fragment),
                use_threads=False,
            )
            batches: Iterator[Any] = scanner.to_batches()
            return batches

        def damaged() -> str | None:
            return damaged_column(columns, read)

        with reading(group, damaged):
            batches = read(list(columns))
        while True:
            with reading(group, damaged):
                batch = next(batches, None)
            if batch is None:
                return
            if len(batch):
                yield without_nulls(group, columns, batch)

    def close(self) -> None:
        """Nothing is left open."""

    def _fragments(self) -> Iterator[tuple[Any, str, int]]:
        """Row groups of Parquet files, whole fragments of other formats, with their names and rows."""
        try:
            fragments = list(self.dataset.get_fragments())
        except ValueError as error:
            raise SourceError(
                f"the dataset cannot be read piece by piece ({error}); filter it before: pass "
                "dataset.to_table(), or write it with pyarrow.dataset.write_dataset"
            ) from error
        for number, fragment in enumerate(fragments):
            place = getattr(fragment, "path", None) or f"the dataset, fragment {number}"
            if not hasattr(fragment, "split_by_row_group"):
                with reading(place):
                    rows = fragment.count_rows()
                yield fragment, place, rows
                continue
            with reading(place):
                parts = fragment.split_by_row_group()
            for part in parts:
                group = part.row_groups[0]
                yield part, f"{place}, row group {group.id}", group.num_rows


def _scan_options(fragment: Any) -> Any:
    """For Parquet: columns are streamed instead of held as a whole."""
    import_pyarrow()
    from pyarrow import dataset

    if not isinstance(fragment, dataset.ParquetFileFragment):
        return None
    return dataset.ParquetFragmentScanOptions(
        use_buffered_stream=True, buffer_size=STREAM_BYTES, pre_buffer=False
    )
