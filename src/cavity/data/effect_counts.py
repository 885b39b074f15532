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
    """What is gathered in a pass over the rows of a table, in parts that can be merged."""

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


class Pass(Protocol):
    """Runs over all training rows of a table, wherever they are."""

    def __call__(self, empty: S) -> S:
        """The summary of all rows; `empty` is one of no rows."""
        ...


@dataclass(frozen=True)
class TablePass:
    """Runs over the training rows of a table in this process."""

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


class Sample(NamedTuple):
    """Some training rows."""

    batches: list[pa.RecordBatch]
    folds: IntArray
    codes: IntArray
    weight: Array


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
        most = max(1_000, MOST_CELLS // ((N_FOLDS + 1) * n_classes * len(self.values)))
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
                cells = values.cells(rows.batch.column(values.column))
                counted.add(cells, folds, rows.codes, rows.weight)
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

    def sample(self) -> Sample:
        """The rows that were sampled."""
        none: IntArray = np.zeros(0, dtype=np.int64)
        batches, folds, codes, weights = (
            zip(*self._sampled, strict=True) if self._sampled else ((), (none,), (none,), (none,))
        )
        weight = np.concatenate(weights).astype(np.float64)
        return Sample(list(batches), np.concatenate(folds), np.concatenate(codes), weight)


class PairCounts:
    """How often each two values of a pair of columns occur together, with each class."""

    def __init__(
        self,
        pairs: Sequence[tuple[ValueIndex, ValueIndex]],
        folds: Folds,
        class_factors: Array,
    ) -> None:
        self.pairs, self.folds, self.factors = list(pairs), folds, class_factors
        n_classes = len(class_factors)
        most = max(1_000, MOST_CELLS // ((N_FOLDS + 1) * n_classes * len(self.pairs)))
        self.counts = [ValueCounts(N_FOLDS + 1, n_classes, most) for _ in self.pairs]

    @property
    def columns(self) -> list[str]:
        """Columns of the pairs."""
        return sorted({index.column for pair in self.pairs for index in pair})

    def add(self, rows: LabelledRows) -> None:
        """Count the next rows."""
        folds = self.folds.of(rows.numbers)
        known: Codes = {}
        for pair, counted in zip(self.pairs, self.counts, strict=True):
            counted.add(joint_cells(pair, rows.batch, known), folds, rows.codes, rows.weight)

    def merged(self, other: PairCounts) -> PairCounts:
        """The counts of these rows and of those that follow."""
        both = copy(self)
        both.counts = [a.merged(b) for a, b in zip(self.counts, other.counts, strict=True)]
        return both


def joint_cells(pair: tuple[ValueIndex, ...], batch: pa.RecordBatch, known: Codes) -> pa.Array:
    """The values of a pair as one whole number [t]; null where one of them is not known.

    known: codes of the batch that were found before; others are added.
    """
    for index in pair:
        if id(index) not in known:
            known[id(index)] = index.codes(batch.column(index.column))
    joint = joint_codes(pair, [known[id(index)] for index in pair])
    return import_arrow()[0].array(joint, mask=joint < 0)
