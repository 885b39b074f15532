"""What a table on disk is to its reader: groups of rows that are read one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from cavity.errors import SourceError
from cavity.sources.parquet_schema import Columns

PAGE_BYTES = 2**20
"""Of a page, by pyarrow's default: what a reader has to hold of each column."""


class Group(Protocol):
    """Some rows that lie together; as text, where."""

    @property
    def first(self) -> int:
        """Number of the first row in the source."""
        ...

    @property
    def rows(self) -> int:
        """How many there are."""
        ...


class Footers(NamedTuple):
    """What is known of a table before a row of it is read."""

    columns: Columns
    groups: list[Any]
    """`Group`s, none of them empty."""
    reader_bytes: int
    """What reading one group holds in memory, about."""


class OpenStore(Protocol):
    """A store that is being read, by one thread."""

    def batches(self, group: Any, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """Arrow record batches of at most `rows` rows: some columns of one group, in order."""
        ...

    def close(self) -> None:
        """Let go of what is open."""
        ...


class Store(Protocol):
    """A table on disk."""

    def footers(self, target: str, columns: Sequence[str] | None, weight: str | None) -> Footers:
        """Read and check all but the rows."""
        ...

    def opened(self, most: int) -> OpenStore:
        """Open it for reading, with at most so many files open at a time."""
        ...


def without_nulls(group: Group, columns: Sequence[str], batch: Any) -> Any:
    """The record batch, if none of these columns has null values."""
    for name in columns:
        # Counted here and not in the footer: its statistics are optional.
        check_nulls(group, name, batch.column(name).null_count, at_least=True)
    return batch


def check_nulls(group: Group, column: str, count: int, *, at_least: bool = False) -> None:
    """Refuse null values."""
    if count:
        raise SourceError(
            f"{group}: column {column!r} has {'at least ' if at_least else ''}{count} null values; "
            "impute them or drop their rows"
        )
