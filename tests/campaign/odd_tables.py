"""Odd tables: changes of an honest data frame, of the text of a CSV file, and of the bytes of files."""

import bz2
import datetime
import decimal
import gzip
import io
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa

TARGET, WEIGHT = "late", "copies"
ODD_WORDS = [
    "", " ", "\t", "a\nb", "a\r\nb", '"', "'", ",", ";", "|", "\\", "\x00", "a\x00", "\x1b[31m", "\x07",
    "\x9b2J", "\u202e", "\ufeff", "\u2028", "中文", "é", "e\u0301", "👩\u200d🔬", "NaN", "null", "None",
    "NA", "-", "=1+1", "0x10", "1e400", "-0", "1_000", "(target)", "(weight)", "(place)", "(class)",
    "(missing)", "[red]", "{x}", "%s", "$a$", "<b>", "x" * 5_000,
]  # fmt: skip
"""Words that break programs."""
EXTREMES = [
    0.0, -0.0, 1.0, 5e-324, -5e-324, 1e-310, 1e-300, 1e-45, 1e38, 4e38, -4e38, 1e155, 1e300, 1.7e308,
    -1.7e308, float("inf"), float("-inf"), float("nan"), 2.0**53, 2.0**63, 0.1,
]  # fmt: skip
"""Numbers that break programs."""


def honest(rng, n=None):
    """A table of flights with columns of every common kind."""
    n = rng.choice([40, 80, 200]) if n is None else n
    draw = np.random.default_rng(rng.randrange(2**32))
    hour = draw.integers(0, 24, n)
    return pd.DataFrame(
        {
            "hour": hour,
            "distance": draw.normal(1_000.0, 300.0, n),
            "carrier": draw.choice(["AA", "UA", "DL"], n),
            "date": pd.Timestamp("2013-01-01") + pd.to_timedelta(draw.integers(0, 365, n), "D"),
            "weekend": draw.random(n) < 0.3,
            TARGET: np.where(hour + draw.normal(0.0, 4.0, n) > 12, "yes", "no"),
        }
    )


def column(values, name="odd"):
    """A change that sets a column to `values(rng, n)`: a list, an array, a series or an Arrow array."""

    def change(rng, frame):
        found = values(rng, len(frame))
        if isinstance(found, (pa.Array, pa.ChunkedArray)):
            table = pa.Table.from_pandas(frame.drop(columns=name, errors="ignore"), preserve_index=False)
            return table.append_column(name, found)
        if isinstance(found, list):
            found = pd.Series(found, dtype=object)
        return frame.assign(**{name: found})

    return change


def words(rng, n):
    """Odd words, some often and some missing."""
    some = rng.sample(ODD_WORDS, rng.choice([2, 5, 20]))
    return [rng.choice(some) if rng.random() < 0.9 else None for _ in range(n)]


def extremes(rng, n):
    """Extreme numbers among usual ones."""
    some, share = rng.sample(EXTREMES, rng.choice([1, 3, 8])), rng.choice([0.02, 0.5, 1.0])
    return [rng.choice(some) if rng.random() < share else rng.gauss(0.0, 1.0) for _ in range(n)]


def singles(rng, n):
    """The same in single precision."""
    with np.errstate(over="ignore"):
        return np.array(extremes(rng, n)).astype(np.float32)


def one_of(*choices):
    """A column whose every cell is one of the choices."""
    return column(lambda rng, n: [rng.choice(choices) for _ in range(n)])


def renamed(rng, frame):
    """Odd names of one or all columns."""
    names = list(frame.columns[:-1])
    some = rng.sample(names, rng.choice([1, len(names)]))
    return frame.rename(columns=dict(zip(some, rng.sample(ODD_WORDS, len(some)), strict=True)))


def not_text(rng, frame):
    """A name that is not a string."""
    odd = rng.choice([0, 1.5, None, ("a", "b"), pd.Timestamp("2013"), True, b"x", float("nan")])
    return frame.set_axis([odd if name == "hour" else name for name in frame.columns], axis=1)


def two_levels(rng, frame):
    """Names of two levels."""
    return frame.set_axis(pd.MultiIndex.from_product([["top"], frame.columns]), axis=1)


