"""Values of columns: the code of each cell, and how often each value has occurred with each class."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.data.columns import BOOLEAN, CATEGORICAL, DATE, coerced
from cavity.data.parts import import_arrow
from cavity.typing import AnyArray, Array, IntArray

if TYPE_CHECKING:
    import pyarrow as pa


WHOLE = ""
"""The part of a column that is the column itself."""
DATE_PARTS = {
    "month": "month",
    "day of month": "day",
    "day of week": "day_of_week",
    "hour": "hour",
}
"""Parts of a date whose values may have effects, and Arrow's functions for them; Monday is 0."""


class Values(NamedTuple):
    """A column, a part of its dates, or a difference of two columns, whose values may have effects."""

    column: str
    kind: str
    """Numeric, boolean, categorical or date."""
    part: str = WHOLE
    """One of `DATE_PARTS`, or the column itself."""
    minus: str = ""
    """Column of whole numbers that is subtracted from this one; "" if none is."""

    def __str__(self) -> str:
        if self.minus:
            return f"{self.column} − {self.minus}"
        return f"{self.column}: {self.part}" if self.part else self.column

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns: one, or two of a difference."""
        return (self.column, self.minus) if self.minus else (self.column,)

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        """The cells of a record batch that has the columns, as those of `cells`.

        >>> import pyarrow
        >>> batch = pyarrow.RecordBatch.from_pydict({"leaves": [600, 1400], "lands": [700, None]})
        >>> Values("lands", "numeric", minus="leaves").of(batch).to_pylist()
        [100.0, None]
        """
        cells = self.cells(batch.column(self.column))
        if not self.minus:
            return cells
        less = Values(self.minus, self.kind).cells(batch.column(self.minus))
        return import_arrow()[1].subtract(cells, less)

    def cells(self, array: pa.Array) -> pa.Array:
        """The cells of a column as strings or doubles, null where they are missing or not finite.

        Truth values are 0 and 1, dates are microseconds since 1970.

        >>> import pyarrow
        >>> Values("late", "numeric").cells(pyarrow.array([1, None, 0])).to_pylist()
        [1.0, None, 0.0]
        >>> noon = pyarrow.array([43_200_000_000], pyarrow.timestamp("us"))
        >>> Values("when", "date", "hour").cells(noon).to_pylist()
        [12.0]
        """
        pa, pc = import_arrow()
        values = coerced(array, self.kind, self.column)
        if self.kind == CATEGORICAL:
            return values
        if self.part:
            return pc.call_function(DATE_PARTS[self.part], [values]).cast(pa.float64())
        if self.kind == DATE:
            return values.cast(pa.int64()).cast(pa.float64(), safe=False)
        if self.kind == BOOLEAN:
            values = values.cast(pa.int8())
        numbers = values.cast(pa.float64()).to_numpy(zero_copy_only=False) + 0.0  # makes 0 of −0
        return pa.array(numbers, mask=~np.isfinite(numbers))


def _distinct(cells: pa.Array) -> tuple[pa.Array, IntArray]:
    """The different cells, null among them, and the position [t] of each cell there.

    Those of an array with a dictionary are all that it lists, whether they occur or not.
    """
    pa, pc = import_arrow()
    if pa.types.is_dictionary(cells.type):
        values = cells.dictionary
        if values.null_count or pc.count_distinct(values).as_py() < len(values):
            return _distinct(cells.dictionary_decode())
        if cells.null_count:
            values = pa.concat_arrays([values, pa.nulls(1, values.type)])
        indices = cells.indices.cast(pa.int64())
        positions: IntArray = indices.fill_null(len(values) - 1).to_numpy()
        return values, positions
    encoded = cells.dictionary_encode(null_encoding="encode")
    return encoded.dictionary, encoded.indices.to_numpy()


class ValueCounts:
    """Total weight of the rows with each value, fold and class, added up chunk by chunk.

    Only the commonest values are kept if there are more than `most`.

    >>> import pyarrow
    >>> counts = ValueCounts(n_folds=2, n_classes=2)
    >>> counts.add(pyarrow.array(["a", "b", "a"]), np.array([0, 0, 1]), np.array([1, 0, 1]))
    >>> counts.keys.to_pylist(), counts.counts.tolist()
    (['a', 'b'], [[[0.0, 1.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 0.0]]])
    """

    def __init__(self, n_folds: int, n_classes: int, most: int = 1_000_000) -> None:
        self.most = most
        self.keys: pa.Array | None = None
        """[K]: the values; one of them may be null, for cells that are missing."""
        self.counts: Array = np.zeros((0, n_folds, n_classes))
        """[K, F, C]"""
        self.n_rows = 0
        self.is_distinct = False
        """Whether there are too many values, and hardly any occurs twice: nothing is counted then."""

    def add(
        self, cells: pa.Array, folds: IntArray, codes: IntArray, weight: Array | None = None
    ) -> None:
        """Count the next cells [t] of rows with folds [t], class codes [t] and weights [t]."""
        if self.is_distinct or not len(cells):
            return
        pa, _ = import_arrow()
        keys, positions = _distinct(cells)
        _, n_folds, n_classes = self.counts.shape
        cell = (positions.astype(np.int64) * n_folds + folds) * n_classes + codes
        size = len(keys) * n_folds * n_classes
        counts = np.bincount(cell, weight, size).reshape(len(keys), n_folds, n_classes)
        if pa.types.is_dictionary(cells.type):
            occurs = np.bincount(positions, minlength=len(keys)) > 0
            keys, counts = keys.filter(pa.array(occurs)), counts[occurs]
        self.n_rows += len(cells)
        self._join(keys, counts.astype(np.float64))

    def merged(self, other: ValueCounts) -> ValueCounts:
        """These counts and those of other rows together; both stay as they are."""
        both = copy(self)
        both.counts = self.counts.copy()
        both.is_distinct, both.n_rows = self.is_distinct or other.is_distinct, self.n_rows + other.n_rows
        if both.is_distinct:
            both._drop()
        elif other.keys is not None:
            both._join(other.keys, other.counts.copy())
        return both

    def _join(self, keys: pa.Array, counts: Array) -> None:
        pa, pc = import_arrow()
        if self.keys is None:
            self.keys, self.counts = keys, counts
        else:
            found = pc.index_in(keys, value_set=self.keys)
            is_new = found.is_null().to_numpy(zero_copy_only=False)
            self.counts[found.drop_null().to_numpy()] += counts[~is_new]
            if is_new.any():
                self.keys = pa.concat_arrays([self.keys, keys.filter(pa.array(is_new))])
                self.counts = np.concatenate([self.counts, counts[is_new]])
        if len(self.keys) > self.most:
            self._forget()

    def _forget(self) -> None:
        """Keep the commonest half of the values that may be kept."""
        assert self.keys is not None
        if 2 * len(self.keys) > self.n_rows:
            self.is_distinct = True
            self._drop()
            return
        totals = self.counts.sum(axis=(1, 2))
        kept = np.sort(np.argsort(-totals, kind="stable")[: self.most // 2])
        self.keys, self.counts = self.keys.take(import_arrow()[0].array(kept)), self.counts[kept]

    def _drop(self) -> None:
        self.counts = self.counts[:0]
        if self.keys is not None:
            self.keys = self.keys[:0]

    def sorted(self) -> tuple[pa.Array, Array]:
        """The values in order without null, and counts [K + 1, F, C]: the last is that of null."""
        pa, pc = import_arrow()
        assert self.keys is not None
        order = pc.array_sort_indices(self.keys).to_numpy()  # null comes last
        keys, counts = self.keys.take(pa.array(order)), self.counts[order]
        if not keys.null_count:
            return keys, np.concatenate([counts, np.zeros_like(counts[:1])])
        return keys.drop_null(), counts


_LARGEST = 2.0**53
"""Whole numbers up to this one are exact in a float64."""
_TABLE_NUMBERS = 4_000_000
"""Most numbers of a table that is looked up instead of a search."""


class Positions:
    """Positions of whole numbers among sorted ones [K]; K for those that are not there.

    >>> Positions(np.array([2, 5]))(np.array([5, 3, 2, -1, 9])).tolist()
    [1, 2, 0, 2, 2]
    """

    def __init__(self, keys: IntArray) -> None:
        self._keys = keys
        self._table: NDArray[np.int32] | None = None
        if len(keys) and int(keys[-1]) - int(keys[0]) < _TABLE_NUMBERS:
            # The last two are for smaller and for larger numbers.
            self._table = np.full(int(keys[-1] - keys[0]) + 3, len(keys), dtype=np.int32)
            self._table[keys - keys[0] + 1] = np.arange(len(keys), dtype=np.int32)

    def __call__(self, wanted: IntArray) -> NDArray[np.int64]:
        """Positions [t] of numbers [t]."""
        keys, positions = self._keys, np.empty(len(wanted), dtype=np.int64)
        if not len(keys):
            positions[:] = 0
        elif self._table is not None:
            places = np.clip(wanted, keys[0] - 1, keys[-1] + 1)
            places -= keys[0] - 1
            positions[:] = self._table[places]
        else:
            order = np.argsort(wanted)  # a search for neighbours is quicker
            found = np.minimum(np.searchsorted(keys, wanted[order]), len(keys) - 1)
            positions[order] = np.where(keys[found] == wanted[order], found, len(keys))
        return positions


@dataclass(frozen=True, eq=False)
class ValueIndex:
    """The code of each cell of a column, or of a difference of two.

    Codes 0 … K − 1 are values or bins, K is a missing cell, and K + 1 a value that is not known.
    """

    values: Values
    keys: AnyArray
    """[K], sorted: strings (as objects) or doubles; of bins, the K − 1 bounds between them."""
    is_binned: bool = False

    @property
    def n_values(self) -> int:
        """Number K of values or bins."""
        return len(self.keys) + self.is_binned

    @property
    def n_codes(self) -> int:
        """Number of codes, K + 2."""
        return self.n_values + 2

    @cached_property
    def _words(self) -> pa.Array:
        pa, _ = import_arrow()
        return pa.array(self.keys, pa.string())

    def codes(self, batch: pa.RecordBatch) -> NDArray[np.int64]:
        """Codes [t] of the rows of an Arrow record batch that has the columns."""
        _, pc = import_arrow()
        cells = self.values.of(batch)
        missing, other = self.n_values, self.n_values + 1
        if self.values.kind == CATEGORICAL:
            values, positions = _distinct(cells)
            known = pc.index_in(values, value_set=self._words).fill_null(other)
            lookup: NDArray[np.int64] = known.to_numpy().astype(np.int64)
            lookup[values.is_null().to_numpy(zero_copy_only=False)] = missing
            return lookup[positions]
        numbers = cells.to_numpy(zero_copy_only=False)
        if self.is_binned:
            codes: NDArray[np.int64] = np.searchsorted(self.keys, numbers, side="right")
        elif self._whole is not None:
            whole = np.where(np.abs(numbers) < _LARGEST, numbers, 0.0).astype(np.int64)
            codes = self._whole(whole)
            codes[(codes == missing) | (whole != numbers)] = other
        elif len(self.keys):
            codes = np.searchsorted(self.keys, numbers)
            inside = np.minimum(codes, len(self.keys) - 1)
            codes[self.keys[inside] != numbers] = other
        else:
            codes = np.full(len(numbers), other)
        codes[np.isnan(numbers)] = missing
        return codes

    @cached_property
    def _whole(self) -> Positions | None:
        """Positions of the values, if all are whole numbers that a float64 holds exactly."""
        if not is_whole(self.keys):
            return None
        return Positions(self.keys.astype(np.int64))


def is_whole(numbers: Array) -> bool:
    """Whether all numbers are whole, and so small that a float64 holds their neighbours, too."""
    return bool((np.floor(numbers) == numbers).all() and (np.abs(numbers) < _LARGEST).all())


def values_as_keys(values: pa.Array) -> AnyArray:
    """Sorted values [K] as the keys of an index."""
    return np.asarray(values.to_numpy(zero_copy_only=False))
