"""Summaries of the columns of a table over the rows read so far, and what becomes of each column."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from cavity.data.columns import (
    BOOLEAN,
    CATEGORICAL,
    DATE,
    NUMERIC,
    PARTS,
    CategoricalEncoder,
    DateEncoder,
    Encoder,
    Form,
    NumericEncoder,
    date_features,
    parts_of,
    words_of,
)
from cavity.data.parts import import_arrow
from cavity.text import shortened
from cavity.typing import Array, IntArray

if TYPE_CHECKING:
    import pyarrow as pa

_NUMBERS, _DATES = Form(NUMERIC), Form(DATE)
SAMPLE = 50_000
"""Sample size for the median of a column; up to twice as many values are kept."""
_MOST_COUNTED = 20_000
"""Levels of a column that are counted at most; if there are more, the rarest are dropped."""
_UNUSUAL = 1e-3
"""Share of the numbers of a column that are smaller than usual, and of those that are larger."""
_FLOAT32_LOSS = 1e-5
"""Rounding error of float32 that does not matter, in standard deviations of a column."""


class ColumnDecision(NamedTuple):
    """How a column is encoded, or why it is left out."""

    encoder: Encoder | None
    """None if it is left out."""
    notes: tuple[str, ...] = ()
    """Why it is left out, and what else the user should know of it."""
    single: bool = True
    """Whether float32 holds it."""
    is_spare: bool = False
    """Whether it is left out if there is any other column to use."""
    names_rows: bool = False
    """Whether its values number or name the rows."""


class ColumnScan(Protocol):
    """Summary of a column over the rows read so far."""

    def add(self, array: pa.Array) -> None:
        """Look at the next Arrow array."""
        ...

    def decide(self) -> ColumnDecision:
        """How to encode the column."""
        ...


class NumericScan:
    """Range, moments, missing values and a sample of a column of numbers or truth values."""

    def __init__(self, column: str, form: Form = _NUMBERS) -> None:
        self.column, self.form = column, form
        self.n = self.missing = self.infinite = 0
        self.low, self.high = np.inf, -np.inf
        self.mean = self.squares = 0.0
        self.sample = NumberSample()
        self.order = RowOrder(column)

    def add(self, array: pa.Array) -> None:
        """Look at the next numbers."""
        values = self.form.read(array, self.column)
        if self.form.kind == BOOLEAN:
            values = values.cast(import_arrow()[0].float32())
        numbers = values.to_numpy(zero_copy_only=False).astype(np.float64)
        known = numbers[np.isfinite(numbers)]
        if len(known) < len(numbers):
            self.missing += len(numbers) - len(known)
            self.infinite += int(np.count_nonzero(np.isinf(numbers)))
        if not len(known):
            return
        self.low, self.high = min(self.low, known.min()), max(self.high, known.max())
        total = self.n + len(known)
        with np.errstate(all="ignore"):  # too large for float32 if it overflows, whatever the deviation
            step = known.mean() - self.mean
            self.squares += (
                float(np.square(known - known.mean()).sum()) + step**2 * self.n * len(known) / total
            )
            self.mean += step * len(known) / total
        self.n = total
        self.sample.add(known)
        self.order.add(known)

    def decide(self) -> ColumnDecision:
        """Encode the numbers, unless they are all the same."""
        if self.n == 0:
            return ColumnDecision(None, (f"{self.column!r} has no values and is left out",))
        if self.low == self.high and not self.missing:
            return ColumnDecision(None, (f"{self.column!r} is always {self.low:g} and is left out",))
        largest = max(abs(self.low), abs(self.high))
        deviation = np.sqrt(self.squares / self.n)
        loss = 0.0 if self.low == self.high else largest * 2**-24
        single = bool(largest < 1e30 and loss <= _FLOAT32_LOSS * max(deviation, 1e-30))
        encoder = NumericEncoder(
            self.column,
            self.sample.median,
            self.sample.usual,
            self.missing > 0,
            self.form.kind,
            self.form.decimal,
        )
        if not self.missing and (why := self.order.identifies_rows(self.high - self.low)):
            note = f"{self.column!r} {why} and is left out"
            return ColumnDecision(encoder, (note,), single, is_spare=True, names_rows=True)
        notes: tuple[str, ...] = ()
        if self.infinite:
            cells = "1 cell" if self.infinite == 1 else f"{self.infinite:,} cells"
            notes = (f"{self.column!r} has an infinite number in {cells}, which counts as missing",)
        return ColumnDecision(encoder, notes, single)


_UNNAMED = re.compile(r"(?:Unnamed: \d+)?")
_NAMED_ID = re.compile(r"(?:.*[^A-Za-z])?[iI][dD]|.*[a-z]I[dD]", re.DOTALL)
_ORDERED_ROWS = 10
"""From so many rows on, numbers do not rise or fall all the way by chance."""


class RowOrder:
    """Finds out whether the numbers of a column only number or name the rows."""

    def __init__(self, column: str) -> None:
        self._is_unnamed = _UNNAMED.fullmatch(column) is not None
        self._distinct = DistinctSample() if _NAMED_ID.fullmatch(column) else None
        self._n = 0
        self._is_whole = self._rises = self._falls = True
        self._first = self._last = 0.0

    def add(self, numbers: Array) -> None:
        """Look at the next numbers, finite and at least one."""
        if not self._is_whole:
            return
        self._is_whole = bool((numbers == np.floor(numbers)).all())
        if not self._n:
            self._first, before = numbers[0], numbers[:-1]
            after = numbers[1:]
        else:
            before, after = np.concatenate([[self._last], numbers[:-1]]), numbers
        self._rises = self._rises and bool((after > before).all())
        self._falls = self._falls and bool((after < before).all())
        self._last = numbers[-1]
        self._n += len(numbers)
        if self._distinct is not None and self._is_whole:
            self._distinct.add(numbers)

    def identifies_rows(self, span: float) -> str | None:
        """Why the column identifies rows, or None; span: from the lowest to the highest number."""
        if not self._is_whole or self._n < 3:
            return None
        in_order = self._rises or self._falls
        example = f"such as {self._first:.15g}"
        # Neighbours of a sorted quantity are further apart than those of a count with a few gaps.
        counts = self._n >= _ORDERED_ROWS and span < 2 * self._n
        if in_order and (self._is_unnamed or counts):
            return f"numbers the rows (from {self._first:.15g} to {self._last:.15g})"
        if self._distinct is not None and self._distinct.all_different:
            return f"looks like an identifier (every row has a number of its own, {example})"
        return None


class DistinctSample:
    """Tells whether all numbers differ, by looking at those whose hash is one of a few.

    Equal numbers have the same hash, so none of a pair is overlooked. Whenever there are too many, the
    half with an odd hash is dropped.
    """

    def __init__(self) -> None:
        self.all_different = True
        self._kept: Array = np.zeros(0)
        self._bits = 0

    def add(self, numbers: Array) -> None:
        """Look at the next numbers."""
        if not self.all_different:
            return
        self._kept = np.concatenate([self._kept, self._chosen(numbers)])
        self.all_different = len(np.unique(self._kept)) == len(self._kept)
        while len(self._kept) > 2 * SAMPLE:
            self._bits += 1
            self._kept = self._chosen(self._kept)

    def _chosen(self, numbers: Array) -> Array:
        if not self._bits:
            return numbers
        mixed: IntArray = (numbers + 0.0).view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        return np.asarray(numbers[mixed >> np.uint64(64 - self._bits) == 0])


class NumberSample:
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
        """Median of the sample."""
        return float(np.median(np.concatenate(self._kept)))

    @property
    def usual(self) -> tuple[float, float]:
        """The range of the sample without its smallest and largest values, if there are others."""
        values = np.concatenate(self._kept)
        low, high = np.quantile(values, [_UNUSUAL, 1.0 - _UNUSUAL], method="nearest")
        if low == high:
            low, high = values.min(), values.max()
        return float(low), float(high)


class LevelScan:
    """Counts of the values of a column of strings."""

    def __init__(self, column: str, max_categories: int, missing_words: tuple[str, ...] = ()) -> None:
        self.column, self.max_categories = column, max_categories
        self.missing_words = missing_words
        self.n = self.missing = 0
        self.counts: Counter[str] = Counter()
        self.forgot = False

    def add(self, array: pa.Array) -> None:
        """Count the next values."""
        _, pc = import_arrow()
        values = words_of(array, self.column, self.missing_words)
        self.missing += values.null_count
        self.n += len(values) - values.null_count
        found = pc.value_counts(values.drop_null())
        levels, counts = found.field("values").to_pylist(), found.field("counts").to_pylist()
        self.counts.update(dict(zip(levels, counts, strict=True)))
        if len(self.counts) > _MOST_COUNTED:
            self.forgot = True
            self.counts = Counter(dict(self.counts.most_common(_MOST_COUNTED // 2)))

    def decide(self) -> ColumnDecision:
        """Encode all levels, or the commonest of many; none if nearly every row has its own level."""
        if self.n == 0:
            return ColumnDecision(None, (f"{self.column!r} has no values and is left out",))
        n_levels = len(self.counts)
        if n_levels == 1 and not self.missing and not self.forgot:
            level = next(iter(self.counts))
            return ColumnDecision(None, (f"{self.column!r} is always {level!r} and is left out",))
        if n_levels == self.n and n_levels > 2:
            return self._identifier("every row has a value of its own")
        if n_levels <= self.max_categories and not self.forgot:
            return ColumnDecision(self._encoder(self.counts, False))
        enough = max(3.0, self.n / 2_000)
        common = [level for level, n in self.counts.most_common(self.max_categories) if n >= enough]
        if not common and sum(self.counts.values()) >= 2 * n_levels:
            common = [level for level, _ in self.counts.most_common(1)]  # effects may tell the others
        if not common:
            return self._identifier("hardly any value occurs twice")
        note = (
            f"{self.column!r} has {'more than ' if self.forgot else ''}{n_levels:,} levels: the "
            f"commonest {len(common)} are kept, the others count as one"
        )
        return ColumnDecision(self._encoder(common, True), (note,))

    def _encoder(self, levels: Iterable[str], has_other: bool) -> CategoricalEncoder:
        return CategoricalEncoder(
            self.column,
            tuple(sorted(levels)),
            has_other,
            self.missing > 0,
            missing_words=self.missing_words,
        )

    def _identifier(self, why: str) -> ColumnDecision:
        example = shortened(next(iter(self.counts)))
        note = f"{self.column!r} looks like an identifier ({why}, such as {example!r}) and is left out"
        return ColumnDecision(None, (note,), names_rows=True)


class DateScan:
    """Which parts of a column of dates vary, and their means."""

    def __init__(self, column: str, form: Form = _DATES) -> None:
        self.column, self.form = column, form
        self.n = self.missing = 0
        self.low, self.high = np.full(len(PARTS), np.inf), np.full(len(PARTS), -np.inf)
        self.sum = np.zeros(2 * len(PARTS) - 1)

    def add(self, array: pa.Array) -> None:
        """Look at the next dates."""
        pa, _ = import_arrow()
        values = self.form.read(array, self.column)
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

    def decide(self) -> ColumnDecision:
        """Encode the parts of the dates that vary."""
        if self.n == 0:
            return ColumnDecision(None, (f"{self.column!r} has no values and is left out",))
        varies = self.high > self.low
        if not varies.any():
            return ColumnDecision(None, (f"{self.column!r} is always the same and is left out",))
        parts = tuple(part for part, moves in zip(PARTS, varies, strict=True) if moves)
        means, first = self.sum / self.n, float(np.floor(self.low[0]))
        fill: list[float] = []
        for i, moves in enumerate(varies):
            if moves:
                fill += [means[0] - first] if i == 0 else [means[2 * i - 1], means[2 * i]]
        encoder = DateEncoder(
            self.column,
            first,
            (float(self.low[0]), float(self.high[0])),
            parts,
            tuple(float(value) for value in fill),
            self.missing > 0,
            day_first=self.form.day_first,
        )
        return ColumnDecision(encoder)


def scan_of(
    name: str, form: Form, max_categories: int, missing_words: tuple[str, ...] = ()
) -> ColumnScan:
    """A scan of a column of that form; missing_words: words that stand for a missing value."""
    if form.kind == CATEGORICAL:
        return LevelScan(name, max_categories, missing_words)
    return DateScan(name, form) if form.kind == DATE else NumericScan(name, form)
