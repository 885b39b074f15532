"""How a text file is written: separator, encoding, decimal sign and words for missing cells."""

from __future__ import annotations

import codecs
import csv
from dataclasses import dataclass, replace
from itertools import islice

from cavity.data.cells import COMMA, POINT
from cavity.data.locations import File, usual_delimiter
from cavity.errors import SourceError

HEAD_BYTES = 1_000_000
"""Bytes of the beginning of a file in which the dialect is looked for."""
MISSING = ("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None", "#N/A", "n/a", "-nan", "<NA>", "?")
"""Cells that stand for a missing value, unless others are named."""
MISSING_WORDS = (*MISSING, "-")
"""Cells that stand for a missing value in columns of words; a dash may well be the name of a class."""
_SEPARATORS = ",\t;| "
_LINES = 50
"""Lines in which the separator is looked for."""
_MARKS = {
    codecs.BOM_UTF8: "utf8",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""Encodings by the marks at the beginning of a file; the longer marks come first."""


@dataclass(frozen=True)
class Dialect:
    """How a text file is written; None is found in its beginning, or in each column.

    >>> from pathlib import Path
    >>> Dialect().completed("größe;preis\\n1,5;3\\n".encode("cp1252"), Path("t.csv"))
    Dialect(sep=';', decimal=None, encoding='cp1252', na_values=None)
    """

    sep: str | None = None
    """The character between the cells of a line."""
    decimal: str | None = None
    """The sign before the decimals, a point or a comma; None is found for each column."""
    encoding: str | None = None
    """Name of the encoding, as Python knows it."""
    na_values: tuple[str, ...] | None = None
    """Cells that stand for a missing value; None is `MISSING`."""

    def __post_init__(self) -> None:
        if self.sep is not None and (len(self.sep) != 1 or self.sep in '"\r\n' or ord(self.sep) > 127):
            raise SourceError(f"sep={self.sep!r}: a separator is one character, such as ';' or '\\t'")
        if self.decimal not in (None, POINT, COMMA):
            raise SourceError(f"decimal={self.decimal!r}: the decimal sign is '.' or ','")
        if self.decimal is not None and self.decimal == self.sep:
            raise SourceError(f"sep and decimal are both {self.sep!r}; cells are separated by another")
        if self.encoding is not None:
            try:
                codecs.lookup(self.encoding)
            except LookupError as error:
                raise SourceError(
                    f"encoding={self.encoding!r} is unknown; there are 'utf-8', 'utf-16', 'cp1252', …"
                ) from error

    @property
    def missing(self) -> tuple[str, ...]:
        """Cells that stand for a missing value; an empty one always does."""
        return MISSING if self.na_values is None else ("", *self.na_values)

    def refuse(self, what: str) -> None:
        """Raise if a part of the dialect was given for data that have none, such as a data frame."""
        for name, value in vars(self).items():
            if value is not None:
                raise SourceError(f"{name}={value!r} is for text files, not for {what}; leave it out")

    def completed(self, head: bytes, file: File) -> Dialect:
        """The dialect, with separator and encoding found in the beginning of a file."""
        encoding = self.encoding or _encoding(head, file)
        encoding = "utf8" if codecs.lookup(encoding).name == "utf-8" else encoding  # as Arrow spells it
        text = codecs.getincrementaldecoder(encoding)(errors="replace").decode(head)
        usual = usual_delimiter(file.name)
        return replace(self, encoding=encoding, sep=self.sep or _separator(text, usual or COMMA))


def _encoding(head: bytes, file: File) -> str:
    """The encoding of the beginning of a file: by its mark, or else UTF-8 or, if it is not, cp1252."""
    for mark, name in _MARKS.items():
        if head.startswith(mark):
            return name
    if b"\0" in head.split(b"\n", 1)[0]:
        return _wide_encoding(head, file)
    for name in ("utf8", "cp1252"):
        try:
            codecs.getincrementaldecoder(name)().decode(head)
        except UnicodeDecodeError:
            continue
        return name
    return "latin-1"


def _wide_encoding(head: bytes, file: File) -> str:
    """UTF-16, if every other byte of the first characters is NUL."""
    start = head[:64]
    for name, place in (("utf-16-le", 1), ("utf-16-be", 0)):
        if not any(start[place::2]) and all(start[1 - place :: 2]):
            return name
    raise SourceError(
        f"{file}: is compressed or no text, as NULs in its first line show; unpack it, or name its "
        "encoding"
    )


def _separator(text: str, usual: str) -> str:
    """The character that cuts the first lines into the most cells, as many in each.

    >>> _separator("a;b\\n1,5;2,5\\n", ","), _separator('a,"b;c"\\n1,2\\n', ",")
    (';', ',')
    """
    lines = text.splitlines(keepends=True)[:_LINES]
    best: str | None = None
    most = 1
    candidates = dict.fromkeys([usual, *_SEPARATORS])
    for mark in candidates:
        widths = _widths(lines, mark)
        if len(set(widths)) == 1 and widths[0] > most and (mark != " " or best is None):
            best, most = mark, widths[0]
    if best is not None:
        return best
    names = lines[0] if lines else ""  # lines of different lengths: an error will name them
    if usual in names:
        return usual
    return max(_SEPARATORS[:-1], key=lambda mark: (names.count(mark), mark == usual))


def _widths(lines: list[str], mark: str) -> list[int]:
    """The numbers of cells of lines that are not empty; the last may be cut off and does not count."""
    try:
        rows = list(islice(csv.reader(lines, delimiter=mark), _LINES))
    except csv.Error:
        return []
    widths = [len(row) for row in rows if row]
    return widths[:-1] if len(widths) > 2 else widths
