"""Fits on a Dask cluster: groups of shards as tasks, sites on the workers, one tree of sums."""

from __future__ import annotations

import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import dask
import dask.array
import numpy as np
from distributed import Client, Future
from sklearn.base import BaseEstimator

from cavity.data.routing import EstimatorRouting, Routing, routing_by_values
from cavity.data.sampling import EVERY_ROW, RowSampler
from cavity.data.source import RowSource
from cavity.data.statistics import Moments
from cavity.engines.backend import Backend
from cavity.engines.dask.cluster import Cluster
from cavity.engines.dask.comm import FitSettings, Message, unpack_sums
from cavity.engines.dask.layout import ShardBatch, leaf_batches, shard_batches
from cavity.engines.dask.passes import Assignment, GroupStates, MakeTask, PassResult, PassRunner, Task
from cavity.engines.dask.recovery import (
    RecoveryLog,
    make_folder,
    read_group_state,
    remove_folder,
    repair,
    report_unwritten,
    write_group,
)
from cavity.engines.dask.shards import ShardedSource
from cavity.engines.dask.worker import leave_one_out, release_state, run_pass, state_key
from cavity.engines.protocol import Engine, Pass
from cavity.engines.threads import Threads
from cavity.gp.tiles import Sums
from cavity.typing import Array


class Pending(NamedTuple):
    """A pass that waits to be committed."""

    keys: dict[int, str]
    """Key of the state that the pass has left, by group."""
    result: PassResult
    whole: bool
    """Whether it was over all rows."""


