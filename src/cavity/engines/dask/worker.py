"""Sites on the workers: data without a history.

The state that a pass leaves is not the result of a task: a result remembers how it was made, and would
have to be asked for apart from the sums. A task puts its states into the cluster, all at once, by keys
that the driver has chosen, and its worker keeps them until a later pass says that they are no longer
needed.

What a worker does: the pass of the local engine, shard by shard.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from distributed import Client, Future, get_client, get_worker
from numpy.typing import NDArray

from cavity.data.arrays import ArrayBlock, ArraySource
from cavity.data.scaling import Moments
from cavity.data.source import RawRows, joined, shuffled, tile_rows
from cavity.engines.dask.comm import (
    GroupRows,
    GroupState,
    Message,
    Packed,
    ShardState,
    opened,
    packed_naturals,
    packed_sums,
    unpacked,
)
from cavity.engines.dask.tree import Node, PartialSum, folded
from cavity.engines.local import HeldOut, LocalEngine
from cavity.engines.threads import Threads, blas_threads
from cavity.gp.posterior import Naturals
from cavity.gp.tiles import Sites, Sums
from cavity.memory import freed_memory_kept
from cavity.typing import IntArray

_held: dict[str, dict[str, Future]] = {}
"""By fit and key: this worker's interest in the states that it has made."""
_clients: dict[str, Client] = {}
"""By worker: Dask tells the scheduler whenever a task asks for its client."""
_lock = Lock()


def state_key(fit: str, number: int, group: int) -> str:
    """Key of the state that pass `number` leaves of a group."""
    return f"{_prefix(fit, number)}{group}"


def _prefix(fit: str, number: int) -> str:
    return f"cavity-sites-{fit}-{number}-"


def keep(
    states: dict[str, Any], fit: str, number: int, live: frozenset[str], *, wait: bool = True
) -> None:
    """Put states into the cluster by their keys, and let go of those that no pass will ask for.

    A task need not wait until the scheduler has callback of it. It hears before the sums that the task
    returns have reached the driver; if it should not, the next pass is a fault and repeated.
    """
    client = _client()
    futures = client.scatter(states, hash=False, asynchronous=True)  # here: it looks for its worker

    async def kept() -> None:
        _hold(await futures, fit, number, live)

    async def kept_if_possible() -> None:
        with suppress(OSError):  # a worker without a scheduler
            await kept()

    if wait:
        client.sync(kept)
    else:
        client.loop.add_callback(kept_if_possible)


def _hold(futures: dict[str, Future], fit: str, number: int, live: frozenset[str]) -> None:
    with _lock:
        mine = _held.setdefault(fit, {})
        mine.update(futures)
        current = _prefix(fit, number)
        for old in [k for k in mine if k not in live and not k.startswith(current)]:
            del mine[old]


def _client() -> Client:
    worker = get_worker().address
    client = _clients.get(worker)
    if client is None or client.status != "running":
        client = _clients[worker] = get_client()
    return client


def release_state(fit: str) -> None:
    """Let go of all states of a fit, and of messages that were opened."""
    with _lock:
        _held.pop(fit, None)
    unpacked.cache_clear()


_SWITCH_SECONDS = 5e-4


class Draw(NamedTuple):
    """Which rows of a shard belong to a minibatch: one of `parts` even parts of a random order."""

    entropy: int
    part: int
    parts: int


def sweep_share(
    rows: list[GroupRows],
    states: list[GroupState | None],
    q: Packed,
    keys: list[str],
    extent: range,
    draws: dict[int, Draw] | None,
) -> PartialSum[Sums]:
    """A pass over groups of shards, or over a minibatch's rows in them; sums of their extent.

    The new states are kept under `keys`.
    """
    message = unpacked(q)
    found: dict[str, list[ShardState | None]] = {key: [] for key in keys}

    def swept() -> Iterator[tuple[Node, Sums]]:
        for group, state, new in zip(rows, states, found.values(), strict=True):
            for number, start, shard, own in _shards(group, state):
                if draws is not None and number not in draws:
                    new.append(own)
                    continue
                engine = _engine(shard, start, own, message)
                batch = None if draws is None else _block(engine.source, number, draws[number])
                sums = _swept(engine, message, batch)
                new.append(ShardState(engine.sites, engine.log_predictive))
                yield Node(0, number), packed_sums(sums, message.prior.dtype)

    with _alone():
        result = folded(swept(), extent)
    kept = {key: tuple(states) for key, states in found.items()}
    keep(kept, message.setting.fit, message.number, message.live, wait=False)
    return result


