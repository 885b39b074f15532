"""Columns of a table: which kind each is, and how it becomes features.

A column is numeric, boolean, categorical or a date. An encoder, one small record for each column that is
used, turns its values into numbers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from cavity.data import cells
from cavity.data.parts import import_arrow
from cavity.errors import SourceError
from cavity.text import shown
from cavity.typing import Array, IntArray

if TYPE_CHECKING:
    import pyarrow as pa

NUMERIC, BOOLEAN, CATEGORICAL, DATE = "numeric", "boolean", "categorical", "date"


def kind_of_type(kind: pa.DataType) -> str | None:
    """The kind of an Arrow type, or None if such a column cannot be used.

    >>> import pyarrow
    >>> kind_of_type(pyarrow.int16()), kind_of_type(pyarrow.date32()), kind_of_type(pyarrow.binary())
    ('numeric', 'date', None)
    """
    pa, _ = import_arrow()
    is_a = pa.types
    if is_a.is_dictionary(kind):
        return None if kind_of_type(kind.value_type) is None else CATEGORICAL
    if is_a.is_boolean(kind):
        return BOOLEAN
    if (
        is_a.is_integer(kind)
        or is_a.is_floating(kind)
        or is_a.is_decimal(kind)
        or is_a.is_duration(kind)
    ):
        return NUMERIC
    if is_a.is_timestamp(kind) or is_a.is_date(kind):
        return DATE
    return CATEGORICAL if cells.is_text(kind) else None


@dataclass(frozen=True)
class Form:
    """What the cells of a column are, and how text is read as that."""

    kind: str
    """Numeric, boolean, categorical or date."""
    decimal: str = cells.POINT
    """The sign before the decimals of numbers."""
    day_first: bool = True
    """Whether the day comes before the month in dates such as 01/02/2024."""

    def read(self, array: pa.Array, column: str) -> pa.Array:
        """The cells of an Arrow array as numbers, truth values, strings or points in time.

        Text that cannot be read as that is null. Cells that are no text, and of another kind, raise.
        """
        words = text_of(array)
        if words is None or self.kind == CATEGORICAL:
            return coerced(array, self.kind, column)
        if self.kind == NUMERIC:
            return cells.numbers(words, self.decimal)
        return cells.truths(words) if self.kind == BOOLEAN else cells.dates(words, self.day_first)

    def unreadable(self, array: pa.Array, column: str) -> set[str]:
        """The words of an array that cannot be read, except those that stand for a missing value."""
        return unread_words(array, self.read(array, column))


def unread_words(array: pa.Array, values: pa.Array) -> set[str]:
    """The words of an array [t] that are null in the values [t] that were read from it.

    Those that stand for a missing value are left out.

    >>> import pyarrow
    >>> words = pyarrow.array(["1.5", "n/a", "many", None])
    >>> unread_words(words, Form(NUMERIC).read(words, "age"))
    {'many'}
    """
    words = None if values.null_count == array.null_count else text_of(array)
    if words is None:
        return set()
    _, pc = import_arrow()
    others = pc.unique(words.filter(values.is_null()).drop_null())
    return set(others.filter(pc.invert(cells.are_placeholders(others))).to_pylist())


def text_of(array: pa.Array) -> pa.Array | None:
    """An array of strings of any Arrow type, categories too, as plain strings; None for other arrays."""
    pa, _ = import_arrow()
    if pa.types.is_dictionary(array.type) and cells.is_text(array.type.value_type):
        array = array.dictionary_decode()
    if not cells.is_text(array.type):
        return None
    return array if array.type == pa.string() else array.cast(pa.string())


_WHOLE = r"^([+-]?[0-9]+)\.0$"
"""A whole number with a decimal, as a regular expression."""


def words_of(array: pa.Array, column: str, missing: Sequence[str] = ()) -> pa.DictionaryArray:
    """The cells of a column as words with a dictionary, null where a word stands for a missing value.

    A whole number is written without decimals: codes become 2.0 in files where some of them are missing.

    >>> import pyarrow
    >>> words_of(pyarrow.array(["red", "?", None, "2.0"]), "colour", ["?"]).to_pylist()
    ['red', None, None, '2']
    """
    pa, pc = import_arrow()
    words = coerced(array, CATEGORICAL, column)
    encoded = words if pa.types.is_dictionary(words.type) else words.dictionary_encode()
    stands = pc.is_in(encoded.dictionary, value_set=pa.array(missing, pa.string()))
    if pc.any(stands).as_py():
        indices = pc.if_else(
            stands.take(encoded.indices), pa.scalar(None, encoded.indices.type), encoded.indices
        )
        encoded = pa.DictionaryArray.from_arrays(indices, encoded.dictionary)
    if pc.any(pc.match_substring_regex(encoded.dictionary, _WHOLE)).as_py():
        shorter = pc.replace_substring_regex(encoded.dictionary, _WHOLE, r"\1")
        encoded = pa.DictionaryArray.from_arrays(encoded.indices, shorter)
        encoded = encoded.dictionary_decode().dictionary_encode()  # two words may have become one
    return encoded


def coerced(array: pa.Array, kind: str, column: str) -> pa.Array:
    """An Arrow array converted to doubles, booleans, strings or timestamps in microseconds."""
    pa, _ = import_arrow()
    try:
        return _converted(array, kind)
    except pa.ArrowException:
        example = next((cell for cell in array if not _is_convertible(cell, kind)), None)
        raise SourceError(
            f"column {column!r} should be {kind}, but has the value "
            f"{shown(None if example is None else example.as_py())}; correct such cells or leave them "
            "empty"
        ) from None


def _converted(array: pa.Array, kind: str) -> pa.Array:
    """An Arrow array converted as in `coerced`, with pyarrow's errors."""
    pa, _ = import_arrow()
    wanted = {
        NUMERIC: pa.float64(),
        BOOLEAN: pa.bool_(),
        CATEGORICAL: pa.string(),
        DATE: pa.timestamp("us"),
    }[kind]
    found = array.type
    if found == wanted or (kind == NUMERIC and found == pa.float32()):
        return array
    if pa.types.is_dictionary(found):
        if kind == CATEGORICAL and found.value_type == pa.string():
            return array
        array = array.dictionary_decode()
        found = array.type
    if pa.types.is_duration(found) and kind == NUMERIC:
        return array.cast(pa.duration("us"), safe=False).cast(pa.int64()).cast(wanted, safe=False)
    if kind == CATEGORICAL and (pa.types.is_floating(found) or pa.types.is_decimal(found)):
        return _number_words(array)
    if kind == BOOLEAN and kind_of_type(found) == NUMERIC:
        whole = array.cast(pa.int64())
        if not whole.cast(wanted).cast(pa.int64()).equals(whole):
            raise pa.ArrowInvalid("numbers other than 0 and 1")
        array = whole
    if kind == DATE and pa.types.is_timestamp(found):
        return array.cast(pa.timestamp("us", found.tz), safe=False).cast(wanted)
    if kind == NUMERIC and (words := text_of(array)) is not None:
        array = cells.trimmed(words)
    return array.cast(wanted, safe=kind != NUMERIC)