class DaskEngine(Engine):
    """Runs passes on the workers of a cluster; each worker keeps the sites of the rows that it has."""

    source: ShardedSource

    def __post_init__(self) -> None:
        source, fit_id = self.source, uuid.uuid4().hex[:12]
        numbers = np.zeros(0, np.int64) if self.held_out is None else self.held_out.numbers
        self._settings = FitSettings(
            fit_id,
            self.n_latents,
            self.scaling,
            source.held_numbers(numbers),
            self.n_directions,
            source.leaf_counts,
        )
        self._states = GroupStates(self._client, len(source.groups))
        self._passes = PassRunner(source, fit_id, self._states)
        self._recovery = RecoveryLog(self._client, self._states)
        self._pending: Pending | None = None
        self._predecessor: DaskEngine | None = None
        finalizer = weakref.finalize(self, _release, weakref.ref(self._client), fit_id)
        finalizer.atexit = False  # type: ignore[misc]

    def with_held_out_rows(self) -> DaskEngine:
        """An engine in which the held-out rows take part, too; the other rows keep their sites."""
        engine = DaskEngine(self.source, self.scaling, self.n_latents, self.threads)
        engine.adopt(self)
        return engine

    @property
    def _client(self) -> Client:
        return self.source.cluster.client

    def run(
        self, row_pass: Pass, batch: ShardBatch | None = None, sampler: RowSampler = EVERY_ROW
    ) -> Sums:
        """Run a pass over all rows, or over a minibatch; see `Engine.run`."""
        groups = self._groups_of(batch)
        keys: dict[int, str] = {}

        def prepare() -> tuple[Message, MakeTask]:
            message = self.message(row_pass, sampler, batch)
            keys.update({i: state_key(self._settings.fit_id, message.number, i) for i in groups})
            return message, make_task

        def make_task(assignment: Assignment, sent: Future | str) -> Task:
            rows = [self.source.rows[i] for i in assignment.groups]
            states = [self._states[i] for i in assignment.groups]
            own, extent = [keys[i] for i in assignment.groups], assignment.extent
            samples = None if batch is None else {i: batch[i] for i in extent if i in batch}
            return (run_pass, rows, states, sent, own, extent, samples)

        self._pending = None
        result = self._passes.run(prepare, groups, self._repair)
        if row_pass.scores:
            self._pending = Pending(keys, result, whole=batch is None)
        return unpack_sums(result.sums)

    def message(
        self, row_pass: Pass, sampler: RowSampler = EVERY_ROW, batch: ShardBatch | None = None
    ) -> Message:
        """The message of a new pass, over all rows or a minibatch, to its tasks."""
        number, leaves = self._passes.next_number(), None
        if batch is not None and self.source.leaf_counts is not None:
            leaves = self.source.leaves_of(batch)
        needed = self._states.needed_keys
        return Message(self._settings, row_pass, sampler, number, needed, leaves)

    def commit(self) -> None:
        """Let the rows keep the sites and scores of the last pass."""
        self.n_commits += 1
        if self._pending is not None:
            keys, result, whole = self._pending
            self._pending = None
            self._states.update(keys)
            slots = self._passes.slots if whole else None
            self._recovery.committed(result.message, result.packed, slots)
        if (
            self._predecessor is not None
            and not self._states.needed_keys & self._predecessor._states.needed_keys
        ):
            self._predecessor = None

    def batches(self, size: int, rng: np.random.Generator, skip: int = 0) -> Iterator[ShardBatch]:
        """Minibatches over the shards."""
        layout, together = self.source.layout, self.source.rows_of_a_leaf
        if self.source.leaf_counts is None:
            return shard_batches(layout, size, rng, skip)
        return leaf_batches(layout, size, rng, together, skip)

    @property
    def log_predictive(self) -> dask.array.Array:
        """[n], a Dask array: log probability of each label with its row left out."""
        futures = [
            self._client.submit(leave_one_out, *self._inputs(i), pure=False)
            for i in range(len(self._states))
        ]
        chunks = [
            dask.array.from_delayed(
                dask.delayed(future),
                (sum(self.source.layout.rows(shard) for shard in group),),
                dtype=np.float64,
            )
            for future, group in zip(futures, self.source.groups, strict=True)
        ]
        values = dask.array.concatenate(chunks)
        return values if self.source.order is None else values[np.argsort(self.source.order)]

    def adopt(self, previous: Engine | None) -> bool:
        """Start from the sites of an earlier engine on the same cluster over as many rows."""
        if not (
            isinstance(previous, DaskEngine)
            and previous.n_rows == self.n_rows
            and previous.source.groups == self.source.groups
            and previous._client is self._client
            and (previous.n_directions > 0) == (self.n_directions > 0)
        ):
            return False
        self._states.keys = list(previous._states.keys)
        self._recovery.forget()
        self._predecessor = previous  # its workers hold the states until this engine has its own
        return True

    def saved_rows(self, path: Path) -> dict[str, Array]:
        """Have each worker write the state of its shards to files beside the checkpoint."""
        version = f"{self._settings.fit_id}-{self._passes.count}"
        make_folder(path)

        def submit() -> list[Future]:
            return [
                self._client.submit(write_group, *self._inputs(i), str(path), version, pure=False)
                for i in range(len(self._states))
            ]

        written = self._run(submit)
        report_unwritten(path, len(written) - sum(written), len(written))
        return {"shards.version": np.array(version)}

    def restore_rows(self, path: Path, arrays: dict[str, Array]) -> None:
        """Have the workers read the state of their shards; without a file a shard has sites of zero."""
        version = str(arrays["shards.version"])
        groups = range(len(self._states))
        keys: dict[int, str] = {}

        def submit() -> list[Future]:
            fit_id, number = self._settings.fit_id, self._passes.next_number()
            keys.update({i: state_key(fit_id, number, i) for i in groups})
            return [
                self._client.submit(
                    read_group_state,
                    self.source.rows[i], str(path), version, keys[i], fit_id, number, pure=False,
                )
                for i in groups
            ]  # fmt: skip

        self._run(submit)
        self._states.update(keys)
        self._recovery.forget()

    def forget_saved_rows(self, path: Path) -> None:
        """Remove the files of the shards."""
        remove_folder(path)

    def _groups_of(self, batch: ShardBatch | None) -> list[int]:
        if batch is None:
            return list(range(len(self.source.groups)))
        return sorted({shard // len(self.source.groups[0]) for shard in batch})

    def _inputs(self, group: int) -> tuple[Future, Future | None]:
        return self.source.rows[group], self._states[group]

    def _run(self, submit: Callable[[], list[Future]]) -> list[Any]:
        return self.source.cluster.run(submit, self._repair)

    def _repair(self) -> None:
        repair(self._passes, self._recovery)


def _release(client: weakref.ref[Client], fit_id: str) -> None:
    """Have the workers release the states of a fit that is no longer in use."""

    def tell() -> None:
        alive = client()
        if alive is not None and alive.status == "running":
            with suppress(Exception):
                alive.run(release_state, fit_id)

    # Garbage may be collected in the client's own thread, which must not wait for itself.
    Thread(target=tell, daemon=True).start()


class DaskBackend(Backend):
    """Runs passes over a `ShardedSource` on the workers that hold its shards."""

    engine_type = DaskEngine

    def __init__(self, cluster: Cluster, threads: Threads) -> None:
        super().__init__(threads)
        self.cluster = cluster

    def _moments(self, source: RowSource, *, products: bool) -> Iterable[Moments]:
        """Moments of all shards."""
        assert isinstance(source, ShardedSource)
        return source.moments(products=products)

    def with_leaves(self, source: RowSource, routing: Routing, rows_of_a_leaf: int | None) -> RowSource:
        """The rows in the order of their leaves, moved between the workers."""
        assert isinstance(source, ShardedSource)
        return source.by_leaf(routing, rows_of_a_leaf)

    def routing_of(self, source: RowSource, estimator: BaseEstimator) -> EstimatorRouting:
        """The routing of a user's estimator, with the values that rows of all shards have."""
        assert isinstance(source, ShardedSource)
        return routing_by_values(estimator, source.values_of(estimator))

    def status(self, rows_per_second: float) -> str:
        """Throughput and number of workers."""
        return f"  {rows_per_second:12,.0f} rows/s  {self.cluster.n_workers} workers"
