"""What is sent between driver and workers: records, sums in a fixed order, packing, and broadcasts.

Sums are added up along a binary tree over the shards, so that the result does not depend on which task
adds up which part of it. Symmetric and triangular matrices are sent as one triangle.

Dask's own broadcast waits for ever if a worker dies during it. Here the driver sends a copy of the
message to each of a few workers. A worker without a copy, because it is slow or has just joined, fetches
that of another worker when one of its tasks needs it. If the driver cannot reach any worker, as on a
cluster where only the scheduler is visible, the message is made part of the task graph instead.
"""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import isqrt
from typing import Any, NamedTuple, TypeVar

import cloudpickle
import numpy as np
from dask.sizeof import sizeof
from distributed import Client, Future

from cavity.data.sampling import RowSampler
from cavity.data.scaling import Scaling
from cavity.data.source import RawRows
from cavity.engines.dask.cluster import Cluster
from cavity.engines.protocol import Pass
from cavity.gp.arrowhead import LocalSums
from cavity.gp.linalg import symmetric, triangle
from cavity.gp.tiles import Sites, Sums
from cavity.typing import Array, Dtype, IntArray

FAN_IN = 4
"""Largest number of results that one task adds up."""


class Node(NamedTuple):
    """A place in the tree: the shards i·2^level up to (i + 1)·2^level."""

    level: int
    i: int

    @property
    def start(self) -> int:
        """The first of its shards."""
        return self.i << self.level

    @property
    def stop(self) -> int:
        """The shard after its last."""
        return (self.i + 1) << self.level

    @property
    def parent(self) -> Node:
        """The node above."""
        return Node(self.level + 1, self.i >> 1)


@dataclass(frozen=True)
class PartialSum:
    """Sums over a range of shards: those of the largest nodes within it, in the order of the shards."""

    nodes: tuple[tuple[Node, Sums], ...]


def added(a: Sums, b: Sums) -> Sums:
    """a + b as a new object: the cluster may still need both."""
    total = deepcopy(a)
    total += b
    return total


def fold(parts: Iterable[tuple[Node, Sums]], extent: range) -> PartialSum:
    """The sum of parts within a range of shards; the parts come in the order of their shards.

    A shard of the range that is in no part adds nothing: a node without a sibling moves up unchanged.
    Folding in several stages, each over a range of its own, gives the same bits as folding at once. At
    most one node of each level is held at a time.
    """
    found: list[tuple[Node, Sums]] = []
    for node, part in parts:
        _move_up(found, extent, node.start)
        found.append((node, part))
    _move_up(found, extent, extent.stop)
    return PartialSum(tuple(found))


def _move_up(found: list[tuple[Node, Sums]], extent: range, stop: int) -> None:
    """Move the last node up the tree as far as all shards below it come before `stop`."""
    while found:
        node, part = found[-1]
        parent = node.parent
        if parent.start < extent.start or parent.stop > min(stop, extent.stop):
            return
        found.pop()
        if found and found[-1][0] == (node.level, node.i ^ 1):
            part = added(found.pop()[1], part)
        found.append((parent, part))


def combine(sums: list[PartialSum], extent: range) -> PartialSum:
    """Sums over neighbouring ranges, in the order of their shards, as one over `extent`."""
    return fold((item for one in sums for item in one.nodes), extent)


def total(sums: list[PartialSum], n_shards: int) -> Sums:
    """The sum over all shards, whose number is a power of two."""
    ((_, part),) = combine(sums, range(n_shards)).nodes
    return part


Thing = TypeVar("Thing")


class GroupRows(NamedTuple):
    """The rows of a group: some neighbouring shards."""

    first: int
    """Number of the first of the shards."""
    starts: tuple[int, ...]
    """Number of the first row of each shard."""
    shards: tuple[RawRows, ...]


class ShardState(NamedTuple):
    """What is stored with the rows of a shard."""

    sites: Sites
    log_predictive: Array


