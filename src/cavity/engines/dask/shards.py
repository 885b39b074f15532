"""Rows of a lazy table, read into shards that the workers of a cluster hold."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from copy import copy

import dask
import numpy as np
from distributed import Future
from sklearn.base import BaseEstimator

from cavity.data.labels import encode_labels
from cavity.data.routing import Routing
from cavity.data.sampling import row_hash
from cavity.data.source import (
    NO_SETS,
    RawRows,
    RowSource,
    joined,
    row_number_type,
    tile_precision,
)
from cavity.data.statistics import Moments
from cavity.data.weights import checked_class_factors
from cavity.engines.dask.cluster import Cluster
from cavity.engines.dask.collections import LazyTable, Partition, PartitionSummary, summarise
from cavity.engines.dask.comm import GroupRows, identity
from cavity.engines.dask.layout import ShardLayout, shard_pieces, slot_of, worker_slots
from cavity.engines.dask.worker import (
    leaves_of_group,
    shard_moments,
    take_rows,
    values_of_group,
)
from cavity.memory import require_memory
from cavity.typing import AnyArray, Array, ClassWeight, IntArray

_BYTES_TO_SORT = 28
"""Bytes a row that the driver needs to put rows in the order of their leaves."""
_BYTES_BESIDE = 16
"""Bytes of a row's label and weight, at most."""


