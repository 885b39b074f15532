"""What runs on a worker: passes over shards by a local engine, and the states that they leave.

The state that a pass leaves is not the result of a task. Dask would remember how a result was made, and
the driver would have to fetch it separately from the sums. Instead a task puts its states into the
cluster under keys that the driver has chosen, and its worker holds them until a message of a later pass
no longer lists them as needed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache, reduce
from threading import Lock
from typing import NamedTuple

import numpy as np
from distributed import Client, Future, get_client, get_worker
from sklearn.base import BaseEstimator

from cavity.data.arrays import ArrayBlock, ArraySource
from cavity.data.routing import Routing, leaves_in_order, values_of_estimator, with_leaves
from cavity.data.sampling import HeldOut
from cavity.data.source import Block, RawRows, joined, shuffled
from cavity.data.statistics import Moments
from cavity.engines.dask.comm import (
    GroupRows,
    GroupState,
    Message,
    Node,
    PackedMessage,
    PartialSum,
    ShardState,
    fold,
    pack_sums,
    unpack,
    unpack_once,
)
from cavity.engines.local import LocalEngine, tile_moments
from cavity.engines.threads import Threads, one_blas_thread
from cavity.gp.tiles import Sites, Sums
from cavity.memory import freed_memory_kept
from cavity.typing import AnyArray, Array, IntArray

_held: dict[str, dict[str, Future]] = {}
"""Futures by fit and key: while they exist, Dask keeps the states that this worker has made."""
_clients: dict[str, Client] = {}
"""Client of each worker, by address. Asking Dask for it in every task would notify the scheduler."""
_lock = Lock()
_SWITCH_SECONDS = 5e-4
"""Interval at which threads take turns in the interpreter while a task runs."""


class ShardSample(NamedTuple):
    """Which rows of a shard belong to a minibatch: one of `parts` even parts of a random order."""

    entropy: int
    """Seed of the random order."""
    part: int
    parts: int
    others: tuple[int, ...] = ()
    """Further parts."""


def state_key(fit_id: str, number: int, group: int) -> str:
    """Key of the state that pass `number` leaves of a group."""
    return f"{_key_prefix(fit_id, number)}{group}"


def _key_prefix(fit_id: str, number: int) -> str:
    return f"cavity-sites-{fit_id}-{number}-"


def put_state(
    states: dict[str, GroupState],
    fit_id: str,
    number: int,
    needed_keys: frozenset[str],
    *,
    wait: bool = True,
) -> None:
    """Put states into the cluster under their keys, and release those that are not needed.

    With wait=False a task does not wait until the scheduler has registered the states. That usually
    happens before the driver receives the sums that the task returns; if not, the next pass fails and is
    repeated.
    """
    client = _client()
    futures = client.scatter(
        states, hash=False, asynchronous=True
    )  # called in this thread, by which Dask finds the worker

    async def hold() -> None:
        _keep_states(await futures, fit_id, number, needed_keys)

    async def hold_if_possible() -> None:
        with suppress(OSError):  # the worker has lost its scheduler
            await hold()

    if wait:
        client.sync(hold)
    else:
        client.loop.add_callback(hold_if_possible)


def _keep_states(
    futures: dict[str, Future], fit_id: str, number: int, needed_keys: frozenset[str]
) -> None:
    with _lock:
        mine = _held.setdefault(fit_id, {})
        mine.update(futures)
        current = _key_prefix(fit_id, number)
        for old in [k for k in mine if k not in needed_keys and not k.startswith(current)]:
            del mine[old]


def release_state(fit_id: str) -> None:
    """Release all states of a fit, and the messages that were unpacked."""
    with _lock:
        _held.pop(fit_id, None)
    unpack_once.cache_clear()


def _client() -> Client:
    worker = get_worker().address
    client = _clients.get(worker)
    if client is None or client.status != "running":
        client = _clients[worker] = get_client()
    return client


def run_pass(
    rows: list[GroupRows],
    states: list[GroupState | None],
    packed: PackedMessage,
    keys: list[str],
    extent: range,
    samples: dict[int, ShardSample] | None,
) -> PartialSum:
    """Run a pass over groups of shards, or over a minibatch's rows in them; returns their sums.

    The new states are put into the cluster under `keys`, one a group, if the pass leaves any.
    """
    message = unpack_once(packed)
    found: list[list[ShardState | None]] = [[] for _ in rows]

    def parts() -> Iterator[tuple[Node, Sums]]:
        for group, state, new in zip(rows, states, found, strict=True):
            for number, start, shard, own in _shards(group, state):
                if samples is not None and number not in samples:
                    new.append(own)
                    continue
                engine = _engine(shard, start, own, message)
                batch = None if samples is None else _batch(engine, number, samples[number])
                sums = _run(engine, message, batch)
                new.append(ShardState(engine.sites, engine.log_predictive))
                yield Node(0, number), pack_sums(sums, message.row_pass.dtype)

    with _task_context():
        result = fold(parts(), extent)
    if message.row_pass.scores:
        left = {key: tuple(new) for key, new in zip(keys, found, strict=True)}
        put_state(left, message.settings.fit_id, message.number, message.needed_keys, wait=False)
    return result


def replay_group(
    rows: GroupRows,
    state: GroupState | None,
    messages: list[PackedMessage],
    key: str,
    fit_id: str,
    number: int,
    needed_keys: frozenset[str],
) -> int:
    """Find a lost state of a group again: repeat passes over its rows, from an earlier state on."""
    with _task_context():
        for packed in messages:
            message, new = unpack(packed), []
            for _, start, shard, own in _shards(rows, state):
                engine = _engine(shard, start, own, message)
                _run(engine, message, None)
                new.append(ShardState(engine.sites, engine.log_predictive))
            state = tuple(new)
    assert state is not None
    put_state({key: state}, fit_id, number, needed_keys)
    return len(messages)


def shard_moments(rows: GroupRows, products: bool = False) -> list[Moments]:
    """Moments of the columns of each shard."""
    result = []
    with _task_context():
        for shard in rows.shards:
            tiles = tile_moments(ArraySource(*shard), Threads(1), products=products)
            result.append(reduce(Moments.merged_with, tiles))
    return result


def take_rows(rows: GroupRows, numbers: IntArray) -> RawRows:
    """The rows of a group with these sorted numbers."""
    parts = []
    for start, shard in zip(rows.starts, rows.shards, strict=True):
        low, high = np.searchsorted(numbers, [start, start + len(shard.labels)])
        parts.append(shard.take(numbers[low:high] - start))
    return joined(parts)


def leaves_of_group(rows: GroupRows, routing: Routing) -> IntArray:
    """The leaf of every row of a group."""
    with _task_context():
        return np.concatenate([routing(shard.X) for shard in rows.shards]).astype(np.int16)


def values_of_group(rows: GroupRows, estimator: BaseEstimator) -> AnyArray:
    """The different values that a user's estimator says of the rows of a group."""
    with _task_context():
        return np.unique(
            np.concatenate([values_of_estimator(estimator, shard.X) for shard in rows.shards])
        )


