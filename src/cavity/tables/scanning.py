"""What training must know of each column, gathered chunk by chunk in memory that does not grow."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple, Protocol

import numpy as np

from cavity.tables.arrow import import_arrow
from cavity.tables.dates import PARTS, parts_of
from cavity.tables.encoders import (
    CategoricalEncoder,
    DateEncoder,
    Encoder,
    NumericEncoder,
    date_features,
)
from cavity.tables.kinds import BOOLEAN, CATEGORICAL, DATE, NUMERIC, coerced
from cavity.typing import Array

SAMPLE = 50_000
"""Numbers of a column that its median is taken from."""
_MOST_COUNTED = 20_000
"""Levels of a column that are counted; beyond, the rarest are forgotten."""
_FLOAT32_LOSS = 1e-5
"""Rounding error of float32 that is harmless, in standard deviations of a column."""


class Decision(NamedTuple):
    """What becomes of a column."""

    encoder: Encoder | None
    """None if it is left out."""
    note: str | None
    """Why it is left out, or what else the user should know of it."""
    single: bool = True
    """Whether float32 holds it."""


class ColumnScan(Protocol):
    """What is known of a column so far."""

    def add(self, array: Any) -> None:
        """Look at the next Arrow array."""
        ...

    def decide(self) -> Decision:
        """How to encode the column."""
        ...


class NumericScan:
    """Range, moments, missing values and a sample of a column of numbers or truth values."""

    def __init__(self, column: str, kind: str = NUMERIC) -> None:
        self.column, self.kind = column, kind
        self.n = self.missing = 0
        self.low, self.high = np.inf, -np.inf
        self.mean = self.squares = 0.0
        self.sample = Sample()

    def add(self, array: Any) -> None:
        """Look at the next numbers."""
        values = coerced(array, self.kind, self.column)
        if self.kind == BOOLEAN:
            values = values.cast(import_arrow()[0].float32())
        numbers = values.to_numpy(zero_copy_only=False).astype(np.float64)
        known = numbers[np.isfinite(numbers)]
        self.missing += len(numbers) - len(known)
        if not len(known):
            return
        self.low, self.high = min(self.low, known.min()), max(self.high, known.max())
        total = self.n + len(known)
        step = known.mean() - self.mean
        self.squares += (
            float(np.square(known - known.mean()).sum()) + step**2 * self.n * len(known) / total
        )
        self.mean += step * len(known) / total
        self.n = total
        self.sample.add(known)

    def decide(self) -> Decision:
        """The numbers, unless they are all the same."""
        if self.n == 0:
            return Decision(None, f"{self.column!r} has no values and is left out")
        if self.low == self.high and not self.missing:
            return Decision(None, f"{self.column!r} is always {_number(self.low)} and is left out")
        largest = max(abs(self.low), abs(self.high))
        deviation = np.sqrt(self.squares / self.n)
        single = largest < 1e30 and largest * 2**-24 <= _FLOAT32_LOSS * max(deviation, 1e-30)
        encoder = NumericEncoder(self.column, self.sample.median, self.missing > 0, self.kind)
        return Decision(encoder, None, single or self.low == self.high)


class Sample:
    """Every k-th number of a column, with k doubled whenever there are too many."""

    def __init__(self) -> None:
        self._kept: list[Array] = []
        self._n_kept, self._every, self._offset = 0, 1, 0

    def add(self, numbers: Array) -> None:
        """Keep some of the next numbers."""
        chosen = numbers[self._offset :: self._every]
        self._offset = (self._offset - len(numbers)) % self._every
        self._kept.append(np.array(chosen))
        self._n_kept += len(chosen)
        while self._n_kept > 2 * SAMPLE:
            whole = np.concatenate(self._kept)
            if len(whole) % 2:
                self._offset += self._every
            self._kept = [whole[::2]]
            self._n_kept, self._every = len(self._kept[0]), 2 * self._every

    @property
    def median(self) -> float:
        """Of what was kept."""
        return float(np.median(np.concatenate(self._kept)))


class LevelScan:
    """Counts of the values of a column of strings."""

    def __init__(self, column: str, max_levels: int) -> None:
        self.column, self.max_levels = column, max_levels
        self.n = self.missing = 0
        self.counts: Counter[str] = Counter()
        self.forgot = False

    def add(self, array: Any) -> None:
        """Count the next values."""
        _, pc = import_arrow()
        values = coerced(array, CATEGORICAL, self.column)
        self.missing += values.null_count
        self.n += len(values) - values.null_count
        found = pc.value_counts(values.drop_null())
        levels, counts = found.field("values").to_pylist(), found.field("counts").to_pylist()
        self.counts.update(dict(zip(levels, counts, strict=True)))
        if len(self.counts) > _MOST_COUNTED:
            self.forgot = True
            self.counts = Counter(dict(self.counts.most_common(_MOST_COUNTED // 2)))

    def decide(self) -> Decision:
        """A level each, or the commonest if there are many; none if nearly all rows have their own."""
        if self.n == 0:
            return Decision(None, f"{self.column!r} has no values and is left out")
        n_levels = len(self.counts)
        if n_levels == 1 and not self.missing and not self.forgot:
            return Decision(
                None, f"{self.column!r} is always {next(iter(self.counts))!r} and is left out"
            )
        if n_levels == self.n and n_levels > 2:
            return Decision(None, self._identifier("every row has a value of its own"))
        if n_levels <= self.max_levels and not self.forgot:
            encoder = CategoricalEncoder(
                self.column, tuple(sorted(self.counts)), False, self.missing > 0
            )
            return Decision(encoder, None)
        enough = max(3.0, self.n / 2_000)
        common = [level for level, n in self.counts.most_common(self.max_levels) if n >= enough]
        if not common:
            return Decision(None, self._identifier("hardly any value occurs twice"))
        note = (
            f"{self.column!r} has {'more than ' if self.forgot else ''}{n_levels:,} levels: the "
            f"commonest {len(common)} are kept, the others count as one"
        )
        encoder = CategoricalEncoder(self.column, tuple(sorted(common)), True, self.missing > 0)
        return Decision(encoder, note)

    def _identifier(self, why: str) -> str:
        return f"{self.column!r} looks like an identifier ({why}) and is left out"


class DateScan:
    """Which parts of a column of dates vary, and their means."""

    def __init__(self, column: str) -> None:
        self.column = column
        self.n = self.missing = 0
        self.low, self.high = np.full(len(PARTS), np.inf), np.full(len(PARTS), -np.inf)
        self.sum = np.zeros(2 * len(PARTS) - 1)

    def add(self, array: Any) -> None:
        """Look at the next dates."""
        pa, _ = import_arrow()
        values = coerced(array, DATE, self.column)
        self.missing += values.null_count
        known = values.drop_null()
        if not len(known):
            return
        parts = parts_of(known.cast(pa.int64()).to_numpy())
        self.low, self.high = (
            np.minimum(self.low, parts.min(axis=0)),
            np.maximum(self.high, parts.max(axis=0)),
        )
        self.n += len(known)
        self.sum += date_features(parts, 0.0, PARTS).sum(axis=0)

    def decide(self) -> Decision:
        """The parts that vary."""
        if self.n == 0:
            return Decision(None, f"{self.column!r} has no values and is left out")
        varies = self.high > self.low
        if not varies.any():
            return Decision(None, f"{self.column!r} is always the same and is left out")
        parts = tuple(part for part, moves in zip(PARTS, varies, strict=True) if moves)
        means, first = self.sum / self.n, float(np.floor(self.low[0]))
        fill: list[float] = []
        for i, moves in enumerate(varies):
            if moves:
                fill += [means[0] - first] if i == 0 else [means[2 * i - 1], means[2 * i]]
        encoder = DateEncoder(
            self.column,
            first,
            parts,
            tuple(float(value) for value in fill),
            self.missing > 0,
        )
        return Decision(encoder, None)


def _number(value: float) -> str:
    return f"{value:g}"
