"""Cells of text as numbers, truth values and dates; what a cell cannot be read as is null.

Every function takes an Arrow array of strings. Cells that Arrow itself can read are read at once, and of
the others each different one is looked at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from cavity.data.parts import import_arrow
from cavity.typing import AnyArray, IntArray

if TYPE_CHECKING:
    import pyarrow as pa

POINT, COMMA = ".", ","
"""The signs before the decimals of a number."""
_PLACEHOLDERS = [
    "", "na", "n/a", "#n/a", "<na>", "nan", "-nan", "nat", "null", "(null)", "none", "nil", "missing",
    "unknown", "unk", "n.a.", "not available", "#div/0!", "#value!", "#ref!", "#name?", "#num!",
]  # fmt: skip
"""What stands, in small letters, in a column of numbers or dates for a value that is missing."""
_FIRST_LOOK = 16
"""Cells that are tried before all."""
_TRUE, _FALSE = ["true", "1"], ["false", "0"]


def is_text(kind: pa.DataType) -> bool:
    """Whether an Arrow type is that of strings, which may hold numbers or dates.

    >>> import pyarrow
    >>> is_text(pyarrow.large_string()), is_text(pyarrow.int8())
    (True, False)
    """
    types = import_arrow()[0].types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def trimmed(words: pa.Array) -> pa.Array:
    """Words without blanks at their ends."""
    return import_arrow()[1].utf8_trim_whitespace(words)


def are_placeholders(words: pa.Array) -> pa.Array:
    """Which words stand for a missing value: names of it, or signs without letters and digits.

    >>> import pyarrow
    >>> are_placeholders(pyarrow.array(["-", "n/a", "?", "None", "x", "7"])).to_pylist()
    [True, True, True, True, False, False]
    """
    pa, pc = import_arrow()
    small = pc.utf8_lower(trimmed(words))
    named = pc.is_in(small, value_set=pa.array(_PLACEHOLDERS))
    return pc.or_(named, pc.match_substring_regex(small, r"^[-–—.?*_/\\#~]+$"))


def numbers(cells: pa.Array, decimal: str = POINT) -> pa.Array:
    """Numbers in any usual writing: separated thousands, percent and currency signs, blanks.

    decimal: the sign before the decimals. Signs of percent and currency are dropped.

    >>> import pyarrow
    >>> numbers(pyarrow.array(["1.5", " -2 ", "1,234.5", "$3", "12 %", "x"])).to_pylist()
    [1.5, -2.0, 1234.5, 3.0, 12.0, None]
    >>> numbers(pyarrow.array(["1.234,5 €", "0,25"]), decimal=",").to_pylist()
    [1234.5, 0.25]
    """
    pa, _ = import_arrow()
    quick = cast(cells, pa.float64() if decimal == POINT else pa.int64())
    if quick is not None:
        return quick.cast(pa.float64())
    return each_word(cells, lambda words: _numbers(words, decimal))


_INFINITE = "(?i:inf(?:inity)?)"
_PLAIN = {
    POINT: rf"^[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?$|^[+-]?{_INFINITE}$",
    COMMA: rf"^[+-]?(?:\d+(?:,\d*)?|,\d+)(?:[eE][+-]?\d+)?$|^[+-]?{_INFINITE}$",
}
"""Numbers without decoration."""
_BLANK = "[ \u00a0\u202f]"
_UNIT = rf"(?:{_BLANK}?(?:[A-Z]{{0,2}}\p{{Sc}}|%){_BLANK}?)"
_DECORATED = {
    decimal: rf"^(?:[+\-−]?{_UNIT}?|{_UNIT}[\-−])"
    rf"(?:(?:\d{{1,3}}(?:(?:[{other}]\d{{3}})+|(?:['’]\d{{3}})+|(?:{_BLANK}\d{{3}})+)|\d+)(?:[{decimal}]\d*)?"
    rf"|[{decimal}]\d+)(?:[eE][+-]?\d+)?{_UNIT}?$"
    for decimal, other in ((POINT, COMMA), (COMMA, POINT))
}
"""Numbers with separated thousands, or with a sign of percent or currency."""
_DECORATION = r"[A-Z]{0,2}\p{Sc}|[%'’+ \x{a0}\x{202f}]"
"""What can be left out of such numbers, besides the separator of thousands."""


def are_numbers(words: pa.Array, decimal: str) -> pa.Array:
    """Which words without blanks at their ends are numbers."""
    _, pc = import_arrow()
    plain = are_plain(words, decimal)
    return pc.or_(plain, pc.match_substring_regex(words, _DECORATED[decimal]))


def are_plain(words: pa.Array, decimal: str = POINT) -> pa.Array:
    """Which words are numbers without separated thousands, blanks, and signs of percent or currency."""
    return import_arrow()[1].match_substring_regex(words, _PLAIN[decimal])


def _numbers(words: pa.Array, decimal: str) -> pa.Array:
    pa, pc = import_arrow()
    words = trimmed(words)
    nothing = pa.scalar(None, pa.string())
    plain = are_plain(words, decimal)
    digits = pc.if_else(plain, words, nothing)
    if decimal == COMMA:
        digits = pc.replace_substring(digits, COMMA, POINT)
    found = digits.cast(pa.float64())
    if found.null_count == words.null_count:
        return found
    decorated = pc.match_substring_regex(pc.if_else(plain, nothing, words), _DECORATED[decimal])
    digits = pc.if_else(decorated, words, nothing)
    digits = pc.replace_substring_regex(digits, _DECORATION, "")
    digits = pc.replace_substring(digits, COMMA if decimal == POINT else POINT, "")
    digits = pc.replace_substring(pc.replace_substring(digits, COMMA, POINT), "−", "-")
    return pc.coalesce(found, digits.cast(pa.float64()))


def truths(cells: pa.Array) -> pa.Array:
    """Truth values: true or 1, false or 0, in any letters.

    >>> import pyarrow
    >>> truths(pyarrow.array(["True", "0", "maybe"])).to_pylist()
    [True, False, None]
    """
    return each_word(cells, truths_of)


def truths_of(words: pa.Array) -> pa.Array:
    """Truth values of different words; see `truths`."""
    pa, pc = import_arrow()
    place = pc.index_in(pc.utf8_lower(trimmed(words)), value_set=pa.array([*_TRUE, *_FALSE]))
    return pc.less(place, len(_TRUE))


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAY, _MONTH, _NAMED = "0?[1-9]|[12]\\d|3[01]", "0?[1-9]|1[0-2]", "|".join(_MONTHS)
_TIME = (
    r"(?:[T ,]+(?P<H>\d{1,2})(?::(?P<M>\d{2}))?(?::(?P<S>\d{2})(?:[.,](?P<f>\d{1,9}))?)?"
    r" ?(?P<half>[AaPp]\.?[Mm]\.?|)"
    r" ?(?:Z|UTC|GMT|(?P<east>[+-])(?P<zh>\d{2}):?(?P<zm>\d{2})?)?)?$"
)
_DATES = (
    rf"^(?P<y>\d{{4}})[-/.](?P<m>{_MONTH})[-/.](?P<d>{_DAY})" + _TIME,
    rf"^(?P<d>{_DAY})[- .]+(?P<month>(?i:{_NAMED})[a-z]*)[- .,]+(?P<y>\d{{4}})" + _TIME,
    rf"^(?P<month>(?i:{_NAMED})[a-z]*)[ .]+(?P<d>{_DAY}),? +(?P<y>\d{{4}})" + _TIME,
)
"""Dates that can be read in one way only."""
_ORDERED = {
    True: rf"^(?P<d>{_DAY})[-/.](?P<m>{_MONTH})[-/.](?P<y>\d{{4}})" + _TIME,
    False: rf"^(?P<m>{_MONTH})[-/.](?P<d>{_DAY})[-/.](?P<y>\d{{4}})" + _TIME,
}
"""Dates with the day first, or with the month first."""
_SECOND = 1_000_000


def dates(cells: pa.Array, day_first: bool = True) -> pa.Array:
    """Points in time in any usual writing, in microseconds; times with a zone are those of UTC.

    day_first: whether 01/02/2024 is in February.

    >>> import pyarrow
    >>> words = pyarrow.array(["2024-01-31", "31.01.2024 13:30", "31 Jan 2024", "31/02/2024"])
    >>> [str(when) for when in dates(words)]
    ['2024-01-31 00:00:00', '2024-01-31 13:30:00', '2024-01-31 00:00:00', 'None']
    """
    pa, _ = import_arrow()
    quick = cast(cells, pa.timestamp("us"))
    return each_word(cells, lambda words: _dates(words, day_first)) if quick is None else quick


def are_dates(words: pa.Array, day_first: bool) -> pa.Array:
    """Which words without blanks at their ends are written like dates."""
    pattern = "|".join((*_DATES, _ORDERED[day_first]))
    return import_arrow()[1].match_substring_regex(words, re.sub(r"\?P<\w+>", "?:", pattern))


def are_ordered(words: pa.Array) -> pa.Array:
    """Which words without blanks at their ends are dates with the day or the month first."""
    _, pc = import_arrow()
    return pc.or_(*(pc.match_substring_regex(words, pattern) for pattern in _ORDERED.values()))


def _dates(words: pa.Array, day_first: bool) -> pa.Array:
    pa, _ = import_arrow()
    words = trimmed(words)
    found = np.full(len(words), np.iinfo(np.int64).min)
    for pattern in (*_DATES, _ORDERED[day_first]):
        _find_dates(words, pattern, found)
    missing = found == np.iinfo(np.int64).min
    return pa.array(found, pa.int64(), mask=missing).cast(pa.timestamp("us"))


def _find_dates(words: pa.Array, pattern: str, found: IntArray) -> None:
    """Write the microseconds of the words [k] that match the pattern and are dates into found [k]."""
    pa, pc = import_arrow()
    matches = pc.match_substring_regex(words, pattern).fill_null(False)  # quicker than the parts
    places = np.flatnonzero(matches.to_numpy(zero_copy_only=False))
    if not len(places):
        return
    parts = pc.extract_regex(words.filter(matches), pattern)

    def number(name: str) -> IntArray:
        digits = pc.struct_field(parts, name)
        digits = pc.if_else(pc.equal(digits, ""), "0", digits)
        return np.asarray(digits.cast(pa.int64()).to_numpy(zero_copy_only=False))

    year, day = number("y"), number("d")
    if "<month>" in pattern:
        short = pc.utf8_slice_codeunits(pc.utf8_lower(pc.struct_field(parts, "month")), 0, 3)
        place = pc.index_in(short, value_set=pa.array(_MONTHS))
        month = place.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64) + 1
    else:
        month = number("m")
    hour, minute, second = number("H"), number("M"), number("S")
    half = pc.utf8_slice_codeunits(pc.utf8_lower(pc.struct_field(parts, "half")), 0, 1)
    halves = np.asarray(half.to_numpy(zero_copy_only=False), dtype=str)
    of_clock = (halves == "") | ((hour >= 1) & (hour <= 12))
    hour = np.where(halves == "", hour, hour % 12 + 12 * (halves == "p"))
    fraction = pc.utf8_rpad(pc.utf8_slice_codeunits(pc.struct_field(parts, "f"), 0, 6), 6, "0")
    part = fraction.cast(pa.int64()).to_numpy(zero_copy_only=False)
    east = np.asarray(pc.struct_field(parts, "east").to_numpy(zero_copy_only=False), dtype=str)
    zone = np.where(east == "-", -1, 1) * (60 * number("zh") + number("zm"))

    first = ((year - 1970) * 12 + month - 1).astype("datetime64[M]")
    length = ((first + 1).astype("datetime64[D]") - first.astype("datetime64[D]")).astype(np.int64)
    is_date = (year > 0) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= length)
    is_date &= of_clock & (hour < 24) & (minute < 60) & (second < 60) & (number("zm") < 60)
    days = first.astype("datetime64[D]").astype(np.int64) + day - 1
    seconds = days * 86_400 + hour * 3_600 + (minute - zone) * 60 + second
    found[places[is_date]] = (seconds * _SECOND + part)[is_date]


def each_word(cells: pa.Array, read: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """The cells as `read` reads them; it sees each different cell once."""
    encoded = cells.dictionary_encode()
    return read(encoded.dictionary).take(encoded.indices)


def words_and_counts(cells: pa.Array) -> tuple[pa.Array, IntArray]:
    """The different cells that are not null, and how often each occurs."""
    _, pc = import_arrow()
    found = pc.value_counts(cells.drop_null())
    counts: AnyArray = found.field("counts").to_numpy()
    return found.field("values"), counts


def cast(cells: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """The cells as Arrow reads them, or None if it cannot read one of them."""
    arrow, pc = import_arrow()
    try:
        for n in (_FIRST_LOOK, len(cells)):  # Arrow words an error for each cell that it cannot read
            found = cells.slice(0, n).cast(kind)
    except arrow.ArrowException:
        return None
    # As whole numbers, and only as these, Arrow also reads 0x1f, which is rather a name.
    is_whole = arrow.types.is_integer(kind)
    return None if is_whole and pc.any(pc.match_substring_regex(cells, "[xX]")).as_py() else found
