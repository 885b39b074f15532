"""The engine of one machine: tiles of a source through threads, sites in memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cavity.data.arrays import ArrayBlock
from cavity.data.sampling import spared_batch, spared_rows, thinned_batch
from cavity.data.scaling import Standardizer
from cavity.data.source import Block, LoadedBlock, RawRows, Source, even_parts
from cavity.engines.protocol import SourceFacts
from cavity.engines.threads import Threads
from cavity.gp.posterior import Naturals, Posterior
from cavity.gp.prior import Prior
from cavity.gp.tiles import Rows, Sites, Sums
from cavity.inference.rule import Rule
from cavity.inference.sweep import RefinedRows, SweepOptions, summed_sites, sweep
from cavity.typing import Array, Dtype, IntArray

First = TypeVar("First")
Second = TypeVar("Second")

_TILE_BYTES = 16_000_000
"""What the arrays of one tile may take: products run best on a thousand rows or more, and the passes
between them best on arrays that are not much larger than the caches."""
_SMALLEST_SHARE = 512
"""Rows of a minibatch that go to one thread, about: it is shared even if it would fit in one tile."""
_SMALLEST_WORK = 20_000_000
"""Rows times m·(m·(1 + C)/2 + d/3), about what they cost, from which a thread is worth its price."""
_ROWS_IN_FULL_PRECISION = 1_000_000
"""Beyond so many rows, what is kept of each is kept in float32; with many classes, sooner."""


def tile_rows(m: int, d: int, dtype: Dtype, n_latents: int = 1) -> int:
    """Rows a tile should have; depends on the problem only, never on the number of threads."""
    fitting = _TILE_BYTES // (np.dtype(dtype).itemsize * ((3 + n_latents) * m + d // 2))
    return min(max(fitting, 256), 3072)


def minibatch_tiles(size: int, m: int, d: int, n_latents: int = 1) -> int:
    """Into how many tiles a minibatch is cut: a power of two, for cores tend to come in such numbers.

    >>> [minibatch_tiles(2000, m, d=8) for m in (50, 100, 200, 500)]
    [1, 1, 4, 4]
    """
    work = size * m * (m * (1 + n_latents) / 2 + d / 3)
    most = min(size / _SMALLEST_SHARE, work / _SMALLEST_WORK)
    return 2 ** round(math.log2(most)) if most > 1.0 else 1


@dataclass(frozen=True)
class HeldOut:
    """Rows that take no part in training."""

    mask: NDArray[np.bool_]
    """[n]: which they are."""
    rows: RawRows
    """The rows themselves."""

    @property
    def weight(self) -> float:
        """Their total weight."""
        return float(self.mask.sum() if self.rows.weight is None else self.rows.weight.sum())


class LocalEngine(SourceFacts):
    """Runs passes over the rows of a source and keeps their sites."""

    source: Source
    held_out: HeldOut | None

    def __init__(
        self,
        source: Source,
        standardizer: Standardizer,
        rule: Rule,
        threads: Threads,
        held_out: HeldOut | None = None,
        stored_directions: int = 0,
    ) -> None:
        self.source = source
        self.standardizer = standardizer
        self.rule = rule
        self.threads = threads
        self.held_out = held_out
        full = source.n_rows * max(1, rule.n_latents // 10) <= _ROWS_IN_FULL_PRECISION
        kept = np.float64 if full else np.float32
        # With `stored_directions` = m every site keeps its vector of m numbers: the paper's scheme.
        self.sites = Sites.zeros(rule.n_latents, source.n_rows, kept, stored_directions)
        self.log_predictive: Array = np.full(source.n_rows, np.nan, kept)
        self.first_row = 0
        """Number of the first row among all rows, if the source is a part of them."""
        self._pending: list[tuple[Any, RefinedRows]] = []

    def fresh(self, rule: Rule | None = None) -> LocalEngine:
        """The same rows, with sites that say nothing yet."""
        rule = rule or self.rule
        return LocalEngine(self.source, self.standardizer, rule, self.threads, self.held_out)

    @property
    def stores_directions(self) -> bool:
        """Whether a site keeps its own vector: the paper's scheme."""
        return self.sites.directions is not None

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

        def work(tile: Block) -> tuple[Any, RefinedRows, Sums]:
            rows, sites = self._rows_and_sites(tile, prior.dtype)
            refined, sums = sweep(rows, sites, prior, posterior, self.rule, options)
            if options.damping == 0.0:
                refined = refined._replace(sites=None)  # they are what they were
            return tile.index, refined.no_wider_than(self.log_predictive.dtype), sums

        self._pending = []
        total: Sums | None = None
        n_drawn = None if batch is None else _length(batch.index)
        if batch is not None and not self.stores_directions:
            only, first = options.only_spared, self.first_row
            batch = spared_batch(batch, options.spared, only=only, first=first)
            # All rows at once are the same minibatch in every epoch: always the same would be kept.
            least = 1.0 if n_drawn == self.n_rows else options.thinning
            batch = thinned_batch(batch, self.log_predictive, least)
        for index, refined, sums in self.threads.map(work, self._tiles(prior, batch)):
            self._pending.append((index, refined))
            if total is None:
                total = sums
            else:
                total += sums
        assert total is not None
        total.n_rows = total.n_rows if n_drawn is None else n_drawn
        return total

    def overlap(self, first: Callable[[], First], second: Callable[[], Second]) -> tuple[First, Second]:
        """first() and second(), which do not need each other, at once where that is possible."""
        return self.threads.both(first, second)

    def summed_sites(self, prior: Prior) -> Naturals:
        """The naturals of all sites as they are, under this prior."""

        def work(tile: Block) -> Naturals:
            return summed_sites(*self._rows_and_sites(tile, prior.dtype), prior)

        return reduce(Naturals.__add__, self.threads.map(work, self._tiles(prior)))

    def of_all_rows(self, values: Array) -> Array:
        """Values [n] as values of all rows that the user has passed, if the source left some out."""
        return self.source.of_all_rows(values)

    def batches(self, size: int, rng: np.random.Generator, skip: int = 0) -> Iterator[Block]:
        """The source's minibatches."""
        return self.source.batches(size, rng, skip)

    def spared_rows(self, share: float, most: int, rng: np.random.Generator) -> LoadedBlock:
        """About `most` of the rows that training has been spared, all there are if they are fewer."""
        return spared_rows(self.batches(min(most, self.n_rows), rng), share, most)

    def first_rows(self, count: int) -> RawRows:
        """At most `count` rows from the beginning."""
        return next(iter(self.source.blocks(count))).load()

    def adopt(self, previous: Any) -> bool:
        """Go on with copies of the sites of an earlier engine over as many rows, if they are enough."""
        if not isinstance(previous, LocalEngine) or previous.n_rows != self.n_rows:
            return False
        if self.sites.shapes != previous.sites.shapes:
            return False
        self.sites.put(slice(None), previous.sites)
        return True

    def saved_rows(self, path: Path) -> dict[str, Array]:
        """Sites and leave-one-out probabilities, for a checkpoint."""
        arrays = {
            "sites.precision": self.sites.precision,
            "sites.shift": self.sites.shift,
            "log_predictive": self.log_predictive,
        }
        if self.sites.directions is not None:
            arrays["sites.directions"] = self.sites.directions
        return arrays

    def restore_rows(self, path: Path, arrays: dict[str, Array]) -> None:
        """Sites and leave-one-out probabilities from a checkpoint."""
        self.sites = Sites(
            arrays["sites.precision"], arrays["sites.shift"], arrays.get("sites.directions")
        )
        self.log_predictive = arrays["log_predictive"]

    def forget_saved_rows(self, path: Path) -> None:
        """Nothing lies beside the checkpoint."""

    def commit(self) -> None:
        """Make the sites of the last pass the current ones."""
        for index, refined in self._pending:
            if refined.sites is not None:
                self.sites.put(index, refined.sites)
            self.log_predictive[index] = refined.log_predictive
        self._pending = []

    def _tiles(self, prior: Prior, batch: Block | None = None) -> Iterable[Block]:
        m, d, n_latents = len(prior.Z), self.source.n_features, self.rule.n_latents
        size = tile_rows(m, d, prior.dtype, n_latents)
        if batch is None:
            return self.source.blocks(size)
        n_rows = _length(batch.index)
        return _split(batch, max(-(-n_rows // size), minibatch_tiles(n_rows, m, d, n_latents)))

    def _rows_and_sites(self, tile: Block, dtype: Dtype) -> tuple[Rows, Sites]:
        X, labels, weight = tile.load()
        if self.held_out is not None:
            kept = ~self.held_out.mask[tile.index]
            weight = kept.astype(np.float64) if weight is None else weight * kept
        importance_weight = tile.importance_weight if isinstance(tile, LoadedBlock) else None
        rows = Rows(self.standardizer.apply(X, dtype), labels, weight, importance_weight)
        return rows, self.sites.take(tile.index)


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
