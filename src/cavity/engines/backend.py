"""Where a fit runs: `LocalBackend` is this process, `cavity.engines.dask.backend` a Dask cluster.

A backend reads a source once for its scaling, holds rows out, and makes the engine that runs the passes.
A fit is the same code with either backend.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cavity.data.sampling import HeldOut
from cavity.data.scaling import Moments, Standardizer, learn_standardizer
from cavity.data.source import Block, RowSource, Source, tile_rows
from cavity.engines.local import LocalEngine
from cavity.engines.protocol import Engine
from cavity.engines.threads import Threads
from cavity.typing import IntArray

MOST_HELD_OUT = 10_000
"""Most rows that are held out for validation."""
_ROWS_TO_SHUFFLE = 1_000_000
"""Most rows for which all row numbers are shuffled in order to draw a few."""


class LocalBackend:
    """Runs a fit in the threads of this process."""

    def __init__(self, threads: Threads) -> None:
        self.threads = threads

    def standardizer(self, source: RowSource, scaling: str | None) -> Standardizer:
        """Centre and scale of the columns of a source, in one streaming pass."""
        if scaling is None:
            return Standardizer.identity(source.n_features)
        assert isinstance(source, Source)
        return learn_standardizer(tile_moments(source, self.threads, products=scaling == "whiten"))

    def hold_out(self, source: RowSource, fraction: float, rng: np.random.RandomState) -> HeldOut:
        """A random share of the rows, at most 10,000, for validation."""
        numbers = held_out_numbers(source.n_rows, fraction, rng)
        return HeldOut(numbers, source.take(numbers))

    def engine(
        self,
        source: RowSource,
        standardizer: Standardizer,
        n_latents: int,
        held_out: HeldOut | None = None,
        n_directions: int = 0,
    ) -> Engine:
        """The engine that runs passes over a source and keeps its sites."""
        assert isinstance(source, Source)
        return LocalEngine(source, standardizer, n_latents, self.threads, held_out, n_directions)

    def status(self, rows_per_second: float) -> str:
        """What a progress line says about the place where a fit runs."""
        return ""


def tile_moments(source: Source, threads: Threads, *, products: bool) -> Iterator[Moments]:
    """Moments of the columns of each tile of a source, in one streaming pass."""

    def moments(block: Block) -> Moments:
        rows = block.load()
        return Moments.of(rows.X, rows.weight, products=products)

    size = tile_rows(1, source.n_features, np.dtype(np.float64))
    return threads.map(moments, source.blocks(size))


def held_out_numbers(n_rows: int, fraction: float, rng: np.random.RandomState) -> IntArray:
    """Sorted numbers of a random share of the rows, at most 10,000."""
    size = int(np.clip(round(fraction * n_rows), 1, min(MOST_HELD_OUT, n_rows - 1)))
    if n_rows > _ROWS_TO_SHUFFLE:  # a `RandomState` would put all of them in order to take a few
        return np.sort(np.random.default_rng(rng.randint(2**31)).choice(n_rows, size, replace=False))
    return np.sort(rng.choice(n_rows, size=size, replace=False))
