"""Arrow, the one form that tables have in here: its types say what a column is, and what is missing."""

from __future__ import annotations

from typing import Any

from cavity.errors import SourceError


def import_arrow() -> tuple[Any, Any]:
    """The modules pyarrow and pyarrow.compute, which are an optional dependency."""
    try:
        import pyarrow
        import pyarrow.compute
    except ImportError as error:
        raise ImportError("tables are read with pyarrow: pip install 'cavity[parquet]'") from error
    return pyarrow, pyarrow.compute


def as_arrow(data: Any) -> Any:
    """A data frame (pandas, polars, Arrow or a dictionary of columns) as an Arrow table.

    >>> as_arrow({"age": [31, None], "name": ["Ada", "Bob"]}).schema.names
    ['age', 'name']
    """
    pa, _ = import_arrow()
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    try:
        if isinstance(data, dict):
            return pa.table(data)
        if type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns"):
            _check_names(list(data.columns))
            return pa.Table.from_pandas(data, preserve_index=False)
        if hasattr(data, "__arrow_c_stream__"):
            return pa.table(data)
    except (pa.ArrowException, TypeError, ValueError) as error:
        if isinstance(error, SourceError):
            raise
        raise SourceError(f"the data frame cannot be read: {one_line(error)}") from error
    raise TypeError(
        f"a {type(data).__name__} is no table; pass a data frame, an Arrow table or a dict of columns"
    )


def _check_names(names: list[Any]) -> None:
    strange = [name for name in names if not isinstance(name, str)]
    if strange:
        raise SourceError(
            f"the data frame has a column named {strange[0]!r}, which is no string; rename it, for "
            "instance with frame.rename(columns=str)"
        )


def one_line(error: BaseException) -> str:
    """What a library says, on one line, without its full stop and what no terminal should get."""
    words = " ".join(str(error).split()).rstrip(".")
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in words)
