"""Counts of values with classes and folds, gathered in passes over a table, in parts that add up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

import numpy as np

from cavity.data.effects import N_FOLDS, Codes, folds_of, joint_codes
from cavity.data.labelled import LabelledRows, labelled_rows
from cavity.data.labels import Classes
from cavity.data.parts import import_arrow
from cavity.data.sampling import row_hash
from cavity.data.table import Table
from cavity.data.values import ValueCounts, ValueIndex, Values
from cavity.typing import Array, IntArray

if TYPE_CHECKING:
    import pyarrow as pa

MOST_CELLS = 20_000_000
"""Most numbers that the counts of all columns take together; the rarest values of columns with very many
are left out beyond."""
MOST_GROUP_CELLS = 30_000_000
"""Most numbers that the counts of one group take, and that those of all groups take together while they
are gathered."""
_LEAST_KEPT = 1_000
"""Values of a column, or cells of a group, that are kept in any case."""
_WAITING_ROWS = 2_000_000
"""Rows of a group that are added up at a time."""
_SAMPLE_SEED = 0x5A3B1E0F2D47


@dataclass(frozen=True)
class Folds:
    """Which fold each row is in: one of five by a hash of its number, or the last if it is held out."""

    held_out: IntArray
    """Sorted numbers of the held-out rows."""

    def of(self, numbers: IntArray) -> IntArray:
        """Folds [t] of rows with these numbers [t], which increase."""
        folds = folds_of(numbers)
        if len(self.held_out) and len(numbers):
            low, high = np.searchsorted(self.held_out, [numbers[0], numbers[-1] + 1])
            folds[self.held_out[low:high] - numbers[0]] = N_FOLDS
        return folds


class Summary(Protocol):
    """What a pass over the rows of a table gathers; summaries of parts of the table can be merged."""

    @property
    def columns(self) -> list[str]:
        """Columns that it looks at."""
        ...

    def add(self, rows: LabelledRows) -> None:
        """Look at the next rows."""
        ...

    def merged(self: S, other: S) -> S:
        """This summary and that of the rows that follow together; both stay as they are."""
        ...


S = TypeVar("S", bound=Summary)


class Summariser(Protocol):
    """Summarises all training rows of a table in one pass, wherever they are."""

    def __call__(self, empty: S) -> S:
        """The summary of all rows; `empty` is one of no rows."""
        ...


@dataclass(frozen=True)
class TableSummariser:
    """Summarises the training rows of a table in this process."""

    table: Table
    typed: Callable[[pa.RecordBatch], pa.RecordBatch]
    """Reads text as what a column holds; see `TablePreprocessor.typed`."""
    classes: Classes
    weight: str | None = None
    """Name of the column of weights."""

    def __call__(self, empty: S) -> S:
        """The summary of all rows."""
        for rows in labelled_rows(self.table, empty.columns, self.typed, self.classes, self.weight):
            empty.add(rows)
        return empty


class RowSample(NamedTuple):
    """Some training rows, with the fold, class code and weight of each."""

    batches: list[pa.RecordBatch]
    folds: IntArray
    codes: IntArray
    weight: Array


def most_kept(most: int, size: int) -> int:
    """How many values or cells to keep, if each has `size` numbers and `most` numbers are kept.

    >>> most_kept(MOST_CELLS, 12), most_kept(MOST_CELLS, 1_000_000)
    (1666666, 1000)
    """
    return max(_LEAST_KEPT, most // size)


class ColumnCounts:
    """How often each value of some columns occurs with each class, and a sample of the rows.

    share: how many of the rows are sampled, about; a hash of their numbers decides.
    """

    def __init__(
        self, values: Sequence[Values], folds: Folds, class_factors: Array, share: float = 0.0
    ) -> None:
        self.values, self.folds, self.factors = list(values), folds, class_factors
        self.share = share
        n_classes = len(class_factors)
        most = most_kept(MOST_CELLS, (N_FOLDS + 1) * n_classes * len(self.values))
        self.counts = [ValueCounts(N_FOLDS + 1, n_classes, most) for _ in self.values]
        self._sampled: list[tuple[pa.RecordBatch, IntArray, IntArray, Array]] = []

    @property
    def columns(self) -> list[str]:
        """Columns that are counted."""
        return list(dict.fromkeys(values.column for values in self.values))

    def add(self, rows: LabelledRows) -> None:
        """Count the next rows."""
        pa, _ = import_arrow()
        folds = self.folds.of(rows.numbers)
        for values, counted in zip(self.values, self.counts, strict=True):
            if not counted.is_distinct:
                counted.add(values.of(rows.batch), folds, rows.codes, rows.weight)
        if not self.share:
            return
        chosen = row_hash(rows.numbers, _SAMPLE_SEED) < self.share * 2.0**64
        chosen &= folds < N_FOLDS
        weight = self.factors[rows.codes] * (1.0 if rows.weight is None else rows.weight)
        batch = rows.batch if chosen.all() else rows.batch.filter(pa.array(chosen))
        self._sampled.append((batch, folds[chosen], rows.codes[chosen], weight[chosen]))

    def merged(self, other: ColumnCounts) -> ColumnCounts:
        """The counts of these rows and of those that follow."""
        both = copy(self)
        both.counts = [a.merged(b) for a, b in zip(self.counts, other.counts, strict=True)]
        both._sampled = [*self._sampled, *other._sampled]
        return both

    def sample(self) -> RowSample:
        """The rows that were sampled."""
        none: IntArray = np.zeros(0, dtype=np.int64)
        batches, folds, codes, weights = (
            zip(*self._sampled, strict=True) if self._sampled else ((), (none,), (none,), (none,))
        )
        weight = np.concatenate(weights).astype(np.float64)
        return RowSample(list(batches), np.concatenate(folds), np.concatenate(codes), weight)


class CellCounts:
    """Total weight of the rows with each cell of a group of columns, fold and class.

    A cell is a number; there may be nearly as many as rows, and few of their rows are in each fold and
    class. So what is not zero is kept, sorted by cell, fold and class. Only the commonest cells are kept
    if there is more than `most`.

    >>> counts = CellCounts(n_folds=2, n_classes=2)
    >>> counts.add(np.array([7, 3, 7, -1]), np.array([0, 0, 1, 1]), np.array([1, 0, 1, 1]))
    >>> cells, table = counts.sorted()
    >>> cells.tolist(), table.tolist()
    ([3, 7], [[[1.0, 0.0], [0.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]])
    """

    def __init__(self, n_folds: int, n_classes: int, most: int = 1_000_000) -> None:
        self.n_folds, self.n_classes, self.most = n_folds, n_classes, most
        self.keys: IntArray = np.zeros(0, dtype=np.int64)
        """Sorted: (cell · F + fold) · C + class."""
        self.totals: Array = np.zeros(0)
        """Total weight of the rows with each key."""
        self._waiting: list[tuple[IntArray, Array | None]] = []

    def add(
        self, cells: IntArray, folds: IntArray, codes: IntArray, weight: Array | None = None
    ) -> None:
        """Count the next rows with cells [t], folds [t], class codes [t] and weights [t].

        Rows whose cell is −1 are left out.
        """
        known = cells >= 0
        keys = (cells * self.n_folds + folds) * self.n_classes + codes
        if not known.all():
            keys, weight = keys[known], None if weight is None else weight[known]
        self._waiting.append((keys, weight))
        if sum(len(keys) for keys, _ in self._waiting) > _WAITING_ROWS:
            self._settle()

    def merged(self, other: CellCounts) -> CellCounts:
        """These counts and those of other rows together; both stay as they are."""
        both = copy(self)
        both._waiting = [*self._waiting, (other.keys, other.totals), *other._waiting]
        both._settle()
        return both

    def _settle(self) -> None:
        """Add the rows that wait to the counts."""
        if not self._waiting:
            return
        weights: Array
        if all(weight is None for _, weight in self._waiting):
            keys = np.sort(np.concatenate([keys for keys, _ in self._waiting]))
            first = np.flatnonzero(np.diff(keys, prepend=-1))
            keys, weights = keys[first], np.diff(first, append=len(keys)).astype(np.float64)
        else:
            keys = np.concatenate([keys for keys, _ in self._waiting])
            each = [np.ones(len(keys)) if weight is None else weight for keys, weight in self._waiting]
            keys, weights = _added_up(keys, np.concatenate(each))
        if len(self.keys):
            keys = np.concatenate([self.keys, keys])
            keys, weights = _added_up(keys, np.concatenate([self.totals, weights]))
        self.keys, self.totals = keys, weights
        self._waiting = []
        if len(self.keys) > self.most:
            of_cell = np.cumsum(np.diff(self.keys // self._numbers, prepend=-1) > 0) - 1
            common = np.argsort(-np.bincount(of_cell, self.totals), kind="stable")
            kept = np.zeros(len(common), dtype=bool)
            kept[common[: len(common) // 2]] = True
            self.keys, self.totals = self.keys[kept[of_cell]], self.totals[kept[of_cell]]

    @property
    def _numbers(self) -> int:
        return self.n_folds * self.n_classes

    def sorted(self) -> tuple[IntArray, Array]:
        """The cells [K] in order, and counts [K, F, C]."""
        self._settle()
        cells, place = np.divmod(self.keys, self._numbers)
        is_first = np.diff(cells, prepend=-1) > 0
        counts = np.zeros((int(is_first.sum()), self._numbers))
        counts[np.cumsum(is_first) - 1, place] = self.totals
        return cells[is_first], counts.reshape(-1, self.n_folds, self.n_classes)


def _added_up(keys: IntArray, weights: Array) -> tuple[IntArray, Array]:
    """Different keys in order, and the total weight of each; sorted runs are merged in linear time."""
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    return keys[first], np.add.reduceat(weights[order], first) if len(first) else weights


class GroupCounts:
    """How often values of groups of columns occur together, with each class."""

    def __init__(
        self, groups: Sequence[tuple[ValueIndex, ...]], folds: Folds, class_factors: Array
    ) -> None:
        self.groups, self.folds = list(groups), folds
        n_classes = len(class_factors)
        most = most_kept(MOST_GROUP_CELLS, max((N_FOLDS + 1) * n_classes, len(self.groups)))
        self.counts = [CellCounts(N_FOLDS + 1, n_classes, most) for _ in self.groups]

    @property
    def columns(self) -> list[str]:
        """Columns of the groups."""
        return sorted({n for group in self.groups for index in group for n in index.values.columns})

    def add(self, rows: LabelledRows) -> None:
        """Count the next rows."""
        folds = self.folds.of(rows.numbers)
        known: Codes = {}
        for group, counted in zip(self.groups, self.counts, strict=True):
            counted.add(joint_codes(group, rows.batch, known), folds, rows.codes, rows.weight)

    def merged(self, other: GroupCounts) -> GroupCounts:
        """The counts of these rows and of those that follow."""
        both = copy(self)
        both.counts = [a.merged(b) for a, b in zip(self.counts, other.counts, strict=True)]
        return both
