"""Slices of rows that fit in a core's cache, for several passes over the same rows."""

from __future__ import annotations

from collections.abc import Iterator

_CACHE_BYTES = 400_000


def cached_rows(n_rows: int, row_bytes: int) -> Iterator[slice]:
    """Consecutive slices that cover n_rows rows.

    >>> [(rows.start, rows.stop) for rows in cached_rows(5, 200_000)]
    [(0, 2), (2, 4), (4, 5)]
    """
    size = max(1, _CACHE_BYTES // max(1, row_bytes))
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))
