"""Where rows come from: anything that yields blocks of rows, never the whole."""

from cavity.sources.arrays import ArraySource
from cavity.sources.protocol import Block, RawRows, Source

__all__ = ["ArraySource", "Block", "RawRows", "Source"]