class ShardedSource(RowSource):
    """The rows of a lazy table, held by the workers; the driver has counts, classes and samples."""

    order: IntArray | None = None
    """Number [n] of each row in the table, if the rows are held in the order of their leaves."""
    leaf_counts: IntArray | None = None
    """Number of rows of each leaf, if they are."""
    _in_table_order: ShardedSource | None = None

    def __init__(self, table: LazyTable, cluster: Cluster, class_weight: ClassWeight = None) -> None:
        self.table = table
        self.cluster = cluster
        self.feature_names = table.feature_names
        self.feature_sets, self.reserved = table.feature_sets, table.reserved
        self._views: dict[int, ShardedSource] = {}
        """The same rows with fewer features, by number of features."""
        self._partitions = self._compute()
        found = cluster.run(self._summaries, self._recompute)
        self.lengths = [part.n_rows for part in found]
        self.n_rows: int = sum(self.lengths)
        if self.n_rows == 0:
            raise ValueError("X has no rows: found array with 0 sample(s), at least 1 is required")
        self.n_features: int = found[0].n_features
        self.dtype = tile_precision(np.result_type(*(part.dtype for part in found)))
        self.classes: AnyArray = np.unique(np.concatenate([p.classes for p in found if p.n_rows]))
        totals = _class_totals(found, self.classes)
        factors = checked_class_factors(class_weight, self.classes, totals)
        self._factors = factors
        self._class_totals = totals if factors is None else totals * factors
        self.total_weight = float(self._class_totals.sum())
        self.layout = ShardLayout.of(self.n_rows)
        self.groups = self.layout.groups(max(1, cluster.n_workers))
        self.rows = [self._read(number) for number in range(len(self.groups))]
        # Each group of shards can read its rows again: the partitions need not be held.
        self._load()
        self._spread()
        self._partitions = []

    @property
    def class_totals(self) -> Array:
        """Total weight of each class [C]."""
        return self._class_totals

    def _compute(self) -> list[Future]:
        return list(self.cluster.client.compute(self.table.partitions))

    def _recompute(self) -> None:
        self._partitions = self._compute()

    def _summaries(self) -> list[Future]:
        return list(self.cluster.client.map(summarise, self._partitions, pure=False))

    def _read(self, number: int) -> Future:
        """A task that reads the rows of a group: at first evenly spread, later on any worker."""
        if self._in_table_order is not None:
            return self._gather(number, self._in_table_order)
        client = self.cluster.client
        partitions = self._partitions or self._compute()
        group = self.groups[number]
        needed, pieces = shard_pieces(self.lengths, self.layout, group)
        starts = tuple(self.layout.bounds(shard)[0] for shard in group)
        return client.submit(
            read_group,
            [partitions[i] for i in needed],
            pieces,
            group.start,
            starts,
            self.classes,
            self._factors,
            self.n_features,
            pure=False,
            **self._preferring(self._worker_for(number, worker_slots(client.nthreads()))),
        )

    def _worker_for(self, group: int, places: list[str]) -> str | None:
        """The worker that a group is meant for; None if there is no worker."""
        return places[slot_of(group, len(self.groups), len(places))] if places else None

    def _preferring(self, home: str | None) -> dict[str, list[str] | bool]:
        """Options of a task that should run on a worker, if that is there."""
        return {} if home is None else {"workers": [home], "allow_other_workers": True}

    def _load(self) -> None:
        self.cluster.run(lambda: self.cluster.client.map(_loaded, self.rows, pure=False), self.reload)

    def _spread(self) -> None:
        """Move groups to the workers that they were meant for: one that was slow to start has fewer."""
        client = self.cluster.client
        holders, places = client.who_has(self.rows), worker_slots(client.nthreads())
        for i, rows in enumerate(self.rows):
            home = self._worker_for(i, places)
            if home not in holders.get(rows.key, ()):
                self.rows[i] = client.submit(identity, rows, pure=False, **self._preferring(home))
        self._load()

    def reload(self) -> None:
        """Read rows again that were lost."""
        if self._in_table_order is not None:
            self._in_table_order.reload()
        lost = [i for i, rows in enumerate(self.rows) if rows.status in ("cancelled", "lost", "error")]
        if lost:
            if self._in_table_order is None:
                self._partitions = self._compute()
            for i in lost:
                self.rows[i] = self._read(i)
            self._partitions = []

    def by_leaf(self, routing: Routing, rows_of_a_leaf: int | None = None) -> ShardedSource:
        """The same rows in the order of their leaves: a shard has rows of few leaves, a leaf few shards.

        In a leaf the order is random, but the same for any number of workers. rows_of_a_leaf: see
        `leaf_batches`. Raises `MemoryError` if the rows cannot be held twice.
        """
        self._require_memory_to_sort()
        groups = self.cluster.run(
            lambda: self.cluster.client.map(leaves_of_group, self.rows, routing=routing, pure=False),
            self.reload,
        )
        leaf = np.concatenate(groups)
        numbers = np.arange(self.n_rows, dtype=row_number_type(self.n_rows))
        other = copy(self)
        other._views, other._in_table_order = {}, self
        other.rows_of_a_leaf = rows_of_a_leaf
        other.order = numbers[np.lexsort((row_hash(numbers), leaf))]
        other.leaf_counts = np.bincount(leaf, minlength=routing.n_leaves)
        other.rows = []

        def collect() -> list[Future]:
            other.rows = other.rows or [other._read(number) for number in range(len(other.groups))]
            return list(self.cluster.client.map(_loaded, other.rows, pure=False))

        self.cluster.run(collect, other.reload)
        return other

    def _require_memory_to_sort(self) -> None:
        """Refuse to put the rows in another order if driver or workers lack the memory for it."""
        what, instead = f"sorting {self.n_rows:,} rows by their leaves", "leaves=None"
        require_memory(_BYTES_TO_SORT * self.n_rows, f"{what}, on the driver,", instead)
        row = self.dtype.itemsize * self.n_features + _BYTES_BESIDE
        self.cluster.require_memory(2 * row * self.n_rows, what, f"more workers, or {instead}")

    def _gather(self, number: int, table: ShardedSource) -> Future:
        """A task that collects the rows of a group from the groups of the table."""
        assert self.order is not None
        client, group, order = self.cluster.client, self.groups[number], self.order
        bounds = [self.layout.bounds(shard) for shard in group]
        wanted = order[bounds[0][0] : bounds[-1][1]]
        first = np.array([self.layout.bounds(shards[0])[0] for shards in self.groups])
        source = np.searchsorted(first, wanted, side="right") - 1
        parts, places = [], []
        home = self._preferring(self._worker_for(number, worker_slots(client.nthreads())))
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}):
            for i in np.unique(source):
                mine = np.flatnonzero(source == i)
                mine = mine[np.argsort(wanted[mine])]
                parts.append(client.submit(take_rows, table.rows[i], wanted[mine], pure=False))
                places.append(mine)
            sizes = tuple(stop - start for start, stop in bounds)
            starts, back = tuple(start for start, _ in bounds), np.argsort(np.concatenate(places))
            return client.submit(
                collect_group, parts, back, group.start, starts, sizes, pure=False, **home
            )

    def leaves_of(self, shards: Iterable[int]) -> tuple[int, ...]:
        """The leaves that rows of some shards are in."""
        assert self.leaf_counts is not None
        found: set[int] = set()
        ends = np.cumsum(self.leaf_counts)
        for shard in shards:
            start, stop = self.layout.bounds(shard)
            low, high = np.searchsorted(ends, [start, stop - 1], side="right")
            found.update(k for k in range(low, high + 1) if self.leaf_counts[k])
        return tuple(sorted(found))

    def held_numbers(self, numbers: IntArray) -> IntArray:
        """Sorted numbers of rows as they are held, from their numbers in the table."""
        if self.order is None:
            return numbers
        return np.flatnonzero(np.isin(self.order, numbers))

    def values_of(self, estimator: BaseEstimator) -> list[AnyArray]:
        """The different values that a user's estimator says of the rows of each group."""
        found: list[AnyArray] = self.cluster.run(
            lambda: self.cluster.client.map(values_of_group, self.rows, estimator=estimator, pure=False),
            self.reload,
        )
        return found

    def leading(self, n_features: int) -> ShardedSource:
        """The same rows with the first columns of X alone; views, where the rows are."""
        if n_features not in self._views:
            view = copy(self)
            view.n_features, view.feature_sets, view._views = n_features, NO_SETS, {}
            if self.feature_names is not None:
                view.feature_names = self.feature_names[:n_features]
            view.rows = self.cluster.client.map(_leading, self.rows, n_features=n_features, pure=False)
            self._views[n_features] = view
        return self._views[n_features]

    def moments(self, *, products: bool = False) -> Iterator[Moments]:
        """Moments of the columns of each shard."""
        parts = self.cluster.run(
            lambda: self.cluster.client.map(shard_moments, self.rows, products=products, pure=False),
            self.reload,
        )
        return (moments for group in parts for moments in group)

    def label_digests(self) -> list[str]:
        """Digests of the labels and weights of each shard, which a checkpoint is compared with."""
        parts = self.cluster.run(
            lambda: self.cluster.client.map(digests_of, self.rows, pure=False), self.reload
        )
        return [text for group in parts for text in group]

    def take(self, numbers: IntArray) -> RawRows:
        """The rows with these sorted numbers in the table."""
        if self._in_table_order is not None:
            return self._in_table_order.take(numbers)
        starts = [self.layout.bounds(group.start)[0] for group in self.groups]
        cuts = np.searchsorted(numbers, [*starts, self.n_rows])
        wanted = [i for i in range(len(self.groups)) if cuts[i] < cuts[i + 1]]

        def submit() -> list[Future]:
            return [
                self.cluster.client.submit(
                    take_rows, self.rows[i], numbers[cuts[i] : cuts[i + 1]], pure=False
                )
                for i in wanted
            ]

        return joined(self.cluster.run(submit, self.reload))


