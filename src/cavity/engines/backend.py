"""Where a fit runs: `LocalBackend` is this process, `cavity.engines.dask.backend` a Dask cluster.

A backend reads a source once for its scaling, holds rows out, and makes the engine that runs the passes.
A fit is the same code with either backend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from cavity.data import quantiles
from cavity.data.arrays import ArraySource
from cavity.data.moments import Moments, learn_standard
from cavity.data.sampling import HeldOut, hashed_rows
from cavity.data.scaling import Scaling
from cavity.data.source import Block, RowSource, Source, tile_rows
from cavity.engines.local import LocalEngine
from cavity.engines.protocol import Engine
from cavity.engines.threads import Threads
from cavity.typing import IntArray

MOST_HELD_OUT = 20_000
"""Most rows that are held out."""
MOST_VALUES_HELD_OUT = 20_000_000
"""Most of their values: they are kept in memory. A thousand rows are held out in any case."""

Item = TypeVar("Item")
Result = TypeVar("Result")


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

    def hold_out(self, source: RowSource, fraction: float, seed: int) -> HeldOut:
        """A share of the rows, chosen by a hash of their numbers, and at most 20,000."""
        numbers = source.reserved
        if numbers is None:
            numbers = held_out_numbers(int(source.n_rows), source.n_features, fraction, seed)
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

    def n_side_by_side(self, source: RowSource) -> int:
        """How many trainings over one source run at the same time in `side_by_side`."""
        # Only rows in memory are surely read by several trainings at once without a loss.
        return self.threads.n_threads if isinstance(source, ArraySource) else 1

    def side_by_side(
        self,
        source: RowSource,
        function: Callable[[LocalBackend, Item], Result],
        items: Sequence[Item],
    ) -> Iterable[Result]:
        """function(backend, item) for every item, in order; several at once, with one thread each."""
        if self.n_side_by_side(source) == 1:
            return (function(self, item) for item in items)
        return self.threads.map(lambda item: function(LocalBackend(Threads(1)), item), list(items))

    def status(self, rows_per_second: float) -> str:
        """What a progress line says about the place where a fit runs."""
        return ""


def held_out_numbers(n_rows: int, n_features: int, fraction: float, seed: int) -> IntArray:
    """Sorted numbers of a share of the rows, chosen by a hash, and at most 20,000."""
    most = max(1_000, MOST_VALUES_HELD_OUT // n_features)
    size = min(round(fraction * n_rows), MOST_HELD_OUT, most, n_rows - 1)
    return hashed_rows(n_rows, max(1, size), seed)


def tile_moments(source: Source, threads: Threads, *, products: bool) -> Iterator[Moments]:
    """Moments of the columns of each tile of a source, in one streaming pass."""

    def moments(block: Block) -> Moments:
        rows = block.load()
        return Moments.of(rows.X, rows.weight, products=products)

    size = tile_rows(1, source.n_features, np.dtype(np.float64))
    return threads.map(moments, source.blocks(size))
