"""Rows on a cluster, in shards: what `Source` is to one machine."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from distributed import Future
from numpy.typing import NDArray

from cavity.dask.cluster import Cluster
from cavity.dask.collections import Census, LazyTable, Partition, census
from cavity.dask.layout import ShardLayout, slot_of, slots, spans
from cavity.dask.messages import GroupRows, itself
from cavity.dask.tasks import moments_of, picked
from cavity.estimators.weights import checked_class_factors
from cavity.sources.blocks import code_type, joined, tile_precision
from cavity.sources.protocol import RawRows
from cavity.standardize import Standardizer, learn_standardizer
from cavity.typing import Array, IntArray


class ShardedSource:
    """The rows of a lazy table, held by the workers; the driver sees counts, classes and samples."""

    def __init__(self, table: LazyTable, cluster: Cluster, class_weight: Any = None) -> None:
        self.table = table
        self.cluster = cluster
        self.feature_names = table.feature_names
        self._partitions = self._compute()
        found = cluster.run(self._censuses, self._recompute)
        self.lengths = [part.n_rows for part in found]
        self.n_rows: int = sum(self.lengths)
        if self.n_rows == 0:
            raise ValueError("X has no rows: found array with 0 sample(s), at least 1 is required")
        self.n_features: int = found[0].n_features
        self.dtype = tile_precision(np.result_type(*(part.dtype for part in found)))
        self.classes: NDArray[Any] = np.unique(np.concatenate([p.classes for p in found if p.n_rows]))
        totals = _class_totals(found, self.classes)
        factors = checked_class_factors(class_weight, self.classes, totals)
        self._factors = factors
        self.total_weight = float(totals.sum() if factors is None else totals @ factors)
        self.layout = ShardLayout.of(self.n_rows)
        self.groups = self.layout.groups(max(1, cluster.n_workers))
        self.rows = [self._read(number) for number in range(len(self.groups))]
        # Each group of shards knows how to read its rows again: the partitions need not be held.
        self._load()
        self._spread()
        self._partitions = []

    def _compute(self) -> list[Future]:
        return list(self.cluster.client.compute(self.table.partitions))

    def _recompute(self) -> None:
        self._partitions = self._compute()

    def _censuses(self) -> list[Future]:
        return list(self.cluster.client.map(census, self._partitions, pure=False))

    def _read(self, number: int) -> Future:
        """The rows of a group as a task that reads them, on any worker but evenly spread at first."""
        client = self.cluster.client
        partitions = self._partitions or self._compute()
        group = self.groups[number]
        needed, pieces = spans(self.lengths, self.layout, group)
        starts = tuple(self.layout.bounds(shard)[0] for shard in group)
        return client.submit(
            read_group,
            [partitions[i] for i in needed],
            pieces,
            group.start,
            starts,
            self.classes,
            self._factors,
            pure=False,
            **self._wish(self._home(number, slots(client.nthreads()))),
        )

    def _home(self, group: int, places: list[str]) -> str | None:
        return places[slot_of(group, len(self.groups), len(places))] if places else None

    def _wish(self, home: str | None) -> dict[str, Any]:
        return {} if home is None else {"workers": [home], "allow_other_workers": True}

    def _load(self) -> None:
        self.cluster.run(lambda: self.cluster.client.map(_loaded, self.rows, pure=False), self.reload)

    def _spread(self) -> None:
        """Move groups to where they were meant to be: a worker that was slow to start has fewer."""
        client = self.cluster.client
        holders, places = client.who_has(self.rows), slots(client.nthreads())
        for i, rows in enumerate(self.rows):
            home = self._home(i, places)
            if home not in holders.get(rows.key, ()):
                self.rows[i] = client.submit(itself, rows, pure=False, **self._wish(home))
        self._load()

    def reload(self) -> None:
        """Read again what cannot be had any more."""
        lost = [i for i, rows in enumerate(self.rows) if rows.status in ("cancelled", "lost", "error")]
        if lost:
            self._partitions = self._compute()
            for i in lost:
                self.rows[i] = self._read(i)
            self._partitions = []

    def standardizer(self, *, whiten: bool = False) -> Standardizer:
        """Centre and scale of all rows, and a turn; the driver sees the moments of shards."""
        parts = self.cluster.run(
            lambda: self.cluster.client.map(moments_of, self.rows, products=whiten, pure=False),
            self.reload,
        )
        return learn_standardizer(moments for group in parts for moments in group)

    def label_digests(self) -> list[str]:
        """Of the labels and weights of each shard, made where they lie: by them a fit is known."""
        parts = self.cluster.run(
            lambda: self.cluster.client.map(digests_of, self.rows, pure=False), self.reload
        )
        return [text for group in parts for text in group]

    def sample(self, size: int, rng: np.random.Generator) -> RawRows:
        """At most `size` rows drawn at random without replacement, the same as on one machine."""
        numbers = rng.choice(self.n_rows, size=min(size, self.n_rows), replace=False)
        return self.take(np.sort(numbers))

    def first_rows(self, count: int) -> RawRows:
        """At most `count` rows from the beginning."""
        return self.take(np.arange(min(count, self.n_rows)))

    def take(self, numbers: IntArray) -> RawRows:
        """The rows with these sorted numbers."""
        starts = [self.layout.bounds(group.start)[0] for group in self.groups]
        cuts = np.searchsorted(numbers, [*starts, self.n_rows])
        wanted = [i for i in range(len(self.groups)) if cuts[i] < cuts[i + 1]]

        def submit() -> list[Future]:
            return [
                self.cluster.client.submit(
                    picked, self.rows[i], numbers[cuts[i] : cuts[i + 1]], pure=False
                )
                for i in wanted
            ]

        return joined(self.cluster.run(submit, self.reload))


def read_group(
    partitions: list[Partition],
    pieces: list[list[tuple[int, int, int]]],
    first: int,
    starts: tuple[int, ...],
    classes: NDArray[Any],
    factors: Array | None,
) -> GroupRows:
    """The rows of some shards from the partitions they lie in; runs on a worker."""
    code = code_type(len(classes))
    shards = []
    for shard in pieces:
        X = np.concatenate([partitions[i].X[start:stop] for i, start, stop in shard])
        y = np.concatenate([partitions[i].y[start:stop] for i, start, stop in shard])
        codes: IntArray = np.searchsorted(classes, y).astype(code)
        shards.append(RawRows(X, codes, _weights(partitions, shard, codes, factors)))
    return GroupRows(first, starts, tuple(shards))


def digests_of(rows: GroupRows) -> list[str]:
    """Digests of the labels and weights of each shard; runs on a worker."""
    texts = []
    for shard in rows.shards:
        values = [np.asarray(shard.labels, np.int32).tobytes()]
        values += [] if shard.weight is None else [np.asarray(shard.weight, np.float64).tobytes()]
        texts.append(hashlib.sha256(b"".join(values)).hexdigest()[:16])
    return texts


def _weights(
    partitions: list[Partition],
    shard: list[tuple[int, int, int]],
    codes: IntArray,
    factors: Array | None,
) -> Array | None:
    """What the rows of a shard count, None if every one counts once."""
    if partitions[shard[0][0]].weight is None:
        return None if factors is None else factors[codes]
    parts = []
    for i, start, stop in shard:
        weight = partitions[i].weight
        assert weight is not None  # all partitions have one, or none has
        parts.append(weight[start:stop])
    weight = np.concatenate(parts)
    return weight if factors is None else weight * factors[codes]


def _class_totals(found: list[Census], classes: NDArray[Any]) -> Array:
    totals = np.zeros(len(classes))
    for part in found:
        totals[np.searchsorted(classes, part.classes)] += part.totals
    return totals


def _loaded(rows: GroupRows) -> int:
    return len(rows.shards)
