"""Fits in this process: `LocalEngine` sends tiles through threads and keeps sites in memory.

`LocalBackend` is the `Backend` of a fit on this machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from cavity.data.arrays import ArrayBlock, ArraySource
from cavity.data.routing import (
    EstimatorRouting,
    Routing,
    by_leaf,
    learn_from_estimator,
    leaves_of_rows,
    regrouped_batches,
    with_leaves,
)
from cavity.data.sampling import EVERY_ROW, RowSampler
from cavity.data.source import (
    Block,
    LoadedBlock,
    RawRows,
    RowSource,
    Source,
    even_parts,
    rows_to_look_at,
    tile_rows,
)
from cavity.data.statistics import Moments
from cavity.engines.backend import Backend, Item, Result
from cavity.engines.protocol import Engine, Pass
from cavity.engines.threads import Threads
from cavity.gp.tiles import KernelRowCache, RefinedRows, Rows, Sites, Sums
from cavity.typing import FLOAT64, Array, Dtype, IntArray

_SMALLEST_TILE = 512
"""Least number of rows, about, of a tile that a minibatch is split into for the threads."""
_SMALLEST_WORK = 20_000_000
"""Least cost of such a tile, in rows times m·(m·(1 + C)/2 + d/3): less is not worth a thread."""
_ROWS_IN_FULL_PRECISION = 1_000_000
"""Sites of more rows than this are stored in float32; with many classes, of fewer."""


def minibatch_tiles(size: int, m: int, d: int, n_latents: int = 1) -> int:
    """Number of tiles that a minibatch is split into: a power of two, as numbers of cores often are.

    >>> [minibatch_tiles(2000, m, d=8) for m in (50, 100, 200, 500)]
    [1, 1, 4, 4]
    """
    work = size * m * (m * (1 + n_latents) / 2 + d / 3)
    most = min(size / _SMALLEST_TILE, work / _SMALLEST_WORK)
    return 2 ** round(math.log2(most)) if most > 1.0 else 1


class LocalEngine(Engine):
    """Runs passes over the rows of a source in threads, and keeps the sites in memory."""

    source: Source

    def __post_init__(self) -> None:
        n_rows, n_latents = self.source.n_rows, self.n_latents
        full = n_rows * max(1, n_latents // 10) <= _ROWS_IN_FULL_PRECISION
        kept = np.float64 if full else np.float32
        self.sites = Sites.zeros(n_latents, n_rows, kept, self.n_directions)
        self._log_predictive: Array = np.full(n_rows, np.nan, kept)
        self._pending: list[tuple[slice | IntArray, RefinedRows]] = []
        self._all_rows: Rows | None = None
        """The rows of the source, if one tile has them all."""

    @property
    def log_predictive(self) -> Array:
        """[n]: log probability of each label with its row left out; NaN for rows not visited."""
        return self._log_predictive

    @cached_property
    def _held_out_mask(self) -> NDArray[np.bool_] | None:
        return None if self.held_out is None else self.held_out.mask(self.n_rows)

    def with_held_out_rows(self) -> LocalEngine:
        """An engine in which the held-out rows take part, too; the other rows keep their sites."""
        engine = LocalEngine(self.source, self.scaling, self.n_latents, self.threads)
        engine.set_state(self.sites, self._log_predictive)
        return engine

    def run(self, row_pass: Pass, batch: Block | None = None, sampler: RowSampler = EVERY_ROW) -> Sums:
        """Run a pass over all rows, or over a minibatch; see `Engine.run`."""

        if self.source.leaf is not None:
            return self._run_by_leaf(row_pass, batch, sampler)
        read = self._rows if batch is not None else self._rows_once

        def work(tile: Block) -> tuple[slice | IntArray, RefinedRows | None, Sums]:
            refined, sums = row_pass(read(tile, row_pass.dtype), self.sites.take(tile.index))
            if refined is not None:
                refined = refined.no_wider_than(self._log_predictive.dtype)
            return tile.index, refined, sums

        self._pending = []
        total: Sums | None = None
        n_drawn = None if batch is None else _length(batch.index)
        if batch is not None and not self.n_directions:
            batch = sampler.take(batch, self._log_predictive, self._held_out_mask)
        for index, refined, sums in self.threads.map(work, self._tiles(row_pass, batch)):
            if refined is not None:
                self._pending.append((index, refined))
            if total is None:
                total = sums
            else:
                total += sums
        assert total is not None
        total.n_rows = total.n_rows if n_drawn is None else n_drawn
        return total

    def _run_by_leaf(self, row_pass: Pass, batch: Block | None, sampler: RowSampler) -> Sums:
        """Run a pass over rows of leaves: each tile has rows of one leaf."""
        leaf = self.source.leaf
        assert leaf is not None
        counts, share = self.leaf_counts, None
        drawn = np.bincount(leaf if batch is None else leaf[batch.index], minlength=len(counts))
        if batch is not None:
            share = batch.share if isinstance(batch, ArrayBlock | LoadedBlock) else None
            batch = sampler.take(batch, self._log_predictive, self._held_out_mask)

        def work(
            item: tuple[int, Block],
        ) -> tuple[int, slice | IntArray, RefinedRows | None, Sums]:
            number, tile = item
            rows, sites = self._rows(tile, row_pass.dtype), self.sites.take(tile.index)
            refined, sums = row_pass.of_leaf(number)(rows, sites)
            if refined is not None:
                refined = refined.no_wider_than(self._log_predictive.dtype)
            return number, tile.index, refined, sums

        self._pending = []
        totals: dict[int, Sums] = {}
        for number, index, refined, sums in self.threads.map(work, self._leaf_tiles(row_pass, batch)):
            if refined is not None:
                self._pending.append((index, refined))
            if number in totals:
                totals[number] += sums
            else:
                totals[number] = sums
        shares = {number: float(drawn[number] / counts[number]) for number in totals}
        total = row_pass.joined(totals, shares)
        total.n_rows = float(drawn.sum()) if share is None else share * self.n_rows
        return total

    @cached_property
    def leaf_counts(self) -> IntArray:
        """Number of rows of each leaf; where this engine has a shard of the rows, of all shards."""
        assert self.source.leaf is not None
        return np.bincount(self.source.leaf)

    @cached_property
    def _leaf_rows(self) -> list[tuple[int, IntArray]]:
        assert self.source.leaf is not None
        return by_leaf(self.source.leaf)

    def _leaf_tiles(self, row_pass: Pass, batch: Block | None) -> Iterator[tuple[int, Block]]:
        """Tiles of rows of one leaf each, with the number of the leaf."""
        leaf, source = self.source.leaf, self.source
        assert leaf is not None
        m, d, C = row_pass.n_inducing, source.n_features, self.n_latents
        size = tile_rows(m, d, row_pass.dtype, C)
        if batch is None and isinstance(source, ArraySource):
            for number, rows in self._leaf_rows:
                for part in even_parts(len(rows), -(-len(rows) // size)):
                    yield number, ArrayBlock(source, rows[part])
            return
        blocks = source.blocks(rows_to_look_at(source.n_features)) if batch is None else (batch,)
        for block in blocks:
            index = block.index
            if isinstance(index, slice):
                index = np.arange(index.start, index.stop)
            # Rows of an array are read tile by tile, so that sparse ones need not all be dense at once.
            loaded = None if isinstance(block, ArrayBlock) else block.load()
            weight = block.importance_weight if isinstance(block, LoadedBlock) else None
            for number, positions in by_leaf(leaf[index]):
                n_rows = len(positions)
                n_tiles = max(-(-n_rows // size), minibatch_tiles(n_rows, m, d, C))
                for part in even_parts(n_rows, n_tiles):
                    some = positions[part]
                    if loaded is None:
                        assert isinstance(source, ArraySource)
                        yield number, ArrayBlock(source, index[some])
                    else:
                        own = None if weight is None else weight[some]
                        yield number, LoadedBlock(index[some], loaded.take(some), own)

    def commit(self) -> None:
        """Let the rows keep the sites and scores of the last pass."""
        self.n_commits += 1
        for index, refined in self._pending:
            if refined.sites is not None:
                self.sites.put(index, refined.sites)
            self._log_predictive[index] = refined.log_predictive
        self._pending = []

    def batches(self, size: int, rng: np.random.Generator, skip: int = 0) -> Iterator[Block]:
        """The source's minibatches; with leaves, rows of a few leaves are in each."""
        if self.source.leaf is not None and not isinstance(self.source, ArraySource):
            return regrouped_batches(self.source, size, rng, skip)
        return self.source.batches(size, rng, skip)

    def expanded_to_input_rows(self, values: Array) -> Array:
        """Values [n] as values of all rows that the user has passed, if the source left some out."""
        return self.source.expanded_to_input_rows(values)

    def adopt(self, previous: Engine | None) -> bool:
        """Start from copies of the sites of an earlier engine over as many rows, if it has them."""
        if not isinstance(previous, LocalEngine) or previous.n_rows != self.n_rows:
            return False
        if self.sites.shapes != previous.sites.shapes:
            return False
        self.sites.put(slice(None), previous.sites)
        return True

    def set_state(self, sites: Sites, log_predictive: Array) -> None:
        """Replace the sites and leave-one-out probabilities of all rows."""
        self.sites, self._log_predictive = sites, log_predictive

    def saved_rows(self, path: Path) -> dict[str, Array]:
        """Sites and leave-one-out probabilities, for a checkpoint."""
        return state_arrays(self.sites, self._log_predictive)

    def restore_rows(self, path: Path, arrays: dict[str, Array]) -> None:
        """Sites and leave-one-out probabilities from a checkpoint."""
        self.set_state(*state_from_arrays(arrays))

    def _tiles(self, row_pass: Pass, batch: Block | None) -> Iterable[Block]:
        m, d = row_pass.n_inducing, self.source.n_features
        size = tile_rows(m, d, row_pass.dtype, self.n_latents)
        if batch is None:
            return self.source.blocks(size)
        n_rows = _length(batch.index)
        return _split(batch, max(-(-n_rows // size), minibatch_tiles(n_rows, m, d, self.n_latents)))

    def _rows_once(self, tile: Block, dtype: Dtype) -> Rows:
        """The rows of a tile; if it has all rows of the source, they are read once for all passes."""
        if _length(tile.index) < self.n_rows:
            return self._rows(tile, dtype)
        if self._all_rows is None or self._all_rows.X.dtype != dtype:
            self._all_rows = self._rows(tile, dtype)._replace(cache=KernelRowCache())
        return self._all_rows

    def _rows(self, tile: Block, dtype: Dtype) -> Rows:
        X, labels, weight = tile.load()
        if self._held_out_mask is not None:
            kept = ~self._held_out_mask[tile.index]
            weight = kept.astype(np.float64) if weight is None else weight * kept
        importance_weight = tile.importance_weight if isinstance(tile, LoadedBlock) else None
        offset = None if self.source.offset is None else self.source.offset[tile.index].T
        return Rows(self.scaling.apply(X, dtype), labels, weight, importance_weight, offset)


def state_arrays(sites: Sites, log_predictive: Array) -> dict[str, Array]:
    """Sites and leave-one-out probabilities of rows as named arrays, for a file."""
    arrays = {
        "sites.precision": sites.precision,
        "sites.shift": sites.shift,
        "log_predictive": log_predictive,
    }
    if sites.directions is not None:
        arrays["sites.directions"] = sites.directions
    return arrays


def state_from_arrays(arrays: Mapping[str, Array]) -> tuple[Sites, Array]:
    """Sites and leave-one-out probabilities from the arrays of `state_arrays`."""
    sites = Sites(arrays["sites.precision"], arrays["sites.shift"], arrays.get("sites.directions"))
    return sites, arrays["log_predictive"]


def _length(index: slice | IntArray) -> int:
    return index.stop - index.start if isinstance(index, slice) else len(index)


def _split(batch: Block, n_tiles: int) -> list[Block]:
    """A minibatch, read once, as tiles."""
    if isinstance(batch, ArrayBlock) and not isinstance(batch.index, slice):
        # Tile by tile costs the same, and sparse rows need not all be dense at once.
        parts = even_parts(len(batch.index), n_tiles)
        return [replace(batch, index=batch.index[part]) for part in parts]
    X, labels, weight = batch.load()
    importance_weight = batch.importance_weight if isinstance(batch, LoadedBlock) else None
    index = batch.index
    if isinstance(index, slice):
        index = np.arange(index.start, index.stop)
    if n_tiles <= 1:
        return [LoadedBlock(index, RawRows(X, labels, weight), importance_weight)]

    def of(values: Array | None, part: slice) -> Array | None:
        return None if values is None else values[part]

    return [
        LoadedBlock(
            index[part], RawRows(X[part], labels[part], of(weight, part)), of(importance_weight, part)
        )
        for part in even_parts(len(index), n_tiles)
    ]


class LocalBackend(Backend):
    """Runs a fit in the threads of this process."""

    engine_type: ClassVar[type[Engine]] = LocalEngine

    def _moments(self, source: RowSource, *, products: bool) -> Iterable[Moments]:
        """Moments of all tiles of a source, in one streaming pass."""
        assert isinstance(source, Source)
        return tile_moments(source, self.threads, products=products)

    def with_leaves(self, source: RowSource, routing: Routing, rows_of_a_leaf: int | None) -> RowSource:
        """The rows with their leaves; rows_of_a_leaf: about how many of one a minibatch has."""
        assert isinstance(source, Source)
        return with_leaves(source, leaves_of_rows(source, routing), rows_of_a_leaf)

    def routing_of(self, source: RowSource, estimator: BaseEstimator) -> EstimatorRouting:
        """The routing of a user's estimator, with the values that a source's rows have."""
        assert isinstance(source, Source)
        return learn_from_estimator(source, estimator)

    def n_side_by_side(self, source: RowSource) -> int:
        """How many trainings over one source run at the same time: one a thread, if it is an array."""
        # Only rows in memory are surely read by several trainings at once without a loss.
        return self.threads.n_threads if isinstance(source, ArraySource) else 1

    def side_by_side(
        self,
        source: RowSource,
        function: Callable[[Backend, Item], Result],
        items: Sequence[Item],
    ) -> Iterable[Result]:
        """The results of function(backend, item) for every item; several at once, a thread each."""
        if self.n_side_by_side(source) == 1:
            return super().side_by_side(source, function, items)
        return self.threads.map(lambda item: function(LocalBackend(Threads(1)), item), list(items))


def tile_moments(source: Source, threads: Threads, *, products: bool) -> Iterator[Moments]:
    """Moments of the columns of each tile of a source, in one streaming pass."""

    def moments(block: Block) -> Moments:
        rows = block.load()
        return Moments.of(rows.X, rows.weight, products=products)

    size = tile_rows(1, source.n_features, FLOAT64)
    return threads.map(moments, source.blocks(size))