def read_group(
    partitions: list[Partition],
    pieces: list[list[tuple[int, int, int]]],
    first: int,
    starts: tuple[int, ...],
    classes: AnyArray,
    factors: Array | None,
    n_features: int,
) -> GroupRows:
    """The rows of some shards from the partitions that contain them; runs on a worker."""
    shards = []
    for shard in pieces:
        X = np.concatenate([partitions[i].X[start:stop, :n_features] for i, start, stop in shard])
        y = np.concatenate([partitions[i].y[start:stop] for i, start, stop in shard])
        _, codes = encode_labels(y, classes)
        rows = RawRows(X, codes, _weights(partitions, shard))
        shards.append(rows.with_class_factors(factors))
    return GroupRows(first, starts, tuple(shards))


def collect_group(
    parts: list[RawRows], back: IntArray, first: int, starts: tuple[int, ...], sizes: tuple[int, ...]
) -> GroupRows:
    """The rows of some shards from parts of other groups; runs on a worker.

    back: where each row is among the parts; sizes: numbers of rows of the shards.
    """
    rows, ends = joined(parts).take(back), np.cumsum(sizes)
    shards = [rows.take(np.arange(end - size, end)) for size, end in zip(sizes, ends, strict=True)]
    return GroupRows(first, starts, tuple(shards))


def _leading(rows: GroupRows, n_features: int) -> GroupRows:
    """The rows of a group with the first columns of X alone; runs on a worker."""
    shards = tuple(shard._replace(X=shard.X[:, :n_features]) for shard in rows.shards)
    return rows._replace(shards=shards)


def digests_of(rows: GroupRows) -> list[str]:
    """Digests of the labels and weights of each shard; runs on a worker."""
    texts = []
    for shard in rows.shards:
        values = [np.asarray(shard.labels, np.int32).tobytes()]
        values += [] if shard.weight is None else [np.asarray(shard.weight, np.float64).tobytes()]
        texts.append(hashlib.sha256(b"".join(values)).hexdigest()[:16])
    return texts


def _weights(partitions: list[Partition], shard: list[tuple[int, int, int]]) -> Array | None:
    """Weights of the rows of a shard; None if every row counts once."""
    if partitions[shard[0][0]].weight is None:
        return None
    parts = []
    for i, start, stop in shard:
        weight = partitions[i].weight
        assert weight is not None  # all partitions have one, or none has
        parts.append(weight[start:stop])
    return np.concatenate(parts)


def _class_totals(found: list[PartitionSummary], classes: AnyArray) -> Array:
    totals = np.zeros(len(classes))
    for part in found:
        totals[np.searchsorted(classes, part.classes)] += part.totals
    return totals


def _loaded(rows: GroupRows) -> int:
    return len(rows.shards)