def leave_one_out(rows: GroupRows, state: GroupState | None) -> Array:
    """Log probabilities of the labels of a group with their rows left out; NaN where unknown."""
    return np.concatenate(
        [
            np.full(len(shard.labels), np.nan) if own is None else own.log_predictive
            for _, _, shard, own in _shards(rows, state)
        ]
    )


def _shards(
    rows: GroupRows, state: GroupState | None
) -> Iterator[tuple[int, int, RawRows, ShardState | None]]:
    """For each shard of a group: its number, the number of its first row, its rows and its state."""
    numbers = range(rows.first, rows.first + len(rows.shards))
    states = (None,) * len(rows.shards) if state is None else state
    return zip(numbers, rows.starts, rows.shards, states, strict=True)


def _run(engine: LocalEngine, message: Message, batch: Block | None) -> Sums:
    sums = engine.run(message.row_pass, batch, message.sampler)
    engine.commit()
    return sums


def _engine(shard: RawRows, start: int, state: ShardState | None, message: Message) -> LocalEngine:
    """The engine of one shard, with its state."""
    settings, n = message.settings, len(shard.labels)
    source = ArraySource(shard.X, shard.labels, shard.weight)
    if settings.leaf_counts is not None:
        source = with_leaves(source, leaves_in_order(settings.leaf_counts, start, start + n))
    low, high = np.searchsorted(settings.held_out, [start, start + n])
    held_out = HeldOut(settings.held_out[low:high] - start, shard) if low < high else None
    engine = LocalEngine(
        source,
        settings.scaling,
        settings.n_latents,
        Threads(1),
        held_out,
        settings.n_directions,
    )
    if settings.leaf_counts is not None:
        engine.leaf_counts = settings.leaf_counts
    if state is not None:  # copied: data of the cluster must not be changed
        precision, shift, directions = state.sites
        own = None if directions is None else directions.copy()
        engine.set_state(Sites(precision.copy(), shift.copy(), own), state.log_predictive.copy())
    return engine


def _batch(engine: LocalEngine, shard: int, sample: ShardSample) -> Block:
    """The rows of a shard that belong to a minibatch."""
    n, parts, order = engine.n_rows, sample.parts, _order(sample.entropy, shard, engine.n_rows)
    chosen = [order[n * i // parts : n * (i + 1) // parts] for i in (sample.part, *sample.others)]
    assert isinstance(engine.source, ArraySource)
    return ArrayBlock(engine.source, np.sort(np.concatenate(chosen)))


@lru_cache(maxsize=64)
def _order(entropy: int, shard: int, n_rows: int) -> IntArray:
    return shuffled(n_rows, np.random.default_rng([entropy, shard]))


@contextmanager
def _task_context() -> Iterator[None]:
    # A task is one thread of a worker: more BLAS threads would compete with those of other tasks. Dask
    # has its workers return freed memory at once, which every tile would have to fetch again.
    with one_blas_thread, freed_memory_kept(), _short_switch_interval(), np.errstate(all="ignore"):
        yield


@contextmanager
def _short_switch_interval() -> Iterator[None]:
    """Let the thread that exchanges data with other workers get the interpreter sooner."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
