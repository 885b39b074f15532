"""Which rows a shard has, which worker holds it, and which rows of it a minibatch draws.

Shards and minibatches depend on the number of rows and the seed, and so does the binary tree along which
the sums of shards are added up. Groups of shards, which are held and moved as one, may depend on the
number of workers: no sum changes by a single bit. No random order of all rows is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cavity.data.source import batch_count
from cavity.engines.dask.worker import ShardSample

LEAST_ROWS = 1_024
"""Fewest rows of a shard, if there are several: products are fast with about a thousand rows."""
MOST_ROWS = 131_072
"""Most rows of a shard, which limits what is lost with a worker and the memory of a task."""
PLENTY = 256
"""Number of shards from which more rows make the shards larger, up to MOST_ROWS, not more."""
GROUPS_PER_WORKER = 2
"""Groups of shards per worker at the start, so that workers that join later can be given some."""


@dataclass(frozen=True)
class ShardLayout:
    """Rows 0 … n_rows − 1 in shards whose sizes differ by one at most.

    >>> layout = ShardLayout.of(60_000)
    >>> layout.n_shards, layout.bounds(1)
    (32, (1875, 3750))
    >>> [len(group) for group in layout.groups(n_workers=2)]
    [8, 8, 8, 8]
    """

    n_rows: int
    n_shards: int

    @classmethod
    def of(cls, n_rows: int) -> ShardLayout:
        """The layout of `n_rows` rows; the number of shards is a power of two."""
        n_shards = 1
        while 2 * n_shards <= min(PLENTY, n_rows // LEAST_ROWS):
            n_shards *= 2
        while n_rows > n_shards * MOST_ROWS:
            n_shards *= 2
        return cls(n_rows, n_shards)

    def bounds(self, shard: int) -> tuple[int, int]:
        """Number of the first row of a shard, and of the next shard."""
        n, count = self.n_rows, self.n_shards
        return n * shard // count, n * (shard + 1) // count

    def rows(self, shard: int) -> int:
        """Number of rows of a shard."""
        start, stop = self.bounds(shard)
        return stop - start

    def groups(self, n_workers: int) -> list[range]:
        """The shards of each group for `n_workers` workers: few groups, all of the same size."""
        size = 1
        while self.n_shards // (2 * size) >= GROUPS_PER_WORKER * n_workers:
            size *= 2
        return [range(i, i + size) for i in range(0, self.n_shards, size)]


def worker_slots(threads: dict[str, int]) -> list[str]:
    """The workers, each as many times as it has threads.

    >>> worker_slots({"b": 1, "a": 2})
    ['a', 'a', 'b']
    """
    return [worker for worker in sorted(threads) for _ in range(threads[worker])]


def slot_of(group: int, n_groups: int, n_slots: int) -> int:
    """The slot that a group is dealt to: neighbours together, and equally many to each slot.

    >>> [slot_of(group, 8, 3) for group in range(8)]
    [0, 0, 0, 1, 1, 1, 2, 2]
    """
    return group * n_slots // n_groups


def shard_pieces(
    lengths: list[int], layout: ShardLayout, group: range
) -> tuple[list[int], list[list[tuple[int, int, int]]]]:
    """Where the rows of some shards lie in partitions of the given lengths.

    Returns the partitions that are needed, and for each shard its pieces (place among those partitions,
    first row, row after the last).

    >>> shard_pieces([4, 0, 1, 5], ShardLayout(10, 2), range(0, 1))
    ([0, 2], [[(0, 0, 4), (1, 0, 1)]])
    """
    needed: list[int] = []
    pieces: list[list[tuple[int, int, int]]] = [[] for _ in group]
    begin = 0
    for partition, length in enumerate(lengths):
        end = begin + length
        for i, shard in enumerate(group):
            start, stop = layout.bounds(shard)
            low, high = max(start, begin), min(stop, end)
            if low < high:
                if not needed or needed[-1] != partition:
                    needed.append(partition)
                pieces[i].append((len(needed) - 1, low - begin, high - begin))
        begin = end
    return needed, pieces


_LEAST_SHARDS = 8
"""Fewest shards that a minibatch is drawn from: the rows of one shard may all be alike."""
_ROWS_OF_SHARD = 512
"""Rows that a large minibatch takes from each of its shards, about."""

ShardBatch = dict[int, ShardSample]
"""A minibatch: by number of a shard, which of its rows."""


def shard_batches(
    layout: ShardLayout, size: int, rng: np.random.Generator, skip: int = 0
) -> Iterator[ShardBatch]:
    """All rows once, in minibatches of about `size`; the first `skip` are left out.

    The shards are put in random order and used in rounds. In a round every minibatch takes an equal part
    of each of the round's shards, in a random order of its rows that the worker makes.

    >>> layout = ShardLayout(1_000, 4)
    >>> batches = list(shard_batches(layout, 100, np.random.default_rng(0)))
    >>> len(batches), sorted(batches[0]), batches[0][0].parts
    (10, [0, 1, 2, 3], 10)
    """
    order = rng.permutation(layout.n_shards)
    entropy = int(rng.integers(2**63))
    most = min(size, max(_LEAST_SHARDS, size // _ROWS_OF_SHARD))
    n_rounds = -(-layout.n_shards // most)
    for chosen in np.array_split(order, n_rounds):
        shards = sorted(int(shard) for shard in chosen)
        rows = [layout.rows(shard) for shard in shards]
        parts = min(batch_count(sum(rows), size), *rows)  # no minibatch without rows of each shard
        for part in range(parts):
            if skip:
                skip -= 1
                continue
            yield {shard: ShardSample(entropy, part, parts) for shard in shards}


def leaf_batches(
    layout: ShardLayout,
    size: int,
    rng: np.random.Generator,
    rows_of_a_leaf: int | None = None,
    skip: int = 0,
) -> Iterator[ShardBatch]:
    """All rows once, in minibatches of a few leaves each, if the rows are in the order of leaves.

    The shards are cut into chunks of about `rows_of_a_leaf` random rows, by default `size`, and a
    minibatch has some chunks, drawn at random.

    >>> layout = ShardLayout(4_000, 2)
    >>> batches = list(leaf_batches(layout, 1_000, np.random.default_rng(0)))
    >>> len(batches), [sample.parts for batch in batches for sample in batch.values()]
    (4, [2, 2, 2, 2])
    """
    n_chunks, entropy = max(1, round(size / (rows_of_a_leaf or size))), int(rng.integers(2**63))
    parts = [batch_count(layout.rows(shard), size // n_chunks) for shard in range(layout.n_shards)]
    chunks = [(shard, part) for shard, count in enumerate(parts) for part in range(count)]
    turn = rng.permutation(len(chunks))
    for numbers in np.array_split(turn, max(1, round(len(chunks) / n_chunks)))[skip:]:
        chosen: dict[int, list[int]] = {}
        for shard, part in sorted(chunks[number] for number in numbers):
            chosen.setdefault(shard, []).append(part)
        yield {
            shard: ShardSample(entropy, some[0], parts[shard], tuple(some[1:]))
            for shard, some in chosen.items()
        }
