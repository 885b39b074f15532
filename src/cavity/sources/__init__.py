"""Where rows come from: anything that yields blocks of rows, never the whole."""

from cavity.errors import SourceError
from cavity.sources.arrays import ArraySource
from cavity.sources.checking import check_source
from cavity.sources.npy import open_npy
from cavity.sources.opening import class_values, open_source
from cavity.sources.parquet import ParquetSource
from cavity.sources.protocol import Block, RawRows, Source

__all__ = [
    "ArraySource",
    "Block",
    "ParquetSource",
    "RawRows",
    "Source",
    "SourceError",
    "check_source",
    "class_values",
    "open_npy",
    "open_source",
]