GroupState = tuple["ShardState | None", ...]
"""The states of the shards of a group; None is a shard whose sites have zero precision."""


@dataclass(frozen=True)
class FitSettings:
    """What all passes of a fit have in common."""

    fit_id: str
    """Name of the fit, in the keys of all that it leaves on the workers."""
    n_latents: int
    scaling: Scaling
    held_out: IntArray
    """Sorted numbers of the rows that take no part in training."""
    n_directions: int
    leaf_counts: IntArray | None = None
    """Number of rows of each leaf [K], if there are leaves; then the rows are in the order of leaves."""


@dataclass(frozen=True)
class Message:
    """What all tasks of one pass need to know, in one message."""

    settings: FitSettings
    row_pass: Pass
    sampler: RowSampler
    """Which rows of a minibatch take part."""
    number: int
    """Number of the pass within the fit."""
    needed_keys: frozenset[str]
    """Keys of the states that are still needed."""
    leaves: tuple[int, ...] | None = None
    """The leaves that rows of the pass are in, if it is not over all; no others are sent."""


@dataclass(frozen=True)
class PackedMessage:
    """A message as bytes."""

    name: str
    """Name of the fit and number of the pass."""
    data: bytes = field(compare=False, repr=False)


def pack(message: Message) -> PackedMessage:
    """A message as bytes, made once for all workers."""
    settings = message.settings
    row_pass = message.row_pass.packed(has_directions=settings.n_directions > 0, leaves=message.leaves)
    parts = (settings, row_pass, message.sampler, message.number, message.needed_keys)
    return PackedMessage(f"{settings.fit_id}-{message.number}", cloudpickle.dumps(parts))


def unpack(packed: PackedMessage) -> Message:
    """The message that was packed."""
    settings, row_pass, sampler, number, needed_keys = pickle.loads(packed.data)
    return Message(settings, row_pass(), sampler, number, needed_keys)


@lru_cache(maxsize=2)
def unpack_once(packed: PackedMessage) -> Message:
    """The message that was packed; a worker unpacks it once for all of its tasks."""
    return unpack(packed)


def pack_sums(sums: Sums, dtype: Dtype) -> Sums:
    """Sums to be sent, which can be added up as they are.

    Precisions become triangles. The gradient is in the precision of the tiles, in which the driver
    uses it.
    """
    if isinstance(sums, LocalSums):
        return replace(sums, parts={leaf: pack_sums(part, dtype) for leaf, part in sums.parts.items()})
    smaller: dict[str, Any] = {"precision": _triangles(sums.precision)}
    if sums.replaced_precision is not None:
        smaller["replaced_precision"] = _triangles(sums.replaced_precision)
    if sums.whitened_gradient is not None:
        smaller["whitened_gradient"] = sums.whitened_gradient.astype(dtype, copy=False)
    if sums.Z is not None:
        smaller["Z"] = sums.Z.astype(dtype, copy=False)
    return replace(sums, **smaller)


def unpack_sums(sums: Sums) -> Sums:
    """The sums that were packed."""
    if isinstance(sums, LocalSums):
        return replace(sums, parts={leaf: unpack_sums(part) for leaf, part in sums.parts.items()})
    whole: dict[str, Any] = {"precision": _symmetrics(sums.precision)}
    if sums.replaced_precision is not None:
        whole["replaced_precision"] = _symmetrics(sums.replaced_precision)
    if sums.Z is not None:
        whole["Z"] = sums.Z.astype(np.float64, copy=False)
    return replace(sums, **whole)


def _triangles(matrices: Array) -> Array:
    return np.stack([triangle(M) for M in matrices])


def _symmetrics(halves: Array) -> Array:
    return np.stack([symmetric(half) for half in halves])


def identity(thing: Thing) -> Thing:
    """The argument, as a task whose result is on the worker that ran it."""
    return thing


def _size_of_partial_sum(sums: PartialSum) -> int:
    return sum(sizeof(part) for _, part in sums.nodes)


