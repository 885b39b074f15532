"""What a column is: numeric, boolean, categorical or a date; and how other types are read as that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cavity.errors import SourceError
from cavity.tables.arrow import import_arrow
from cavity.tables.names import shown
from cavity.tables.opening import Table

NUMERIC, BOOLEAN, CATEGORICAL, DATE = "numeric", "boolean", "categorical", "date"


def kind_of_type(kind: Any) -> str | None:
    """The kind of an Arrow type, or None if such a column cannot be used.

    >>> import pyarrow
    >>> kind_of_type(pyarrow.int16()), kind_of_type(pyarrow.date32()), kind_of_type(pyarrow.binary())
    ('numeric', 'date', None)
    """
    pa, _ = import_arrow()
    is_a = pa.types
    if is_a.is_dictionary(kind):
        return CATEGORICAL
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
    if is_a.is_string(kind) or is_a.is_large_string(kind) or is_a.is_string_view(kind):
        return CATEGORICAL
    return None


def text_types(table: Table, columns: Sequence[str]) -> dict[str, Any]:
    """Arrow types [name] that all cells of columns of strings can be read as, from one pass.

    A column of a text file is whole numbers, numbers, truth values or dates if all its cells are, and
    strings otherwise; without a single cell it is null.
    """
    pa, _ = import_arrow()
    possible = {
        name: [pa.int64(), pa.float64(), pa.bool_(), pa.timestamp("us"), pa.timestamp("us", "UTC")]
        for name in columns
    }
    seen: set[str] = set()
    for chunk in table.chunks(columns, {}):
        for name in columns:
            array = chunk.column(name)
            if array.null_count < len(array):
                seen.add(name)
                possible[name] = [kind for kind in possible[name] if _castable(array, kind)]
    return {
        name: (kinds or [pa.string()])[0] if name in seen else pa.null()
        for name, kinds in possible.items()
    }


def _castable(array: Any, kind: Any) -> bool:
    pa, _ = import_arrow()
    try:
        array.cast(kind)
    except pa.ArrowException:
        return False
    return True


def coerced(array: Any, kind: str, column: str) -> Any:
    """An Arrow array as doubles, booleans, strings or timestamps in microseconds, whatever it is now."""
    pa, _ = import_arrow()
    wanted = {
        NUMERIC: pa.float64(),
        BOOLEAN: pa.bool_(),
        CATEGORICAL: pa.string(),
        DATE: pa.timestamp("us"),
    }[kind]
    found = array.type
    if found == wanted:
        return array
    if kind == NUMERIC and found == pa.float32():
        return array
    try:
        if pa.types.is_dictionary(found):
            if kind == CATEGORICAL and found.value_type == pa.string():
                return array
            array = array.dictionary_decode()
            found = array.type
        if pa.types.is_duration(found) and kind == NUMERIC:
            return array.cast(pa.duration("us")).cast(pa.int64()).cast(wanted, safe=False)
        if kind == CATEGORICAL and (pa.types.is_floating(found) or pa.types.is_decimal(found)):
            return _number_words(array)
        if kind == BOOLEAN and pa.types.is_floating(found):
            array = array.cast(pa.int64())
        if kind == DATE and pa.types.is_timestamp(found):
            return array.cast(pa.timestamp("us", found.tz), safe=False).cast(wanted)
        if kind == DATE and kind_of_type(found) == CATEGORICAL and not _castable(array, wanted):
            array = array.cast(pa.timestamp("us", "UTC"))  # text that names its zone
        return array.cast(wanted, safe=kind != NUMERIC)
    except pa.ArrowException:
        example = next((value for value in array.to_pylist() if _refused(value, wanted)), None)
        raise SourceError(
            f"column {column!r} should be {kind}, but has the value {shown(example)}; correct such "
            "cells or leave them empty"
        ) from None


def _refused(value: Any, wanted: Any) -> bool:
    pa, _ = import_arrow()
    return value is not None and not _castable(pa.array([value]), wanted)


def _number_words(array: Any) -> Any:
    """Numbers as strings, whole ones without a decimal point: missing cells make floats of integers."""
    pa, _ = import_arrow()
    values = array.cast(pa.float64()).to_pylist()
    words = [
        None if v is None or v != v else str(int(v)) if float(v).is_integer() else str(v) for v in values
    ]
    return pa.array(words, pa.string())