def twice(rng, frame):
    """Two columns of the same name."""
    return pd.concat([frame, frame[[rng.choice(list(frame.columns))]]], axis=1)


def text_numbers(rng, n):
    """Numbers as text, sometimes with a cell that is none."""
    forms = rng.choice([["{}"], [" {} "], ["{}", "+{}", "{}e0"], ["{} km"], ["{},5"], ["1,{:03}"]])
    cells = [rng.choice(forms).format(i % 50) for i in range(n)]
    if rng.random() < 0.5:
        cells[rng.randrange(n)] = rng.choice(["x", "", "?", "1.2.3", "١٢", "∞", "1e999"])
    return cells


def dates(rng, n):
    """Dates of odd kinds, far away, with time zones or gaps."""
    days = [
        datetime.datetime(2013, 1, 1) + datetime.timedelta(days=rng.randrange(400)) for _ in range(n)
    ]
    kind = rng.randrange(9)
    if kind == 0:
        return [day.date() for day in days]
    if kind == 1:
        return pd.Series(days).dt.tz_localize(rng.choice(["UTC", "Asia/Kathmandu", "America/New_York"]))
    if kind == 2:
        zones = [datetime.timezone.utc, datetime.timezone(datetime.timedelta(hours=-5, minutes=-30))]
        return [day.replace(tzinfo=rng.choice(zones)) for day in days]
    if kind == 3:
        return [datetime.datetime(rng.choice([1, 1582, 1970, 2262, 9999]), 12, 31) for _ in days]
    if kind == 4:
        unit = rng.choice(["s", "ms", "us", "ns"])
        ends = [-(2**62), -1, 0, 1, 2**31, 2**62, None] if rng.random() < 0.5 else [0, 1, 10**6]
        return pa.array([rng.choice(ends) for _ in days], pa.timestamp(unit))
    if kind == 5:
        forms = [
            "%Y-%m-%d",
            "%d/%m/%Y",
            "%Y-%m-%dT%H:%M:%SZ",
            "%Y%m%d",
            "%B %d, %Y",
            "%Y-%m-%d %H:%M:%S+05:30",
        ]
        form = rng.sample(forms, rng.choice([1, 2]))
        return [day.strftime(rng.choice(form)) for day in days]
    if kind == 6:
        return [day.time() for day in days]
    if kind == 7:
        return pd.Series(days).dt.to_period(rng.choice(["D", "M", "Y"]))
    return [day if rng.random() < 0.5 else rng.choice([None, pd.NaT, "soon", 3]) for day in days]