def _size_of_sums(sums: Sums) -> int:
    if isinstance(sums, LocalSums):
        return sum(map(_size_of_sums, sums.parts.values()))
    return sum(map(sizeof, vars(sums).values()))


def _size_of_message(message: PackedMessage) -> int:
    return len(message.data)


# Where Dask runs a task depends on the size of its inputs, which it does not know for these classes.
sizeof.register(PartialSum, _size_of_partial_sum)
sizeof.register((Sums, LocalSums), _size_of_sums)
sizeof.register(PackedMessage, _size_of_message)


PATIENCE = 20.0
"""Seconds within which at least one worker must have received its copy."""
_LAG = 4.0
"""Other workers may take this many times as long as the first, plus one second."""
_COPIES = 16
"""Least number of copies that the driver sends, if there are so many workers; see `n_copies`."""

CopyTask = asyncio.Task[Future | None]


class BroadcastResult(NamedTuple):
    """Where a message is after a broadcast."""

    future: Future | None
    """The message on the workers; None if no worker could be reached."""
    complete: bool
    """Whether all workers that were to have a copy have one."""


def n_copies(n_workers: int) -> int:
    """Number of workers that the driver sends a copy to: about as many as each then has to serve.

    >>> n_copies(2), n_copies(100), n_copies(1000)
    (2, 16, 31)
    """
    return min(n_workers, max(_COPIES, isqrt(n_workers)))


def broadcast(cluster: Cluster, packed: PackedMessage, workers: list[str]) -> BroadcastResult:
    """Send a message to workers."""
    wanted = workers[: n_copies(len(workers))]
    if cluster.direct is False or not wanted or cluster.client.status != "running":
        return BroadcastResult(None, True)
    result: BroadcastResult = cluster.client.sync(_send_copies, cluster, packed, wanted)
    return result


async def _send_copies(cluster: Cluster, packed: PackedMessage, workers: list[str]) -> BroadcastResult:
    client = cluster.client
    copies: dict[CopyTask, str] = {
        asyncio.ensure_future(_send_copy(client, packed, worker)): worker for worker in workers
    }
    try:
        unreachable = await _wait_for_copies(client, copies)
    except (OSError, asyncio.TimeoutError):  # the scheduler is lost: the pass itself will find out
        unreachable = False
    found = [copy for one in copies if one.done() and (copy := one.result()) is not None]
    for one in copies:
        one.cancel()
    if found:
        cluster.direct = True
    elif unreachable:
        cluster.direct = False  # the driver cannot connect to live workers: it need not try again
    return BroadcastResult(found[0] if found else None, len(found) == len(workers))


async def _wait_for_copies(client: Client, copies: dict[CopyTask, str]) -> bool:
    """Wait for the copies, up to a limit; returns whether a worker that is alive has not answered."""
    begin, limit, waiting = time.monotonic(), PATIENCE, set(copies)
    while waiting and time.monotonic() - begin < limit:
        first = asyncio.FIRST_COMPLETED
        done, waiting = await asyncio.wait(waiting, timeout=1.0, return_when=first)
        if any(one.result() for one in done):
            limit = min(limit, 1.0 + _LAG * (time.monotonic() - begin))
        if not done:
            alive = await asyncio.wait_for(client.nthreads(), PATIENCE)
            waiting = {one for one in waiting if copies[one] in alive}
    return bool(waiting)


async def _send_copy(client: Client, packed: PackedMessage, worker: str) -> Future | None:
    """Send one copy. All copies have the same key: to the scheduler they are one piece of data."""
    key = f"cavity-q-{packed.name}"
    try:
        futures = await client.scatter(
            {key: packed}, workers=[worker], direct=True, hash=False, asynchronous=True
        )
    except (OSError, asyncio.TimeoutError, KeyError):
        # The connection broke or could not be made, or the scheduler no longer knows the worker.
        return None
    found: Future = futures[key]
    return found
