"""Sources of rows: arrays, files, tables and users' own, read block by block."""

from cavity.data.arrays import ArraySource, open_npy
from cavity.data.arrow import ParquetSource
from cavity.data.contract import check_source
from cavity.data.opening import class_values, open_labelled_rows, open_source
from cavity.data.source import Block, RawRows, Source
from cavity.errors import SourceError

__all__ = [
    "ArraySource",
    "Block",
    "ParquetSource",
    "RawRows",
    "Source",
    "SourceError",
    "check_source",
    "class_values",
    "open_labelled_rows",
    "open_npy",
    "open_source",
]
