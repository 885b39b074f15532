"""The weight column: how much each row counts, and rows that count nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from cavity.errors import SourceError
from cavity.rows import countable
from cavity.tables.arrow import import_arrow
from cavity.tables.kinds import NUMERIC, coerced
from cavity.typing import Array


def weighted_rows(chunk: Any, weight: str | None) -> tuple[Any, Array | None]:
    """The rows of a record batch that count, and their weights [t]; all rows if there is no column.

    Rows of weight 0 are left out for good, before anything is learned: nothing shall depend on them.

    >>> import pyarrow
    >>> chunk = pyarrow.RecordBatch.from_pydict({"age": [31, 47, 52], "copies": [2, 0, 1]})
    >>> rows, weights = weighted_rows(chunk, "copies")
    >>> rows.column("age").to_pylist(), weights.tolist()
    ([31, 52], [2.0, 1.0])
    """
    if weight is None:
        return chunk, None
    pa, _ = import_arrow()
    values = coerced(chunk.column(weight), NUMERIC, weight)
    weights = values.to_numpy(zero_copy_only=False).astype(np.float64)
    strange = ~countable(weights)
    if strange.any():
        value = values[int(np.argmax(strange))].as_py()
        words = "a row without a weight" if value is None else f"the weight {value!r}"
        raise SourceError(
            f"the weight column {weight!r} has {words}; a weight counts copies of its row: it must be "
            "finite and not negative, and 0 leaves the row out"
        )
    counts = weights > 0.0
    return (chunk, weights) if counts.all() else (chunk.filter(pa.array(counts)), weights[counts])