def replayed_group(
    rows: GroupRows,
    state: GroupState | None,
    messages: list[Packed],
    key: str,
    fit: str,
    number: int,
    live: frozenset[str],
) -> int:
    """Sites of a group that were lost, found again: those that passes leave after an earlier state."""
    with _alone():
        for packed in messages:
            message, new = opened(packed), []
            for _, start, shard, own in _shards(rows, state):
                engine = _engine(shard, start, own, message)
                _swept(engine, message, None)
                new.append(ShardState(engine.sites, engine.log_predictive))
            state = tuple(new)
    keep({key: state}, fit, number, live)
    return len(messages)


def summed_share(
    rows: list[GroupRows], states: list[GroupState | None], q: Packed, extent: range
) -> PartialSum[Naturals]:
    """The naturals of the sites of groups of shards as they are; sums of their extent."""
    message = unpacked(q)

    def summed() -> Iterator[tuple[Node, Naturals]]:
        for group, state in zip(rows, states, strict=True):
            for number, start, shard, own in _shards(group, state):
                naturals = _engine(shard, start, own, message).summed_sites(message.prior)
                yield Node(0, number), packed_naturals(naturals)

    with _alone():
        return folded(summed(), extent)


def moments_of(rows: GroupRows, products: bool = False) -> list[Moments]:
    """Moments of the tiles of each shard, merged by shard."""
    result = []
    with _alone():
        for X, _, weight in rows.shards:
            size = tile_rows(1, X.shape[1], np.dtype(np.float64))
            total: Moments | None = None
            for i in range(0, len(X), size):
                own = None if weight is None else weight[i : i + size]
                part = Moments.of(X[i : i + size], own, products=products)
                total = part if total is None else total.merged_with(part)
            assert total is not None
            result.append(total)
    return result


def picked(rows: GroupRows, numbers: IntArray) -> RawRows:
    """The rows with these sorted numbers, all of which lie in the group."""
    parts = []
    for start, shard in zip(rows.starts, rows.shards, strict=True):
        low, high = np.searchsorted(numbers, [start, start + len(shard.labels)])
        parts.append(shard.take(numbers[low:high] - start))
    return joined(parts)


def leave_one_out(rows: GroupRows, state: GroupState | None) -> NDArray[np.floating[Any]]:
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
    """Of each shard of a group: its number, the number of its first row, its rows and its state."""
    numbers = range(rows.first, rows.first + len(rows.shards))
    states = (None,) * len(rows.shards) if state is None else state
    return zip(numbers, rows.starts, rows.shards, states, strict=True)


def _swept(engine: LocalEngine, message: Message, batch: ArrayBlock | None) -> Sums:
    assert message.posterior is not None
    assert message.options is not None
    sums = engine.sweep(message.prior, message.posterior, message.options, batch)
    engine.commit()
    return sums


def _engine(shard: RawRows, start: int, state: ShardState | None, message: Message) -> LocalEngine:
    setting, n = message.setting, len(shard.labels)
    source = ArraySource(shard.X, shard.labels, shard.weight)
    low, high = np.searchsorted(setting.held_out, [start, start + n])
    held_out = None
    if low < high:
        mask = np.zeros(n, dtype=bool)
        mask[setting.held_out[low:high] - start] = True
        held_out = HeldOut(mask, shard)
    stored = setting.stored_directions
    engine = LocalEngine(source, setting.standardizer, setting.rule, Threads(1), held_out, stored)
    engine.first_row = start
    if state is not None:  # copied: what the cluster holds is not to be changed
        precision, shift, directions = state.sites
        own = None if directions is None else directions.copy()
        engine.sites = Sites(precision.copy(), shift.copy(), own)
        engine.log_predictive = state.log_predictive.copy()
    return engine


def _block(source: Any, shard: int, draw: Draw) -> ArrayBlock:
    n, (entropy, part, parts) = source.n_rows, draw
    chosen = _order(entropy, shard, n)[n * part // parts : n * (part + 1) // parts]
    return ArrayBlock(source, np.sort(chosen))


@lru_cache(maxsize=64)
def _order(entropy: int, shard: int, n_rows: int) -> IntArray:
    return shuffled(n_rows, np.random.default_rng([entropy, shard]))


@contextmanager
def _alone() -> Iterator[None]:
    # A task is one thread of a worker: more BLAS threads would fight with those of other tasks. Dask has
    # its workers return freed memory at once, which a tile would have to fetch again, page by page.
    with blas_threads(1), freed_memory_kept(), _soon_interrupted(), np.errstate(all="ignore"):
        yield


@contextmanager
def _soon_interrupted() -> Iterator[None]:
    """The worker's own thread, which talks to the others, must not wait long for the interpreter."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
