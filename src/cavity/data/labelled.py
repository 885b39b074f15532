"""The rows of a table that take part in training: those with a label and a positive weight."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.data.columns import NUMERIC, coerced
from cavity.data.labels import Classes
from cavity.data.parts import import_arrow
from cavity.data.table import Table
from cavity.data.weights import check_weights, name_of_weight
from cavity.typing import Array, IntArray

if TYPE_CHECKING:
    import pyarrow as pa


class WeightedRows(NamedTuple):
    """The t rows of a record batch whose weight is positive."""

    batch: pa.RecordBatch
    weight: Array | None
    """[t], or None if every row counts once."""
    kept: NDArray[np.bool_] | slice
    """Which rows of the record batch these are."""


def weighted_rows(chunk: pa.RecordBatch, weight: str | None) -> WeightedRows:
    """The rows of a record batch whose weight is positive, and their weights.

    weight: name of the column of weights; None keeps all rows. Rows of weight 0 are left out before
    anything is learned, so that nothing depends on them.

    >>> import pyarrow
    >>> chunk = pyarrow.RecordBatch.from_pydict({"age": [31, 47, 52], "copies": [2, 0, 1]})
    >>> rows, weights, kept = weighted_rows(chunk, "copies")
    >>> rows.column("age").to_pylist(), weights.tolist(), kept.tolist()
    ([31, 52], [2.0, 1.0], [True, False, True])
    """
    if weight is None:
        return WeightedRows(chunk, None, slice(None))
    pa, _ = import_arrow()
    values = coerced(chunk.column(weight), NUMERIC, weight)
    weights = values.to_numpy(zero_copy_only=False).astype(np.float64)
    check_weights(weights, name_of_weight(weight), numbered=False)
    counts = weights > 0.0
    if counts.all():
        return WeightedRows(chunk, weights, slice(None))
    return WeightedRows(chunk.filter(pa.array(counts)), weights[counts], counts)


def numbered_chunks(
    table: Table, columns: Sequence[str], weight: str | None
) -> Iterator[tuple[pa.RecordBatch, Array | None, IntArray, int]]:
    """Record batches of the t rows of a table that have a weight, chunk by chunk.

    Besides, the weights [t], if there is a column of them, the numbers [t] of the rows in the table, and
    how many rows were read.
    """
    for numbers, chunk in table.numbered(columns):
        rows, weights, kept = weighted_rows(chunk, weight)
        yield rows, weights, numbers[kept], chunk.num_rows


def numbers_of_labelled_rows(
    table: Table, classes: Classes, weight: str | None = None
) -> tuple[IntArray, int]:
    """Numbers of the rows of a table that have a target and a weight, and how many rows there are."""
    numbers, n_rows = [], 0
    read = list(dict.fromkeys([classes.target, *([] if weight is None else [weight])]))
    for rows, _, places, n_read in numbered_chunks(table, read, weight):
        numbers.append(places[classes.codes(rows.column(classes.target)) >= 0])
        n_rows += n_read
    return np.concatenate(numbers), n_rows


class LabelledRows(NamedTuple):
    """Rows of a table that take part in training."""

    batch: pa.RecordBatch
    codes: IntArray
    """[t]: class codes."""
    weight: Array | None
    """[t], or None if every row counts once."""
    first: int
    """Number of the first of these rows, among all that take part."""

    @property
    def numbers(self) -> IntArray:
        """Numbers [t] of the rows among all that take part."""
        return np.arange(self.first, self.first + len(self.codes))


def labelled_rows(
    table: Table,
    columns: Sequence[str],
    typed: Callable[[pa.RecordBatch], pa.RecordBatch],
    classes: Classes,
    weight: str | None = None,
    first: int = 0,
) -> Iterator[LabelledRows]:
    """The rows that have a target, and a weight if there is a column of weights, chunk by chunk.

    typed: reads text as what a column holds; see `TablePreprocessor.typed`; first: number of the first
    row, if other rows that take part come before this table.
    """
    pa, _ = import_arrow()
    read = [*columns, classes.target, *([] if weight is None else [weight])]
    read = list(dict.fromkeys(read))  # weights of validation rows may be a column that is used
    for whole in table.chunks(read):
        chunk, weights, _ = weighted_rows(whole, weight)
        codes = classes.codes(chunk.column(classes.target))
        known = codes >= 0
        if not known.all():
            chunk, codes = chunk.filter(pa.array(known)), codes[known]
            weights = None if weights is None else weights[known]
        yield LabelledRows(typed(chunk), codes, weights, first)
        first += len(codes)