def _is_convertible(cell: pa.Scalar, kind: str) -> bool:
    pa, _ = import_arrow()
    try:
        _converted(pa.repeat(cell, 1), kind)
    except pa.ArrowException:
        return False
    return True


def _number_words(array: pa.Array) -> pa.Array:
    """Numbers as strings, whole ones without a decimal point: missing cells make floats of integers."""
    pa, _ = import_arrow()
    values = array.cast(pa.float64()).to_pylist()
    words = [
        None if v is None or v != v else str(int(v)) if float(v).is_integer() else str(v) for v in values
    ]
    return pa.array(words, pa.string())


DAY = 86_400_000_000
"""Microseconds of a day."""
YEAR = 365.2425
"""Days of the mean year of the Gregorian calendar."""
EPOCH_WEEKDAY = 3
"""The weekday of 1 January 1970, a Thursday; weeks begin on Monday, 0."""

_DIGITS = 12
"""Digits of a place on a circle: more than the errors of sine and cosine."""

PARTS = ("days", "time of year", "day of week", "time of day")
"""Parts of a point in time: the first is linear, the others are periodic."""


def parts_of(microseconds: IntArray) -> Array:
    """Days since 1970, and the shares of year, week and day that have passed: [t, 4].

    >>> parts_of(np.array([86_400_000_000 * 4 + 43_200_000_000]))[0].round(3).tolist()
    [4.5, 0.012, 0.0, 0.5]
    """
    days = microseconds // DAY
    time_of_day = (microseconds % DAY) / DAY
    dates = days.astype("datetime64[D]")
    first = dates.astype("datetime64[Y]").astype("datetime64[D]")
    time_of_year = ((dates - first).astype(np.float64) + time_of_day) / YEAR
    week = (days + EPOCH_WEEKDAY) % 7 / 7.0
    return np.column_stack([days + time_of_day, time_of_year, week, time_of_day])