def arrow(rng, n):
    """An Arrow array of a type that data frames seldom have."""
    number = [rng.choice([None, 0, 1, 2, 3]) for _ in range(n)]
    word = [None if i is None else str(i) for i in number]
    kind, cells = rng.choice(
        [
            (pa.null(), [None] * n),
            (pa.float16(), [None if i is None else np.float16(i) for i in number]),
            (pa.decimal128(38, 30), [None if i is None else decimal.Decimal(i) for i in number]),
            (pa.decimal256(76, 3), [None if i is None else decimal.Decimal(i) * 10**60 for i in number]),
            (pa.large_string(), word),
            (pa.string_view(), word),
            (pa.binary(), [None if w is None else w.encode() for w in word]),
            (pa.duration("ns"), number),
            (pa.time32("s"), number),
            (pa.date64(), [None if i is None else datetime.date(2013, 1, 1 + i) for i in number]),
            (pa.uint64(), [None if i is None else 2**64 - 1 - i for i in number]),
            (pa.list_(pa.int64()), [None if i is None else [i] * i for i in number]),
            (pa.struct([("a", pa.int64())]), [None if i is None else {"a": i} for i in number]),
            (pa.map_(pa.string(), pa.int64()), [None if i is None else [("a", i)] for i in number]),
            (pa.dictionary(pa.int8(), pa.string()), word),
            (pa.dictionary(pa.int32(), pa.int64()), number),
            (pa.dictionary(pa.int8(), pa.float64()), number),
        ]
    )
    if rng.random() < 0.1:
        return pa.chunked_array([pa.array(cells[: n // 2], kind), pa.array(cells[n // 2 :], kind)])
    return pa.array(cells, kind)


def objects(rng, n):
    """Values that are no plain cells."""
    odd = [
        [1, 2], [], {"a": 1}, {}, (1,), {1}, b"x", 1 + 2j, object, range(3), np.arange(2), 10**30,
        decimal.Decimal("1.5"), decimal.Decimal("NaN"), datetime.timedelta(1), np.float32(1.5),
        pd.Interval(0, 1), -(2**70),
    ]  # fmt: skip
    some = [rng.choice(odd)] if rng.random() < 0.7 else rng.sample(odd, 2)
    return [rng.choice(some) if rng.random() < 0.8 else None for _ in range(n)]


def pandas_kinds(rng, n):
    """A column of one of pandas' own kinds."""
    number = pd.Series([rng.choice([0, 1, 2]) for _ in range(n)])
    kind = rng.choice(
        ["Int8", "Float32", "boolean", "string", "category", "Sparse[int]", "m8[ns]", "f2", "u8"]
    )
    if kind == "boolean":
        return (number > 0).astype("boolean").where(number < 2)
    if kind == "string":
        return number.astype(str).astype("string").where(number < 2)
    if kind == "category":
        levels = rng.choice([[0, 1, 2, 3], [2, 1], [0.5], []])
        return pd.Series(pd.Categorical(number, categories=levels))
    return number.astype(kind)


def labels(values):
    """A change of the target."""
    return column(values, TARGET)


def weights(*choices):
    """A table with a column of weights."""
    return column(lambda rng, n: [rng.choice(choices) for _ in range(n)], WEIGHT)


TABLES = {
    "honest": lambda rng, frame: frame,
    "rows: none": lambda rng, frame: frame.iloc[:0],
    "rows: one": lambda rng, frame: frame.iloc[:1],
    "rows: a few": lambda rng, frame: frame.iloc[: rng.randint(2, 6)],
    "rows: all the same": lambda rng, frame: frame.iloc[[0] * 20 + [1] * 20],
    "rows: a strange index": lambda rng, frame: frame.set_axis([0] * len(frame)),
    "columns: the target alone": lambda rng, frame: frame[[TARGET]],
    "columns: one more": lambda rng, frame: frame[[rng.choice(list(frame.columns[:-1])), TARGET]],
    "columns: none": lambda rng, frame: frame[[]],
    "columns: no target": lambda rng, frame: frame.drop(columns=TARGET),
    "columns: many": lambda rng, frame: pd.concat(
        [frame, pd.DataFrame(np.eye(len(frame), 300)).add_prefix("x")], axis=1
    ),
    "names: odd": renamed,
    "names: twice": twice,
    "names: not text": not_text,
    "names: two levels": two_levels,
    "names: very long": lambda rng, frame: frame.rename(columns={"hour": "x" * 200_000}),
    "cells: nothing in a column": column(lambda rng, n: [rng.choice([None, float("nan")])] * n),
    "cells: nothing but the target": lambda rng, frame: frame.assign(
        **dict.fromkeys(frame.columns[:-1])
    ),
    "cells: one value": column(lambda rng, n: [rng.choice(["a", 1, 1.5, True, 1e300])] * n),
    "cells: one value with gaps": one_of("a", None),
    "cells: mixed": one_of(1, "a", 2.5, None, True),
    "cells: numbers and dates": one_of(1, datetime.datetime(2013, 1, 1), None),
    "cells: odd words": column(words),
    "cells: very long": column(lambda rng, n: ["ab"[i % 2] * 30_000 for i in range(n)]),
    "cells: extreme numbers": column(extremes),
    "cells: extreme single numbers": column(singles),
    "cells: large whole numbers": one_of(2**62, 2**62 + 1, -(2**63)),
    "cells: whole numbers beyond 64 bits": one_of(2**64, 1),
    "cells: numbers as text": column(text_numbers),
    "cells: truth values with gaps": one_of(True, False, None),
    "cells: truth values as text": one_of("true", "False", "TRUE", None, "1"),
    "cells: dates": column(dates),
    "cells: many categories": column(lambda rng, n: [f"c{rng.randrange(n)}" for _ in range(n)]),
    "cells: no two the same": column(lambda rng, n: [f"id {i}" for i in range(n)]),
    "cells: no plain values": column(objects),
    "cells: a type of Arrow": column(arrow),
    "cells: a type of pandas": column(pandas_kinds),
    "target: one class": labels(lambda rng, n: [rng.choice(["a", 1, True, ""])] * n),
    "target: gaps": labels(lambda rng, n: [rng.choice(["no", "yes", None]) for _ in range(n)]),
    "target: nothing": labels(lambda rng, n: [None] * n),
    "target: a single row of a class": labels(lambda rng, n: ["a"] * (n - 1) + ["b"]),
    "target: odd words": labels(words),
    "target: words and numbers": labels(lambda rng, n: [rng.choice(["1", 1, "a"]) for _ in range(n)]),
    "target: many classes": labels(lambda rng, n: [f"k{rng.randrange(n)}" for _ in range(n)]),
    "target: fractions": labels(lambda rng, n: [rng.random() for _ in range(n)]),
    "target: extreme numbers": labels(extremes),
    "target: truth values with gaps": labels(
        lambda rng, n: [rng.choice([True, None, False]) for _ in range(n)]
    ),
    "target: dates": labels(dates),
    "target: a type of Arrow": labels(arrow),
    "target: a type of pandas": labels(pandas_kinds),
    "target: no plain values": labels(objects),
    "weights: usual": weights(0, 1, 2.5),
    "weights: text": weights("1", "x", "0.5"),
    "weights: numbers as text": weights("1", "0", "2.5"),
    "weights: gaps": weights(1.0, None),
    "weights: negative": weights(1, -1),
    "weights: zero": weights(0),
    "weights: extreme": weights(1e-320, 1e308, 1e-100, 1.0),
    "weights: infinite": weights(1.0, float("inf")),
    "weights: truth values": weights(True, False),
    "weights: dates": column(dates, WEIGHT),
    "weights: a type of Arrow": column(arrow, WEIGHT),
}
"""Changes of the training table."""


def first_line(change):
    """A change of the line of names."""

    def changed(rng, content):
        head, _, rest = content.partition(b"\n")
        return change(head) + b"\n" + rest

    return changed


def a_line(change):
    """A change of one of the lines below it."""

    def changed(rng, content):
        lines = content.split(b"\n")
        at = rng.randrange(1, len(lines) - 1)
        lines[at] = change(lines[at])
        return b"\n".join(lines)

    return changed


def replaced(old, new):
    """A change that replaces bytes everywhere."""
    return lambda rng, content: content.replace(old, new)


def inserted(*pieces):
    """A change that inserts some bytes somewhere."""

    def changed(rng, content):
        at = rng.randrange(len(content))
        return content[:at] + rng.choice(pieces) + content[at:]

    return changed


TEXTS = {
    "text: separators at the ends": lambda rng, content: b"\n".join(
        line + b"," for line in content.split(b"\n")
    ),
    "text: separators at the ends of rows": a_line(lambda line: line + b","),
    "text: a short row": a_line(lambda line: line.rpartition(b",")[0]),
    "text: an empty row": a_line(lambda line: b""),
    "text: a row of separators": a_line(lambda line: b"," * line.count(b",")),
    "text: the names again": lambda rng, content: content + content,
    "text: names alone": lambda rng, content: content.partition(b"\n")[0] + rng.choice([b"", b"\n"]),
    "text: no names": lambda rng, content: content.partition(b"\n")[2],
    "text: empty names": first_line(lambda head: b"," * head.count(b",")),
    "text: one name empty": first_line(lambda head: head.replace(b"hour", b"")),
    "text: quoted names": first_line(lambda head: b'"' + head.replace(b",", b'","') + b'"'),
    "text: padded": replaced(b",", b" , "),
    "text: a mark of the byte order": lambda rng, content: b"\xef\xbb\xbf" + content,
    "text: UTF-16": lambda rng, content: content.decode().encode(rng.choice(["utf-16", "utf-16-le"])),
    "text: Latin letters": lambda rng, content: content.replace(b"AA", "é".encode("latin-1")),
    "text: Latin names": first_line(lambda head: head.replace(b"hour", b"h\xe9ure")),
    "text: other ends of lines": lambda rng, content: content.replace(
        b"\n", rng.choice([b"\r\n", b"\r"])
    ),
    "text: NULs": inserted(b"\x00", b"\x00" * 100),
    "text: quotes": inserted(b'"', b'""', b"'", b'"\n"', b'\\"'),
    "text: line breaks in cells": replaced(b"AA", b'"A\nA,"'),
    "text: another separator": lambda rng, content: content.replace(
        b",", rng.choice([b";", b"\t", b"|", b" "])
    ),
    "text: two separators": a_line(lambda line: line.replace(b",", b";")),
    "text: comments": lambda rng, content: b"# a comment\n" + content,
    "text: blank lines first": lambda rng, content: b"\n\n" + content,
    "text: blank": lambda rng, content: rng.choice(
        [b"", b"\n", b" ", b"\n\n\n", b",", b",\n,\n", b"\xef\xbb\xbf"]
    ),
    "text: words that are missing": replaced(b"AA", b"null"),
    "text: numbers with commas": replaced(b"1", b'"1,0"'),
}
"""Changes of the bytes of a CSV file."""


def zipped(rng, content):
    """The file in a ZIP archive."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("t.csv", content)
    return packed.getvalue()


FILES = {
    "file: cut off": lambda rng, content: content[: rng.randrange(len(content))],
    "file: the beginning is lost": lambda rng, content: content[rng.randrange(1, len(content)) :],
    "file: compressed, with the same name": lambda rng, content: rng.choice(
        [gzip.compress, bz2.compress]
    )(content),
    "file: in an archive": zipped,
    "file: noise": lambda rng, content: rng.randbytes(rng.choice([1, 100, 10_000])),
    "file: zeros": lambda rng, content: bytes(rng.choice([1, 1_000])),
}
"""Changes of the bytes of a file of any format."""


def without(rng, frame):
    """A table that lacks a column."""
    return frame.drop(columns=rng.choice(list(frame.columns)))


def as_text(name):
    """A change that makes words of a column."""
    return lambda rng, frame: frame.assign(**{name: frame[name].astype(str)})


def as_numbers(name):
    """A change that makes numbers of a column."""
    return lambda rng, frame: frame.assign(**{name: np.arange(len(frame)) * rng.choice([1, 0.5, 1e300])})


NEW = {
    "new: a column is missing": without,
    "new: a column more": lambda rng, frame: frame.assign(more=1),
    "new: another order": lambda rng, frame: frame[rng.sample(list(frame.columns), len(frame.columns))],
    "new: one row": lambda rng, frame: frame.iloc[:1],
    "new: no rows": lambda rng, frame: frame.iloc[:0],
    "new: unseen words": column(words, "carrier"),
    "new: nothing in a column": lambda rng, frame: frame.assign(
        **{rng.choice(list(frame.columns)): None}
    ),
    "new: extreme numbers": column(extremes, "distance"),
    "new: whole numbers as text": as_text("hour"),
    "new: numbers as text": column(text_numbers, "distance"),
    "new: dates as text": as_text("date"),
    "new: odd dates": column(dates, "date"),
    "new: truth values as text": as_text("weekend"),
    "new: numbers for words": as_numbers("carrier"),
    "new: numbers for dates": as_numbers("date"),
    "new: numbers for truth values": as_numbers("weekend"),
    "new: words for numbers": column(words, "hour"),
    "new: a type of Arrow for numbers": column(arrow, "hour"),
    "new: a type of Arrow for words": column(arrow, "carrier"),
    "new: a type of Arrow for truth values": column(arrow, "weekend"),
    "new: a type of Arrow for dates": column(arrow, "date"),
    "new: a type of pandas for words": column(pandas_kinds, "carrier"),
    "new: no plain values": column(objects, "carrier"),
    "new: unseen labels": column(words, TARGET),
}
"""Changes of the table that is predicted."""
