"""Data frames of every kind, dictionaries and lists of rows as Arrow tables."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence, Sized
from typing import TYPE_CHECKING, TypeGuard

import numpy as np

from cavity.data.parts import import_arrow
from cavity.errors import SourceError
from cavity.text import listed, one_line
from cavity.typing import InputRows

if TYPE_CHECKING:
    import pandas
    import pyarrow as pa


def as_arrow(data: InputRows) -> pa.Table:
    """A data frame (pandas, polars, Arrow or a dictionary of columns), or a list of rows, as a table.

    >>> as_arrow({"age": [31, None], "name": ["Ada", "Bob"]}).schema.names
    ['age', 'name']
    >>> as_arrow([{"age": 31}, {"name": "Bob"}]).to_pydict()
    {'age': [31, None], 'name': [None, 'Bob']}
    """
    pa, _ = import_arrow()
    if isinstance(data, (list, tuple)) and data and all(isinstance(row, Mapping) for row in data):
        names = dict.fromkeys(name for row in data for name in row)
        data = {name: [row.get(name) for row in data] for name in names}
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    has_keys = isinstance(data, dict) or is_pandas(data)
    if has_keys:
        _check_names(list(data))
    if isinstance(data, dict):
        _check_columns(data)
    elif is_pandas(data):
        data = _with_usual_types(data)
    try:
        if isinstance(data, dict):
            return pa.table(data)
        if is_pandas(data):
            return pa.Table.from_pandas(data, preserve_index=False)
        if hasattr(data, "__arrow_c_stream__") and not _is_series(data):
            return _without_views(pa.table(data))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        mixed = _with_mixed_columns_as_text(data) if has_keys else None
        if mixed is not None:
            return mixed
        reason = _reason(data, error) if has_keys else one_line(error)
        raise SourceError(f"the data frame cannot be read: {reason}") from error
    if _is_series(data):
        raise TypeError(
            "a Series is not a table; pass data frames: series.to_frame() if it is a column, and "
            "frame.iloc[[0]], with two brackets, for a row"
        )
    raise TypeError(
        f"a {type(data).__name__} is not a table; pass a data frame, an Arrow table, a dict of columns, "
        "or a list of rows, each of them a dict"
    )


def is_pandas(data: object) -> TypeGuard[pandas.DataFrame]:
    """Whether a value is a data frame of pandas, found out without importing pandas."""
    module = sys.modules.get("pandas")
    return module is not None and isinstance(data, module.DataFrame)


def _is_series(data: object) -> bool:
    """Whether a value is a single column or row of pandas or polars."""
    return type(data).__name__ == "Series"


def _check_columns(data: Mapping[str, object]) -> None:
    """Raise for a dictionary with cells in place of columns."""
    for name, column in data.items():
        if isinstance(column, str) or not isinstance(column, Sized):
            raise SourceError(
                f"the dictionary has {column!r:.40} under {name!r}, which is a cell and no column; pass "
                "columns, or a row in a list, as in [{...}]"
            )


def _with_usual_types(frame: pandas.DataFrame) -> pandas.DataFrame:
    """A data frame of pandas with sparse columns as dense ones, and with intervals as words."""
    import pandas

    changed = {}
    for name, kind in frame.dtypes.items():
        column = frame[name]
        if isinstance(kind, pandas.SparseDtype):
            changed[name] = column.sparse.to_dense()
        elif isinstance(kind, pandas.CategoricalDtype):
            if isinstance(kind.categories.dtype, pandas.IntervalDtype):  # those of pandas.cut
                changed[name] = column.cat.rename_categories(kind.categories.astype(str))
        elif isinstance(kind, pandas.IntervalDtype) or (
            column.dtype.kind == "O" and pandas.api.types.infer_dtype(column) == "interval"
        ):
            changed[name] = column.astype(object).map(str, na_action="ignore")
    return frame.assign(**changed) if changed else frame


def _without_views(table: pa.Table) -> pa.Table:
    """The table with views of strings, which polars has, as strings: Arrow cannot filter views."""
    pa, _ = import_arrow()
    for i, field in enumerate(table.schema):
        column = table.column(i)
        if pa.types.is_string_view(field.type):
            table = table.set_column(i, field.name, column.cast(pa.large_string()))
        elif pa.types.is_dictionary(field.type) and pa.types.is_string_view(field.type.value_type):
            chunks = [
                pa.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(pa.string()))
                for chunk in column.chunks
            ]
            kind = pa.dictionary(field.type.index_type, pa.string())
            table = table.set_column(i, field.name, pa.chunked_array(chunks, kind))
    return table


def _check_names(names: list[object]) -> None:
    """Raise for names of columns that are not strings, or not all different."""
    strange = [name for name in names if not isinstance(name, str)]
    if strange:
        raise SourceError(
            f"the data frame has a column named {strange[0]!r}, which is not a string; rename it, for "
            "instance with frame.rename(columns=str)"
        )
    check_column_names([str(name) for name in names], "the data frame")


def _with_mixed_columns_as_text(data: InputRows) -> pa.Table | None:
    """The table, with columns of text among numbers or truth values as text; None if that is not all."""
    pa, _ = import_arrow()
    columns = {}
    for name in data:
        try:
            columns[name] = pa.array(data[name], from_pandas=True)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            cells = [None if str(cell) in ("nan", "NaT", "<NA>") else cell for cell in data[name]]
            kinds = (str, int, float, np.number, np.bool_, type(None))
            if not all(isinstance(cell, kinds) for cell in cells) or not any(
                isinstance(cell, str) for cell in cells
            ):
                return None
            try:
                columns[name] = pa.array([None if cell is None else str(cell) for cell in cells])
            except ValueError:  # half of a surrogate pair is no text
                return None
    return pa.table(columns)


def _reason(data: InputRows, error: Exception) -> str:
    """Why a data frame or dictionary cannot be read: a column of it, and the kinds of its cells."""
    pa, _ = import_arrow()
    for name in data:
        try:
            pa.array(data[name], from_pandas=True)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as cause:
            kinds = sorted({type(cell).__name__ for cell in data[name]})
            return (
                f"column {name!r} has cells of the kinds {listed(kinds)} ({one_line(cause)}); make them "
                "all numbers of at most 64 bits, strings, truth values or dates, or drop the column"
            )
    return one_line(error)


def check_column_names(columns: Sequence[str], name: str) -> None:
    """Raise for a table without columns, or with several columns of the same name."""
    repeated = sorted(column for column, count in Counter(columns).items() if count > 1)
    if repeated:
        raise SourceError(f"{name} has more than one column named {listed(repeated)}; rename them")
    if not columns:
        raise SourceError(f"{name} has no columns")
