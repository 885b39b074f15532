"""The engine of one machine: tiles of a source through threads, sites in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np

from cavity.engines.threads import Threads
from cavity.posterior import Posterior
from cavity.prior import Prior
from cavity.rows import Rows, Sites
from cavity.rules.protocol import Rule
from cavity.sources.protocol import Block, RawRows, Source
from cavity.standardize import Standardizer
from cavity.sums import Sums
from cavity.sweep import RefinedRows, SweepOptions, sweep
from cavity.typing import Dtype

Result = TypeVar("Result")

_TILE_BYTES = 3_000_000
"""What the arrays of one tile may take, so that they stay in a core's cache."""


def tile_rows(m: int, d: int, dtype: Dtype) -> int:
    """Rows a tile should have; depends on the problem only, never on the number of threads."""
    fitting = _TILE_BYTES // (np.dtype(dtype).itemsize * (4 * m + 2 * d))
    return int(np.clip(fitting, 256, 2048))


class LocalEngine:
    """Runs passes over the rows of a source and keeps their sites."""

    def __init__(self, source: Source, standardizer: Standardizer, rule: Rule, threads: Threads) -> None:
        self.source = source
        self.standardizer = standardizer
        self.rule = rule
        self.threads = threads
        self.sites = Sites.zeros(rule.n_latents, source.n_rows)
        self.log_predictive = np.full(source.n_rows, np.nan)
        self._pending: list[tuple[Any, RefinedRows]] = []

    def fresh(self) -> LocalEngine:
        """The same rows, with sites that say nothing yet."""
        return LocalEngine(self.source, self.standardizer, self.rule, self.threads)

    @property
    def n_rows(self) -> int:
        """Number of rows of the source."""
        return self.source.n_rows

    @property
    def total_weight(self) -> float:
        """Sum of the weights of all rows."""
        return self.source.total_weight

    def sweep(
        self,
        prior: Prior,
        posterior: Posterior,
        options: SweepOptions,
        batch: Block | None = None,
    ) -> Sums:
        """One pass over all rows, or over one minibatch.

        The refined sites wait for `commit`: a pass that is not committed leaves no trace.
        """
        size = tile_rows(len(prior.Z), self.source.n_features, prior.dtype)
        tiles: Iterable[tuple[Any, RawRows] | Block]
        tiles = self.source.blocks(size) if batch is None else _split(batch, size)

        def work(tile: tuple[Any, RawRows] | Block) -> tuple[Any, RefinedRows, Sums]:
            index, raw = tile if isinstance(tile, tuple) else (tile.index, tile.load())
            rows = self._rows(raw, prior.dtype)
            sites = Sites(self.sites.precision[:, index], self.sites.shift[:, index])
            refined, sums = sweep(rows, sites, prior, posterior, self.rule, options)
            return index, refined, sums

        self._pending = []
        total: Sums | None = None
        for index, refined, sums in self.threads.map(work, tiles):
            self._pending.append((index, refined))
            if total is None:
                total = sums
            else:
                total += sums
        assert total is not None
        return total

    def commit(self) -> None:
        """Make the sites of the last pass the current ones."""
        for index, refined in self._pending:
            self.sites.precision[:, index] = refined.sites.precision
            self.sites.shift[:, index] = refined.sites.shift
            self.log_predictive[index] = refined.log_predictive
        self._pending = []

    def map_rows(self, function: Callable[[Rows, Any], Result], prior: Prior) -> Iterator[Result]:
        """function(rows, index) for every tile, in order."""
        size = tile_rows(len(prior.Z), self.source.n_features, prior.dtype)
        tiles: Iterable[Block] = self.source.blocks(size)
        return self.threads.map(
            lambda tile: function(self._rows(tile.load(), prior.dtype), tile.index), tiles
        )

    def _rows(self, raw: RawRows, dtype: Dtype) -> Rows:
        return Rows(self.standardizer.apply(raw.X, dtype), raw.labels, raw.weight)


def _split(batch: Block, size: int) -> list[tuple[Any, RawRows]]:
    """A minibatch, read once, as tiles."""
    raw = batch.load()
    index = np.asarray(batch.index)
    n_tiles = max(1, -(-len(index) // size))
    parts = np.array_split(np.arange(len(index)), n_tiles)
    return [
        (
            index[part],
            RawRows(raw.X[part], raw.labels[part], None if raw.weight is None else raw.weight[part]),
        )
        for part in parts
    ]
