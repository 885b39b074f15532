"""The engine of many machines: groups of shards as tasks, sites on the workers, one tree of sums."""

from __future__ import annotations

import uuid
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import dask
import dask.array
import numpy as np
from distributed import Client, Future

from cavity.data.scaling import Standardizer
from cavity.data.source import RawRows
from cavity.engines.dask import recovery as site_files
from cavity.engines.dask.comm import Message, Setting, unpacked_naturals, unpacked_sums
from cavity.engines.dask.passes import Done, GroupStates, Passes, Share, Task
from cavity.engines.dask.recovery import History, repair
from cavity.engines.dask.shards import ShardBatch, ShardedSource, shard_batches
from cavity.engines.dask.worker import leave_one_out, release_state, state_key, summed_share, sweep_share
from cavity.engines.protocol import First, Second, SourceFacts
from cavity.engines.threads import Threads
from cavity.gp.posterior import Naturals, Posterior
from cavity.gp.prior import Prior
from cavity.gp.tiles import Sums
from cavity.inference.rule import Rule
from cavity.inference.sweep import SweepOptions
from cavity.typing import Array, IntArray


class HeldOutRows(NamedTuple):
    """Rows that take no part in training: their sorted numbers, and themselves."""

    numbers: IntArray
    rows: RawRows

    @property
    def weight(self) -> float:
        """Their total weight."""
        return float(len(self.numbers) if self.rows.weight is None else self.rows.weight.sum())


class Pending(NamedTuple):
    """A pass that waits to be committed."""

    keys: dict[int, str]
    """Of the states that it has left, by group."""
    pass_: Done
    whole: bool
    """Whether it was over all rows."""


