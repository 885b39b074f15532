"""What columns of text hold: numbers, truth values, dates or words, decided over all their cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from cavity.data import cells
from cavity.data.cells import COMMA, POINT
from cavity.data.columns import BOOLEAN, CATEGORICAL, DATE, NUMERIC, Form, text_of
from cavity.data.parts import import_arrow
from cavity.text import shortened, shown

if TYPE_CHECKING:
    import pyarrow as pa

_TOLERATED = 0.05
"""Share of the cells of a column of numbers or dates that may be other words."""
_ONE_TOLERATED = 10
"""From so many cells on, one other word is tolerated, whatever its share."""
_FIRST_LOOK = 64
"""Cells that tell whether the sign before the decimals is in doubt at all."""
_REMEMBERED = 1_000
"""Words of a column of text that are remembered."""
_WHAT = {NUMERIC: "numbers", BOOLEAN: "truth values", DATE: "dates"}


class TextTally:
    """Counts how many cells of a column of text can be read as numbers, truth values or dates."""

    def __init__(self) -> None:
        self.cells = 0
        """Cells that are not null."""
        self.placeholders = 0
        """Those that stand for a missing value, such as a dash."""
        self.truths = 0
        self.numbers = {POINT: 0, COMMA: 0}
        """Numbers, by the sign before the decimals."""
        self.dates = {True: 0, False: 0}
        """Dates, by whether the day is read before the month."""
        self._examples: dict[str, str] = {}
        self._others: pa.Array | None = None
        """Some words that are nothing else, so that they are not looked at again."""

    def add(self, array: pa.Array) -> None:
        """Look at the next cells, an Arrow array of strings."""
        words = text_of(array)
        assert words is not None
        n = len(words) - words.null_count
        if not n:
            return
        self.cells += n
        if not (self._are_numbers(words, n) or self._are_dates(words, n)):
            self._look_at_each(words)

    def _are_numbers(self, array: pa.Array, n: int) -> bool:
        """Whether Arrow reads all cells as numbers; they are counted then."""
        pa, pc = import_arrow()
        whole = cells.cast(array, pa.int64())
        if whole is None and cells.cast(array, pa.float64()) is None:
            return False
        self._keep("plain", array)
        self.numbers[POINT] += n
        if whole is not None:
            self.numbers[COMMA] += n
            self.truths += int(_as_mask(pc.is_in(whole, value_set=pa.array([0, 1]))).sum())
        elif self._is_doubtful(array.drop_null(), COMMA):
            self.numbers[COMMA] += int(_as_mask(cells.are_numbers(array, COMMA)).sum())
            self._keep(f"decorated {COMMA}", array, _as_mask(pc.match_substring(array, POINT)))
        return True

    @staticmethod
    def _is_doubtful(words: pa.Array, sign: str) -> bool:
        """Whether numbers might have this decimal sign, too, as 1.234 might be 1234.

        Mostly the first cells exclude it, and it need not be counted how many others do.
        """
        return bool(_as_mask(cells.are_numbers(words.slice(0, _FIRST_LOOK), sign)).all())

    def _are_dates(self, array: pa.Array, n: int) -> bool:
        """Whether Arrow reads all cells as dates; they are counted then."""
        pa, _ = import_arrow()
        if cells.cast(array, pa.timestamp("us")) is None:
            return False
        self.dates = {order: count + n for order, count in self.dates.items()}
        self._keep("dates", array)
        return True

    def _look_at_each(self, array: pa.Array) -> None:
        pa, pc = import_arrow()
        words, counts = cells.words_and_counts(array)
        if self._others is not None:
            new = _as_mask(pc.invert(pc.is_in(words, value_set=self._others)))
            words, counts = words.filter(pa.array(new)), counts[new]
        if not len(words):
            return
        words = cells.trimmed(words)
        is_number = np.zeros(len(words), bool)
        missing: np.typing.NDArray[np.bool_] | None = None
        numbers: dict[str, np.typing.NDArray[np.bool_]] = {}
        for sign in sorted(self.numbers, key=lambda sign: -self.numbers[sign]):
            if missing is not None and (is_number | missing).all():
                doubtful = self._is_doubtful(words.filter(pa.array(is_number)), sign)
                if not doubtful:
                    continue
            found = _as_mask(cells.are_numbers(words, sign))
            self.numbers[sign] += int(counts[found].sum())
            is_number, numbers[sign] = is_number | found, found
            if f"decorated {sign}" not in self._examples:
                plain = _as_mask(cells.are_plain(words)) & (sign == POINT)
                self._keep(f"decorated {sign}", words, found & ~plain)
                self._keep("plain", words, found & plain)
            if missing is None:
                missing = _matches_among(~is_number, cells.are_placeholders, words)
        assert missing is not None
        missing &= ~is_number
        self.placeholders += int(counts[missing].sum())
        self._keep("placeholder", words, missing)
        for sign, found in numbers.items():
            self._keep(f"no number {sign}", words, ~(found | missing))
        is_truth = np.zeros(len(words), bool)
        if self._may_be_truths(words.filter(pa.array(~missing))):
            is_truth = _as_mask(cells.truths_of(words).is_valid())
            self.truths += int(counts[is_truth].sum())
        self._keep("no date", words, is_number)
        rest = ~(is_number | missing)
        words, counts, is_truth = words.filter(pa.array(rest)), counts[rest], is_truth[rest]
        is_date = np.zeros(len(words), bool)
        for order in self.dates:
            found = _as_mask(cells.are_dates(words, order))
            self.dates[order] += int(counts[found].sum())
            is_date |= found
        self._keep("dates", words, is_date)
        self._keep("ordered", words, _as_mask(cells.are_ordered(words)))
        self._keep("no date", words, ~is_date)
        if self._others is None:
            self._others = words.filter(pa.array(~(is_date | is_truth))).slice(0, _REMEMBERED)

    @staticmethod
    def _may_be_truths(words: pa.Array) -> bool:
        """Whether the first words are truth values, which a column of them has everywhere."""
        return not cells.truths_of(words.slice(0, _FIRST_LOOK)).null_count

    def _keep(
        self, what: str, words: pa.Array, where: np.typing.NDArray[np.bool_] | None = None
    ) -> None:
        """Keep the first of the words as an example."""
        if what not in self._examples:
            pa, _ = import_arrow()
            some = (words if where is None else words.filter(pa.array(where))).drop_null()
            if len(some):
                self._examples[what] = shortened(some[0].as_py())

    @property
    def known(self) -> int:
        """Cells that do not stand for a missing value."""
        return self.cells - self.placeholders

    def holds(self, n: int) -> bool:
        """Whether a column is of a kind if n of its cells can be read as that kind: nearly all must."""
        others = self.known - n
        return n > 0 and (
            others <= _TOLERATED * self.known or (others == 1 and self.known >= _ONE_TOLERATED)
        )

    @property
    def kind(self) -> str:
        """Numeric, boolean, date or, if its cells are none of these, categorical."""
        if self.holds(max(self.numbers.values())):
            return NUMERIC
        if self.truths == self.known > 0:
            return BOOLEAN
        return DATE if self.holds(max(self.dates.values())) else CATEGORICAL

    def notes(self, column: str, form: Form, *, is_typed: bool) -> list[str]:
        """What the user should know of how the column is read.

        is_typed: whether the table could have held numbers and dates as such.
        """
        if form.kind == CATEGORICAL:
            return []
        read = {NUMERIC: self.numbers[form.decimal], DATE: self.dates[form.day_first]}
        notes = []
        others = self.cells - read.get(form.kind, self.truths)
        decorated = self._examples.get(f"decorated {form.decimal}")
        if form.kind == NUMERIC and decorated is not None:
            value = form.read(import_arrow()[0].array([decorated]), column)[0].as_py()
            notes.append(f"{column!r} has numbers such as {shown(decorated)}, read as {value:.15g}")
        elif form.kind == DATE and "ordered" in self._examples:
            example = self._examples["ordered"]
            first = "the day first" if form.day_first else "the month first"
            doubt = "; no cell tells which" if self.dates[True] == self.dates[False] else ""
            notes.append(f"{column!r} has dates such as {shown(example)}, read with {first}{doubt}")
        elif is_typed:
            example = self._examples.get("dates" if form.kind == DATE else "plain", "")
            such = f", such as {shown(example)}," if example else ""
            notes.append(f"{column!r} is text{such} and is read as {_WHAT[form.kind]}")
        if others:
            wrong = {NUMERIC: f"no number {form.decimal}", DATE: "no date"}.get(form.kind, "")
            other = self._examples.get(wrong, self._examples.get("placeholder"))
            such = "" if other is None else f" (such as {shown(other)})"
            cells = (
                f"1 other cell{such} counts" if others == 1 else f"{others:,} other cells{such} count"
            )
            notes.append(f"{column!r} holds {_WHAT[form.kind]}; {cells} as missing")
        return notes


def forms_of(tallies: Mapping[str, TextTally], decimal: str | None = None) -> dict[str, Form]:
    """The forms of columns of text that have any cell.

    A column has the decimal sign, and the order of day and month, with which more of its cells can be
    read. Where both are equal, it has that of the other columns, or else a point and the day first.

    decimal: the sign before the decimals, if it is known.

    >>> import pyarrow
    >>> tallies = {"a": TextTally(), "b": TextTally()}
    >>> tallies["a"].add(pyarrow.array(["1,234", "2,500"]))
    >>> forms_of(tallies)["a"].decimal
    '.'
    >>> tallies["b"].add(pyarrow.array(["0,5", "12,25"]))
    >>> forms_of(tallies)["a"].decimal
    ','
    """
    kinds = {name: tally.kind for name, tally in tallies.items() if tally.cells}
    numeric = [tallies[name].numbers for name, kind in kinds.items() if kind == NUMERIC]
    commas = any(n[COMMA] > n[POINT] for n in numeric) and not any(n[POINT] > n[COMMA] for n in numeric)
    usual = decimal or (COMMA if commas else POINT)
    dated = [tallies[name].dates for name, kind in kinds.items() if kind == DATE]
    day_first = not any(n[False] > n[True] for n in dated) or any(n[True] > n[False] for n in dated)
    forms = {}
    for name, kind in kinds.items():
        tally = tallies[name]
        other = COMMA if usual == POINT else POINT
        prefers = tally.numbers[other] > tally.numbers[usual]
        known = decimal is not None and tally.holds(tally.numbers[usual])
        sign = other if prefers and not known else usual
        order = tally.dates[True] > tally.dates[False]
        forms[name] = Form(
            kind,
            decimal=sign if kind == NUMERIC else POINT,
            day_first=(day_first if tally.dates[True] == tally.dates[False] else order)
            if kind == DATE
            else True,
        )
    return forms


def _matches_among(
    mask: np.typing.NDArray[np.bool_], find: Callable[[pa.Array], pa.Array], words: pa.Array
) -> np.typing.NDArray[np.bool_]:
    """Which of the words that the mask chooses are found; it looks at these alone."""
    found = np.zeros(len(words), bool)
    found[mask] = _as_mask(find(words.filter(import_arrow()[0].array(mask))))
    return found


def _as_mask(array: pa.Array) -> np.typing.NDArray[np.bool_]:
    found = array.fill_null(False).to_numpy(zero_copy_only=False)
    return np.asarray(found, dtype=bool)
