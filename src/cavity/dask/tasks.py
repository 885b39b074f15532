"""What a worker does: the pass of the local engine, shard by shard."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.allocation import freed_memory_kept
from cavity.dask.keeping import keep
from cavity.dask.messages import GroupRows, GroupState, Message, Packed, ShardState
from cavity.dask.packing import packed_naturals, packed_sums, unpacked
from cavity.dask.tree import climbed
from cavity.engines.blas import blas_threads
from cavity.engines.local import HeldOut, LocalEngine, tile_rows
from cavity.engines.threads import Threads
from cavity.posterior import Naturals
from cavity.rows import Sites
from cavity.sources.arrays import ArrayBlock, ArraySource
from cavity.sources.blocks import shuffled
from cavity.sources.protocol import RawRows
from cavity.standardize import Moments
from cavity.sums import Sums
from cavity.typing import IntArray

_HEALING_PASSES = 5
_SWITCH_SECONDS = 5e-4


class Draw(NamedTuple):
    """Which rows of a shard belong to a minibatch: one of `parts` even parts of a random order."""

    entropy: int
    part: int
    parts: int


def sweep_group(
    rows: GroupRows,
    state: GroupState | None,
    q: Packed,
    key: str,
    levels: int,
    draws: dict[int, Draw] | None,
) -> Sums:
    """A pass over the shards of a group, or over a minibatch's rows in them.

    The new state is kept under `key`; the sums come back as the node of the tree that is the group's.
    """
    message = unpacked(q)
    assert message.posterior is not None
    assert message.options is not None
    states = list(_states(rows, state))
    sums: dict[int, Sums] = {}
    with _alone():
        for i, shard in enumerate(rows.shards):
            number = rows.first + i
            if draws is not None and number not in draws:
                continue
            engine = _engine(shard, rows.starts[i], states[i], message)
            batch = None if draws is None else _block(engine.source, number, draws[number])
            found = engine.sweep(message.prior, message.posterior, message.options, batch)
            sums[number] = packed_sums(found, message.prior.dtype)
            engine.commit()
            states[i] = ShardState(engine.sites, engine.log_predictive)
        ((_, node),) = climbed(sums, levels).items()
    keep(key, tuple(states), message.setting.fit, message.number, message.live)
    return node


def healed_group(rows: GroupRows, q: Packed, key: str) -> int:
    """Sites of a group that were lost, found again: those that go with the q that they were part of.

    A few passes at a q that is held: each takes the sites that the one before has found out of it.
    """
    message = unpacked(q)
    assert message.posterior is not None
    assert message.options is not None
    states: list[ShardState] = []
    with _alone():
        for start, shard in zip(rows.starts, rows.shards, strict=True):
            engine = _engine(shard, start, None, message)
            for _ in range(_HEALING_PASSES):
                engine.sweep(message.prior, message.posterior, message.options)
                engine.commit()
            states.append(ShardState(engine.sites, engine.log_predictive))
    keep(key, tuple(states), message.setting.fit, message.number, message.live)
    return len(states)


def summed_group(rows: GroupRows, state: GroupState | None, q: Packed, levels: int) -> Naturals:
    """The naturals of the sites of a group as they are."""
    message = unpacked(q)
    with _alone():
        sums = {
            rows.first + i: packed_naturals(
                _engine(shard, rows.starts[i], own, message).summed_sites(message.prior)
            )
            for i, (shard, own) in enumerate(zip(rows.shards, _states(rows, state), strict=True))
        }
        ((_, node),) = climbed(sums, levels).items()
    return node


def moments_of(rows: GroupRows) -> list[Moments]:
    """Moments of the tiles of each shard, merged by shard."""
    result = []
    with _alone():
        for X, _, weight in rows.shards:
            size = tile_rows(1, X.shape[1], np.dtype(np.float64))
            total: Moments | None = None
            for i in range(0, len(X), size):
                part = Moments.of(X[i : i + size], None if weight is None else weight[i : i + size])
                total = part if total is None else total.merged_with(part)
            assert total is not None
            result.append(total)
    return result


def picked(rows: GroupRows, numbers: IntArray) -> RawRows:
    """The rows with these sorted numbers, all of which lie in the group."""
    parts = []
    for start, shard in zip(rows.starts, rows.shards, strict=True):
        low, high = np.searchsorted(numbers, [start, start + len(shard.labels)])
        here = numbers[low:high] - start
        weight = None if shard.weight is None else shard.weight[here]
        parts.append(RawRows(shard.X[here], shard.labels[here], weight))
    return joined(parts)


def joined(parts: list[RawRows]) -> RawRows:
    """Rows one after the other."""
    weights = [part.weight for part in parts if part.weight is not None]
    return RawRows(
        np.concatenate([part.X for part in parts]),
        np.concatenate([part.labels for part in parts]),
        np.concatenate(weights) if weights else None,
    )


def leave_one_out(rows: GroupRows, state: GroupState | None) -> NDArray[np.floating[Any]]:
    """Log probabilities of the labels of a group with their rows left out; NaN where unknown."""
    return np.concatenate(
        [
            np.full(len(shard.labels), np.nan) if own is None else own.log_predictive
            for shard, own in zip(rows.shards, _states(rows, state), strict=True)
        ]
    )


def _states(rows: GroupRows, state: GroupState | None) -> GroupState:
    return (None,) * len(rows.shards) if state is None else state


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
