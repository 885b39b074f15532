"""Columns that give the answer away: each alone tells the label of nearly every row.

A sample of the rows with labels is split in two halves. From one half, every value of a column (for a
number or date, the nearest value) tells the label that it mostly has, and is checked on the other half.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cavity.data.columns import CATEGORICAL, DATE, Encoder
from cavity.data.parts import import_arrow
from cavity.typing import AnyArray, Array, IntArray

if TYPE_CHECKING:
    import pyarrow as pa

SAMPLE_ROWS = 10_000
"""Rows of the sample; up to twice as many are kept."""
_SAMPLE_BYTES = 64_000_000
"""Bytes of a sample of wide rows."""
_FIRST_LOOK, _SURELY_NOT = 1_000, 0.05
"""Rows that are tried first, and the share of wrong labels that makes the others superfluous."""
_LEAST_ROWS, _LEAST_OTHERS = 500, 50
"""Rows, and rows outside of the commonest class, that a sample needs: few rows may agree by chance."""
_MOST_WRONG = 1e-3
"""Share of rows whose label such a column may get wrong."""
_MOST_WRONG_OTHERS = 1e-2
"""The same, of the rows outside of the commonest class."""

_BORDER = 2
"""Rows beside a threshold whose nearest value may lie on its other side."""


class LabelledSample:
    """Every k-th row of a table that has a label, with k doubled whenever there are too many."""

    def __init__(self) -> None:
        self._rows: list[pa.RecordBatch] = []
        self._codes: list[IntArray] = []
        self._n = self._bytes = 0
        self._every, self._offset = 1, 0

    def add(self, chunk: pa.RecordBatch, codes: IntArray) -> None:
        """Keep some rows of the next record batch, with label codes [t] that are −1 without a label."""
        chosen = np.arange(self._offset, len(codes), self._every)
        self._offset = (self._offset - len(codes)) % self._every
        self._keep(chunk, codes, chosen[codes[chosen] >= 0])
        while self._n > 2 * SAMPLE_ROWS or (self._bytes > 2 * _SAMPLE_BYTES and self._n > 1):
            rows, kept = self._rows, self._codes
            self._rows, self._codes, self._n, self._bytes = [], [], 0, 0
            self._every *= 2
            for part, labels in zip(rows, kept, strict=True):
                self._keep(part, labels, np.arange(0, len(labels), 2))

    def _keep(self, rows: pa.RecordBatch, codes: IntArray, chosen: IntArray) -> None:
        pa, _ = import_arrow()
        if not len(chosen):
            return
        some = rows if len(chosen) == len(codes) else rows.take(pa.array(chosen))
        self._rows.append(some)
        self._codes.append(np.asarray(codes[chosen], dtype=np.int64))
        self._n += len(chosen)
        self._bytes += some.nbytes

    def leaks(self, encoders: Sequence[Encoder]) -> list[str]:
        """A sentence about each column that gives the answer away."""
        if not self._codes:
            return []
        codes = np.concatenate(self._codes)
        n = len(codes)
        others = n - int(np.bincount(codes).max())
        if n < _LEAST_ROWS or others < _LEAST_OTHERS:
            return []
        most = max(_BORDER, min(_MOST_WRONG * n, _MOST_WRONG_OTHERS * others))
        # Shuffled, so that both halves and the first look have rows of every part of the table.
        order = np.random.default_rng(0).permutation(n)
        first = order[:_FIRST_LOOK]
        some, places = self._taken(np.sort(first)), np.argsort(np.argsort(first))
        found = []
        for encoder in encoders:
            nearest = encoder.kind != CATEGORICAL
            wrong = n_wrong(_keys(some, encoder)[places], codes[first], nearest=nearest)
            if wrong > _SURELY_NOT * len(first):
                continue
            wrong = n_wrong(_keys(self._rows, encoder)[order], codes[order], nearest=nearest)
            if wrong <= most:
                found.append(
                    f"{encoder.column!r} alone tells the target of {n - wrong:,} of {n:,} rows; if it "
                    f"is known only after the target, leave it out: drop_features=[{encoder.column!r}]"
                )
        return found

    def _taken(self, numbers: IntArray) -> list[pa.RecordBatch]:
        """Some of the rows, in parts, by their sorted numbers."""
        pa, _ = import_arrow()
        starts = np.cumsum([0, *(len(part) for part in self._codes)])
        cuts = np.searchsorted(numbers, starts)
        return [
            rows.take(pa.array(numbers[low:high] - start))
            for rows, start, low, high in zip(self._rows, starts, cuts, cuts[1:], strict=False)
        ]


def _keys(parts: Sequence[pa.RecordBatch], encoder: Encoder) -> Array:
    """The values of a column as numbers [n], equal where the values are; missing ones are NaN."""
    pa, _ = import_arrow()
    columns = [encoder.form.read(rows.column(encoder.column), encoder.column) for rows in parts]
    if encoder.kind == CATEGORICAL:
        words = pa.chunked_array([column.cast(pa.string()) for column in columns])
        encoded = words.combine_chunks().dictionary_encode()
        return _floats(encoded.indices)
    if encoder.kind == DATE:
        columns = [column.cast(pa.int64()) for column in columns]
    return np.concatenate([_floats(column) for column in columns])


def _floats(array: pa.Array) -> Array:
    pa, _ = import_arrow()
    values: Array = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return values


def n_wrong(keys: Array, codes: IntArray, *, nearest: bool) -> int:
    """The rows whose label codes [n] the keys [n] of the other half get wrong.

    nearest: whether a key that the other half lacks has the label of the nearest, and not the commonest.

    >>> keys, codes = np.arange(100.0), np.arange(100) // 50
    >>> n_wrong(keys, codes, nearest=True), n_wrong(keys % 7, codes, nearest=True) > 20
    (1, True)
    """
    known = np.where(np.isfinite(keys), keys, np.inf)  # missing keys are a value of their own
    halves = np.arange(len(keys)) % 2 == 0
    wrong = 0
    for learn in (halves, ~halves):
        check = ~learn
        values, labels = _commonest(known[learn], codes[learn])
        at = np.searchsorted(values, known[check]).clip(0, len(values) - 1)
        if nearest:
            below = (at - 1).clip(0)
            with np.errstate(invalid="ignore", over="ignore"):
                closer = known[check] - values[below] < values[at] - known[check]
            at = np.where(closer, below, at)
            told = labels[at]
        else:
            usual = np.bincount(codes[learn]).argmax()
            told = np.where(values[at] == known[check], labels[at], usual)
        wrong += int(np.count_nonzero(told != codes[check]))
    return wrong


def _commonest(keys: Array, codes: IntArray) -> tuple[Array, AnyArray]:
    """The different keys, sorted, and the commonest label code of each."""
    values, places = np.unique(keys, return_inverse=True)
    n_codes = int(codes.max()) + 1
    pairs, counts = np.unique(places * n_codes + codes, return_counts=True)
    order = np.lexsort((counts, pairs // n_codes))
    last = np.append(np.flatnonzero(np.diff(pairs[order] // n_codes)), len(order) - 1)
    return values, pairs[order][last] % n_codes