class DaskEngine(SourceFacts):
    """Runs passes on the workers of a cluster; each keeps the sites of the rows that it has."""

    source: ShardedSource

    def __init__(
        self,
        source: ShardedSource,
        standardizer: Standardizer,
        rule: Rule,
        threads: Threads,
        held_out: HeldOutRows | None = None,
        stored_directions: int = 0,
    ) -> None:
        self.source = source
        self.standardizer = standardizer
        self.rule = rule
        self.threads = threads
        self.held_out = held_out
        fit = uuid.uuid4().hex[:12]
        numbers = np.zeros(0, np.int64) if held_out is None else held_out.numbers
        self._setting = Setting(fit, rule, standardizer, numbers, stored_directions)
        self._states = GroupStates(self._client, len(source.groups))
        self._passes = Passes(source, self._setting, self._states)
        self._history = History(self._client, self._states)
        self._pending: Pending | None = None
        self._predecessor: DaskEngine | None = None
        finalizer = weakref.finalize(self, _release, weakref.ref(self._client), fit)
        finalizer.atexit = False  # type: ignore[misc]

    def fresh(self, rule: Rule | None = None) -> DaskEngine:
        """The same rows, with sites that say nothing yet."""
        rule = rule or self.rule
        return DaskEngine(self.source, self.standardizer, rule, self.threads, self.held_out)

    @property
    def _client(self) -> Client:
        return self.source.cluster.client

    @property
    def stores_directions(self) -> bool:
        """Whether a site keeps its own vector: the paper's scheme."""
        return self._setting.stored_directions > 0

    def batches(self, size: int, rng: np.random.Generator, skip: int = 0) -> Iterator[ShardBatch]:
        """Minibatches over the shards."""
        return shard_batches(self.source.layout, size, rng, skip)

    def spared_rows(self, share: float, most: int, rng: np.random.Generator) -> ShardBatch:
        """A minibatch that has about `most` spared rows; the workers look at no others of it."""
        return next(self.batches(min(self.n_rows, round(most / share)), rng))

    def first_rows(self, count: int) -> RawRows:
        """At most `count` rows from the beginning."""
        return self.source.first_rows(count)

    def sweep(
        self,
        prior: Prior,
        posterior: Posterior,
        options: SweepOptions,
        batch: ShardBatch | None = None,
    ) -> Sums:
        """One pass over all rows, or over one minibatch; the refined sites wait for `commit`."""
        groups = self._groups_of(batch)
        keys: dict[int, str] = {}

        def prepare() -> tuple[Message, Task]:
            message = self._passes.message(prior, posterior, options)
            keys.update({i: state_key(self._setting.fit, message.number, i) for i in groups})

            def task(share: Share, q: Any) -> tuple[Any, ...]:
                own = [keys[i] for i in share.groups]
                draws = None if batch is None else {i: batch[i] for i in share.extent if i in batch}
                return (sweep_share, *self._inputs_of(share), q, own, share.extent, draws)

            return message, task

        self._pending = None
        done = self._passes.run(prepare, groups, self._repair)
        self._pending = Pending(keys, done, whole=batch is None)
        return unpacked_sums(done.total)

    def overlap(self, first: Callable[[], First], second: Callable[[], Second]) -> tuple[First, Second]:
        """first() and second(), at once, on the driver."""
        return self.threads.both(first, second)

    def summed_sites(self, prior: Prior) -> Naturals:
        """The naturals of all sites as they are, under this prior."""

        def task(share: Share, q: Any) -> tuple[Any, ...]:
            return (summed_share, *self._inputs_of(share), q, share.extent)

        def prepare() -> tuple[Message, Task]:
            return self._passes.message(prior, None, None), task

        done = self._passes.run(prepare, self._groups_of(None), self._repair)
        return unpacked_naturals(done.total)

    def commit(self) -> None:
        """Make the sites of the last pass the current ones."""
        if self._pending is not None:
            keys, done, whole = self._pending
            self._pending = None
            self._states.update(keys)
            places = self._passes.slots if whole else None
            self._history.committed(done.message, done.packed, places)
        if self._predecessor is not None and not self._states.live & self._predecessor._states.live:
            self._predecessor = None

    @property
    def log_predictive(self) -> Any:
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
        return dask.array.concatenate(chunks)

    def of_all_rows(self, values: Any) -> Any:
        """The values: a row of no weight has its place among the shards."""
        return values

    def adopt(self, previous: Any) -> bool:
        """Go on with the sites of an earlier engine on the same cluster over as many rows."""
        if not (
            isinstance(previous, DaskEngine)
            and previous.n_rows == self.n_rows
            and previous.source.groups == self.source.groups
            and previous._client is self._client
            and previous.stores_directions == self.stores_directions
        ):
            return False
        self._states.keys = list(previous._states.keys)
        self._history.forget()
        self._predecessor = previous  # it holds the states until this one has its own
        return True

    def saved_rows(self, path: Path) -> dict[str, Array]:
        """Have each worker write the state of its shards beside the checkpoint."""
        version = f"{self._setting.fit}-{self._passes.count}"
        site_files.make_folder(path)

        def submit() -> list[Future]:
            return [
                self._client.submit(
                    site_files.write_group, *self._inputs(i), str(path), version, pure=False
                )
                for i in range(len(self._states))
            ]

        written = self._run(submit)
        site_files.report_unwritten(path, len(written) - sum(written), len(written))
        return {"shards.version": np.array(version)}

    def restore_rows(self, path: Path, arrays: dict[str, Array]) -> None:
        """Have the workers read the state of their shards; what they cannot find says nothing."""
        version = str(arrays["shards.version"])
        groups = range(len(self._states))
        keys: dict[int, str] = {}

        def submit() -> list[Future]:
            self._passes.count += 1
            pass_ = (self._setting.fit, self._passes.count)
            keys.update({i: state_key(*pass_, i) for i in groups})
            return [
                self._client.submit(
                    site_files.read_group_state,
                    self.source.rows[i], str(path), version, keys[i], *pass_, pure=False,
                )
                for i in groups
            ]  # fmt: skip

        self._run(submit)
        self._states.update(keys)
        self._history.forget()

    def forget_saved_rows(self, path: Path) -> None:
        """Remove the files of the shards."""
        site_files.remove_folder(path)

    def _groups_of(self, batch: ShardBatch | None) -> list[int]:
        if batch is None:
            return list(range(len(self.source.groups)))
        return sorted({shard // len(self.source.groups[0]) for shard in batch})

    def _inputs_of(self, share: Share) -> tuple[list[Future], list[Future | None]]:
        return [self.source.rows[i] for i in share.groups], [self._states[i] for i in share.groups]

    def _inputs(self, group: int) -> tuple[Future, Future | None]:
        return self.source.rows[group], self._states[group]

    def _run(self, submit: Callable[[], list[Future]]) -> list[Any]:
        return self.source.cluster.run(submit, self._repair)

    def _repair(self) -> None:
        repair(self._passes, self._history)


def _release(client: weakref.ref[Client], fit: str) -> None:
    """Let the workers forget a fit that nobody refers to any more."""

    def tell() -> None:
        alive = client()
        if alive is not None and alive.status == "running":
            with suppress(Exception):
                alive.run(release_state, fit)

    # Garbage may be collected in the client's own thread, which must not wait for itself.
    Thread(target=tell, daemon=True).start()
