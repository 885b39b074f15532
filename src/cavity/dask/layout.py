"""How rows are cut into shards, and shards put together into tasks.

The shards depend on the number of rows alone. They are added up along a binary tree that is fixed with
them; a task runs a whole subtree of it. So the size of the tasks may follow the number of workers, and
no sum changes by a single bit.
"""

from __future__ import annotations

from dataclasses import dataclass

LEAST_ROWS = 1_024
"""Of a shard, if there are several: products want about a thousand rows."""
MOST_ROWS = 131_072
"""Of a shard: what a lost worker costs, and what a task holds besides its result, stay bounded."""
PLENTY = 256
"""Shards that are enough for any cluster which so few rows are worth."""
TASKS_PER_WORKER = 4
"""Tasks of a pass for each worker there is at the start: some slack for unequal or added workers."""


@dataclass(frozen=True)
class ShardLayout:
    """Rows 0 … n_rows − 1 in shards whose sizes differ by one at most.

    >>> layout = ShardLayout.of(60_000)
    >>> layout.n_shards, layout.bounds(1)
    (32, (1875, 3750))
    >>> [len(group) for group in layout.groups(n_workers=2)]
    [4, 4, 4, 4, 4, 4, 4, 4]
    """

    n_rows: int
    n_shards: int

    @classmethod
    def of(cls, n_rows: int) -> ShardLayout:
        """The shards of so many rows: a power of two, so that they divide evenly."""
        n_shards = 1
        while 2 * n_shards <= min(PLENTY, n_rows // LEAST_ROWS):
            n_shards *= 2
        while n_rows > n_shards * MOST_ROWS:
            n_shards *= 2
        return cls(n_rows, n_shards)

    def bounds(self, shard: int) -> tuple[int, int]:
        """First row of a shard, and of the one after it."""
        n, count = self.n_rows, self.n_shards
        return n * shard // count, n * (shard + 1) // count

    def rows(self, shard: int) -> int:
        """Number of rows of a shard."""
        start, stop = self.bounds(shard)
        return stop - start

    def levels(self, n_workers: int) -> int:
        """Levels of the tree that one task climbs, when there are so many workers."""
        levels = 0
        while self.n_shards >> (levels + 1) >= TASKS_PER_WORKER * n_workers:
            levels += 1
        return levels

    def groups(self, n_workers: int) -> list[range]:
        """The shards of each task."""
        size = 1 << self.levels(n_workers)
        return [range(i, min(i + size, self.n_shards)) for i in range(0, self.n_shards, size)]


def spans(
    lengths: list[int], layout: ShardLayout, group: range
) -> tuple[list[int], list[list[tuple[int, int, int]]]]:
    """Where the rows of some shards lie in partitions of the given lengths.

    Returns the partitions that are needed, and for each shard its pieces (place among those partitions,
    first row, row after the last).

    >>> spans([4, 0, 1, 5], ShardLayout(10, 2), range(0, 1))
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
