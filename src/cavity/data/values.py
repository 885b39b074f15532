"""Values of columns: the code of each cell, and how often each value has occurred with each class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cavity.data.columns import BOOLEAN, CATEGORICAL, DATE, coerced
from cavity.data.parts import import_arrow
from cavity.typing import AnyArray, Array, IntArray

if TYPE_CHECKING:
    import pyarrow as pa


def cells_of(array: pa.Array, kind: str, column: str) -> pa.Array:
    """The cells of a column as strings or doubles, null where they are missing or not finite.

    Truth values are 0 and 1, dates are microseconds since 1970.

    >>> import pyarrow
    >>> cells_of(pyarrow.array([1, None, 0]), "numeric", "late").to_pylist()
    [1.0, None, 0.0]
    """
    pa, _ = import_arrow()
    values = coerced(array, kind, column)
    if kind == CATEGORICAL:
        return values
    if kind == DATE:
        return values.cast(pa.int64()).cast(pa.float64(), safe=False)
    values = values.cast(pa.int8()).cast(pa.float64()) if kind == BOOLEAN else values.cast(pa.float64())
    numbers = values.to_numpy(zero_copy_only=False) + 0.0  # makes 0 of −0
    return pa.array(numbers, mask=~np.isfinite(numbers))


def _distinct(cells: pa.Array) -> tuple[pa.Array, IntArray]:
    """The different cells, null among them, and the position [t] of each cell there."""
    pa, _ = import_arrow()
    if pa.types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    encoded = cells.dictionary_encode(null_encoding="encode")
    positions: IntArray = encoded.indices.to_numpy()
    return encoded.dictionary, positions


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
        keys, positions = _distinct(cells)
        _, n_folds, n_classes = self.counts.shape
        cell = (positions.astype(np.int64) * n_folds + folds) * n_classes + codes
        counts = np.bincount(cell, weight, len(keys) * n_folds * n_classes)
        self.n_rows += len(cells)
        self._join(keys, counts.reshape(len(keys), n_folds, n_classes).astype(np.float64))

    def merge(self, other: ValueCounts) -> None:
        """Add what was counted of other rows."""
        self.is_distinct |= other.is_distinct
        self.n_rows += other.n_rows
        if other.keys is not None:
            self._join(other.keys, other.counts)

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
            self.is_distinct, self.keys, self.counts = True, self.keys[:0], self.counts[:0]
            return
        totals = self.counts.sum(axis=(1, 2))
        kept = np.sort(np.argsort(-totals, kind="stable")[: self.most // 2])
        self.keys, self.counts = self.keys.take(import_arrow()[0].array(kept)), self.counts[kept]

    def sorted(self) -> tuple[pa.Array, Array]:
        """The values in order without null, and counts [K + 1, F, C]: the last is that of null."""
        pa, pc = import_arrow()
        assert self.keys is not None
        order = pc.array_sort_indices(self.keys).to_numpy()  # null comes last
        keys, counts = self.keys.take(pa.array(order)), self.counts[order]
        if not keys.null_count:
            return keys, np.concatenate([counts, np.zeros_like(counts[:1])])
        return keys.drop_null(), counts


@dataclass(frozen=True, eq=False)
class ValueIndex:
    """The code of each cell of a column.

    Codes 0 … K − 1 are values or bins, K is a missing cell, and K + 1 a value that is not known.
    """

    column: str
    kind: str
    """Numeric, boolean, categorical or date."""
    keys: AnyArray
    """[K], sorted: strings (as objects) or doubles; of bins, the K − 1 bounds between them."""
    is_binned: bool = False

    @property
    def n_values(self) -> int:
        """Number K of values or bins."""
        return len(self.keys) + self.is_binned

    def codes(self, array: pa.Array) -> NDArray[np.int64]:
        """Codes [t] of an Arrow array."""
        pa, pc = import_arrow()
        cells = cells_of(array, self.kind, self.column)
        missing, other = self.n_values, self.n_values + 1
        if self.kind == CATEGORICAL:
            values, positions = _distinct(cells)
            known = pc.index_in(values, value_set=pa.array(self.keys, pa.string())).fill_null(other)
            lookup: NDArray[np.int64] = known.to_numpy().astype(np.int64)
            lookup[values.is_null().to_numpy(zero_copy_only=False)] = missing
            return lookup[positions]
        numbers = cells.to_numpy(zero_copy_only=False)
        if self.is_binned:
            codes: NDArray[np.int64] = np.searchsorted(self.keys, numbers, side="right")
        else:
            codes = np.searchsorted(self.keys, numbers)
            inside = np.minimum(codes, len(self.keys) - 1)
            codes[self.keys[inside] != numbers] = other
        codes[np.isnan(numbers)] = missing
        return codes


def values_as_keys(values: pa.Array) -> AnyArray:
    """Sorted values [K] as the keys of an index."""
    return np.asarray(values.to_numpy(zero_copy_only=False))
