"""Minibatches over shards: the seed decides, not the cluster, and no order of all rows is ever made."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cavity.dask.layout import ShardLayout
from cavity.dask.tasks import Draw
from cavity.sources.blocks import batch_count

_LEAST_SHARDS = 8
"""Shards that a minibatch is drawn from, if there are so many: a shard may be all of one kind."""
_ROWS_OF_SHARD = 512
"""Rows that a large minibatch takes from each of its shards."""

ShardBatch = dict[int, Draw]
"""Which rows of which shards."""


def shard_batches(
    layout: ShardLayout, size: int, rng: np.random.Generator, skip: int = 0
) -> Iterator[ShardBatch]:
    """All rows once, in minibatches of about `size`; the first `skip` are left out.

    The shards are put in random order and dealt out in rounds. In a round every minibatch takes its even
    share of each of the round's shards, in a random order of its rows that a worker makes where it needs
    it.

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
            yield {shard: Draw(entropy, part, parts) for shard in shards}