def circle(share: Array) -> tuple[Array, Array]:
    """A share of a period as a point on the unit circle, so that its end is next to its beginning.

    Rounding errors are rounded away: noon is exactly opposite to midnight.
    """
    angle = 2 * np.pi * share
    return np.round(np.sin(angle), _DIGITS), np.round(np.cos(angle), _DIGITS)


class Encoder(Protocol):
    """How one column becomes features."""

    @property
    def column(self) -> str:
        """The name of the column."""
        ...

    @property
    def kind(self) -> str:
        """Numeric, boolean, categorical or date."""
        ...

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features that it becomes."""
        ...

    @property
    def form(self) -> Form:
        """How its cells are read."""
        ...

    def encode(self, array: pa.Array, out: Array) -> None:
        """Write the features of an Arrow array [t] into out [t, n_features]."""
        ...


@dataclass(frozen=True)
class NumericEncoder:
    """A number as it is; a missing or infinite one as the median, marked in a second feature."""

    column: str
    fill: float
    usual: tuple[float, float]
    """Between which values nearly all numbers of training are."""
    marks_missing: bool
    """Whether there is a second feature, 1 where the number is missing."""
    kind: str = NUMERIC
    """Numeric or boolean, which is 0 and 1."""
    decimal: str = cells.POINT
    """The sign before the decimals of numbers that are text."""

    @property
    def form(self) -> Form:
        """How its cells are read."""
        return Form(self.kind, decimal=self.decimal)

    @property
    def features(self) -> tuple[str, ...]:
        """The column, and whether it is missing."""
        return (self.column, f"{self.column} (missing)") if self.marks_missing else (self.column,)

    def encode(self, array: pa.Array, out: Array) -> None:
        """Write the numbers."""
        values = self.form.read(array, self.column)
        if self.kind == BOOLEAN:
            values = values.cast(import_arrow()[0].float32())
        numbers = values.to_numpy(zero_copy_only=False)
        missing = ~np.isfinite(numbers)
        if out.dtype != numbers.dtype:  # a number beyond the range is far away, and not missing
            largest = np.finfo(out.dtype).max
            numbers = np.clip(numbers, -largest, largest)
        out[:, 0] = numbers
        if missing.any():
            out[missing, 0] = self.fill
        if self.marks_missing:
            out[:, 1] = missing


@dataclass(frozen=True)
class CategoricalEncoder:
    """A feature for each level, 1 where the row has it; two levels share a single feature.

    Levels that are not among those of training are "(other)": a feature of their own if training had
    rare ones too, else none of the known levels.
    """

    column: str
    levels: tuple[str, ...]
    """The levels with a feature, sorted."""
    has_other: bool
    """Whether there is a feature for all the rest."""
    marks_missing: bool
    kind: str = CATEGORICAL
    missing_words: tuple[str, ...] = ()
    """Words that stand for a missing value."""

    @property
    def form(self) -> Form:
        """How its cells are read."""
        return Form(CATEGORICAL)

    @property
    def features(self) -> tuple[str, ...]:
        """The column with each level."""
        levels = self.levels[1:] if self._is_pair else self.levels
        other = ("(other)",) if self.has_other else ()
        missing = ("(missing)",) if self.marks_missing else ()
        return tuple(f"{self.column}={level}" for level in (*levels, *other, *missing))

    @property
    def _is_pair(self) -> bool:
        return len(self.levels) == 2 and not (self.has_other or self.marks_missing)

    @property
    def _rows_of_codes(self) -> Array:
        """[n_levels + 2, n_features]: the features of each level, of others and of missing values."""
        n = len(self.levels)
        if self._is_pair:
            return np.array([[0.0], [1.0], [0.5], [0.5]])
        rows = np.zeros((n + 2, len(self.features)))
        rows[np.arange(n), np.arange(n)] = 1.0
        if self.has_other:
            rows[n, n] = 1.0
        if self.marks_missing:
            rows[n + 1, -1] = 1.0
        return rows

    def encode(self, array: pa.Array, out: Array) -> None:
        """Write the levels."""
        out[:] = self._rows_of_codes[self.codes(array)]

    def words(self, array: pa.Array) -> pa.DictionaryArray:
        """The cells of an Arrow array as words with a dictionary; see `words_of`."""
        return words_of(array, self.column, self.missing_words)

    def codes(self, array: pa.Array) -> NDArray[np.int64]:
        """The positions of levels [t]: n_levels for others, n_levels + 1 for missing values."""
        pa, _ = import_arrow()
        encoded = self.words(array)
        position = {level: i for i, level in enumerate(self.levels)}
        n = len(self.levels)
        words = encoded.dictionary.to_pylist()
        lookup = np.array([n + 1 if w is None else position.get(w, n) for w in words] + [n + 1])
        indices = encoded.indices.cast(pa.int32())  # a smaller type may have no room for one more
        return np.asarray(lookup[indices.fill_null(len(words)).to_numpy()], dtype=np.int64)

    def unseen(self, array: pa.Array) -> set[str]:
        """Values that are not among the levels, unless rare levels of training were joined as others."""
        if self.has_other:
            return set()
        _, pc = import_arrow()
        values = pc.unique(self.words(array)).to_pylist()
        return {value for value in values if value is not None} - set(self.levels)


@dataclass(frozen=True)
class DateEncoder:
    """Days since the first date of training, and places in the year, the week and the day on circles."""

    column: str
    first: float
    """Day of the first date, since 1970."""
    usual: tuple[float, float]
    """Between which days, since 1970, the dates of training are."""
    parts: tuple[str, ...]
    """Those of `PARTS` that vary."""
    fill: tuple[float, ...]
    """Mean of each feature, for dates that are missing."""
    marks_missing: bool
    kind: str = DATE
    day_first: bool = True
    """Whether the day comes before the month in dates that are text."""

    @property
    def form(self) -> Form:
        """How its cells are read."""
        return Form(DATE, day_first=self.day_first)

    @property
    def features(self) -> tuple[str, ...]:
        """The column with each part."""
        return (*self._dated, f"{self.column} (missing)") if self.marks_missing else self._dated

    @property
    def _dated(self) -> tuple[str, ...]:
        names = []
        for part in self.parts:
            name = f"{self.column}: {part}"
            names += [name] if part == PARTS[0] else [f"{name} (sin)", f"{name} (cos)"]
        return tuple(names)

    def encode(self, array: pa.Array, out: Array) -> None:
        """Write the parts."""
        pa, _ = import_arrow()
        values = self.form.read(array, self.column)
        missing = values.is_null().to_numpy(zero_copy_only=False)
        parts = parts_of(values.cast(pa.int64()).fill_null(0).to_numpy())
        features = date_features(parts, self.first, self.parts)
        features[missing] = self.fill
        out[:, : features.shape[1]] = features
        if self.marks_missing:
            out[:, -1] = missing


_ENCODERS: dict[str, Callable[..., Encoder]] = {
    kind.__name__: kind for kind in (NumericEncoder, CategoricalEncoder, DateEncoder)
}


def encoders_as_text(encoders: Sequence[Encoder]) -> str:
    """The encoders in JSON, for a model file.

    >>> encoder = NumericEncoder("age", 41.5, (18.0, 95.0), marks_missing=False)
    >>> encoders_from_text(encoders_as_text([encoder])) == [encoder]
    True
    """
    return json.dumps([{"type": type(encoder).__name__, **vars(encoder)} for encoder in encoders])


def encoders_from_text(text: str) -> list[Encoder]:
    """The encoders, from what `encoders_as_text` gave."""
    encoders: list[Encoder] = []
    for fields in json.loads(text):
        kind = _ENCODERS[fields.pop("type")]
        encoders.append(kind(**{n: tuple(v) if isinstance(v, list) else v for n, v in fields.items()}))
    return encoders


def date_features(parts: Array, first: float, names: tuple[str, ...]) -> Array:
    """Features [t, k] of the parts [t, 4] of points in time."""
    columns: list[Array] = []
    for name in names:
        values = parts[:, PARTS.index(name)]
        columns += [values - first] if name == PARTS[0] else circle(values)
    return np.column_stack(columns)
