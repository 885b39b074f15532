"""How rows are cut into shards, shards put together into groups, and groups dealt out to workers.

The shards depend on the number of rows alone. They are added up along a binary tree that is fixed with
them; a task adds up what it has of it. So the groups, which are held and moved as one, and the tasks may
follow the number of workers, and no sum changes by a single bit.
"""

from __future__ import annotations

from dataclasses import dataclass

LEAST_ROWS = 1_024
"""Of a shard, if there are several: products want about a thousand rows."""
MOST_ROWS = 131_072
"""Of a shard: what a lost worker costs, and what a task holds besides its result, stay bounded."""
PLENTY = 256
"""Shards that are enough for any cluster which so few rows are worth."""
GROUPS_PER_WORKER = 2
"""Groups of shards for each worker there is at the start: workers that are added get some of them."""


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

    def groups(self, n_workers: int) -> list[range]:
        """The shards of each group, when there are so many workers: of all as many, and few groups."""
        size = 1
        while self.n_shards // (2 * size) >= GROUPS_PER_WORKER * n_workers:
            size *= 2
        return [range(i, i + size) for i in range(0, self.n_shards, size)]


def slots(threads: dict[str, int]) -> list[str]:
    """The workers, each as many times as it has threads.

    >>> slots({"b": 1, "a": 2})
    ['a', 'a', 'b']
    """
    return [worker for worker in sorted(threads) for _ in range(threads[worker])]


def slot_of(group: int, n_groups: int, n_slots: int) -> int:
    """The slot that a group is dealt to: neighbours together, and as many to each as to the others.

    >>> [slot_of(group, 8, 3) for group in range(8)]
    [0, 0, 0, 1, 1, 1, 2, 2]
    """
    return group * n_slots // n_groups


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
