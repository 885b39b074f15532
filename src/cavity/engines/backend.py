"""Where a fit runs: `LocalBackend` is this process, `cavity.engines.dask.backend` a Dask cluster.

A backend reads a source once for its scaling, holds rows out, and makes the engine that runs the passes.
A fit is the same code with either backend.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from cavity.data import quantiles
from cavity.data.moments import Moments, learn_standard
from cavity.data.sampling import HeldOut
from cavity.data.scaling import Scaling
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

    def learn_scaling(self, source: RowSource, kind: str | None) -> Scaling:
        """The scaling of the columns of a source: from a sample, or from the moments of all rows."""
        if kind is None:
            return Scaling.identity(source.n_features)
        if kind in quantiles.KINDS:
            return quantiles.learn_from_sample(source, kind)
        return learn_standard(self._moments(source, products=kind == "whiten"))

    def _moments(self, source: RowSource, *, products: bool) -> Iterable[Moments]:
        """Moments of all parts of a source, in one streaming pass."""
        assert isinstance(source, Source)
        return tile_moments(source, self.threads, products=products)

    def hold_out(self, source: RowSource, fraction: float, rng: np.random.RandomState) -> HeldOut:
        """A random share of the rows, at most 10,000, for validation."""
        numbers = held_out_numbers(source.n_rows, fraction, rng)
        return HeldOut(numbers, source.take(numbers))

    def engine(
        self,
        source: RowSource,
        scaling: Scaling,
        n_latents: int,
        held_out: HeldOut | None = None,
        n_directions: int = 0,
    ) -> Engine:
        """The engine that runs passes over a source and keeps its sites."""
        assert isinstance(source, Source)
        return LocalEngine(source, scaling, n_latents, self.threads, held_out, n_directions)

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
