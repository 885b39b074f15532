"""What travels between driver and workers: rows and sites of a group of shards, and q.

Half of each matrix travels: triangles, in the precision that the tiles have anyway.

One message to all workers: straight from the driver, and never for longer than it is worth.

Dask's own broadcast waits for ever if a worker dies meanwhile. Here every worker is sent a copy of its
own. Whoever does not get one, because it is lost, or slow, or has only just come, takes that of another
worker when a task needs it. If no worker can be reached from here, as with a cluster that shows nothing
but its scheduler, the message goes along with the tasks instead.
"""

from __future__ import annotations

import asyncio
import copy
import pickle
import time
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from math import isqrt
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
from dask.sizeof import sizeof
from distributed import Client, Future

from cavity.data.scaling import Standardizer
from cavity.data.source import RawRows
from cavity.engines.dask.cluster import Cluster
from cavity.engines.dask.tree import PartialSum
from cavity.gp.linalg import lower, symmetric, triangle
from cavity.gp.posterior import Naturals, Posterior
from cavity.gp.prior import Prior
from cavity.gp.tiles import Sites, Sums
from cavity.inference.rule import Rule
from cavity.inference.sweep import SweepOptions
from cavity.typing import Array, Dtype, IntArray


class GroupRows(NamedTuple):
    """The rows of some shards in a row."""

    first: int
    """Number of the first of the shards."""
    starts: tuple[int, ...]
    """Row number at which each begins."""
    shards: tuple[RawRows, ...]


class ShardState(NamedTuple):
    """What stays with the rows of a shard."""

    sites: Sites
    log_predictive: Array


GroupState = tuple["ShardState | None", ...]
"""Of the shards of a group; None is a shard whose sites say nothing yet."""


@dataclass(frozen=True)
class Setting:
    """What all passes of a fit have in common."""

    fit: str
    rule: Rule
    standardizer: Standardizer
    held_out: IntArray
    """Sorted numbers of the rows that take no part."""
    stored_directions: int


@dataclass(frozen=True)
class Message:
    """What all tasks of one pass are told: the one broadcast of an iteration."""

    setting: Setting
    prior: Prior
    posterior: Posterior | None
    options: SweepOptions | None
    number: int
    """Of the pass."""
    live: frozenset[str]
    """Keys of the states that are still needed."""


@dataclass(frozen=True)
class Packed:
    """A message as bytes."""

    name: str
    """Of the fit and the pass: no other message has it."""
    data: bytes = field(compare=False, repr=False)


def itself(thing: Any) -> Any:
    """The thing that travels, where a task wants it."""
    return thing


@sizeof.register(PartialSum)
def _size_of_sum(sums: PartialSum[Any]) -> int:
    return sum(sizeof(part) for _, part in sums.nodes)


@sizeof.register(Sums)
@sizeof.register(Naturals)
def _size_of_record(record: Any) -> int:
    # Where a task runs depends on the size of its inputs, and Dask does not look into our records.
    return sum(sizeof(getattr(record, part.name)) for part in fields(record))


@sizeof.register(Packed)
def _size_of_message(message: Packed) -> int:
    return len(message.data)


def packed_message(message: Message) -> Packed:
    """A message as bytes, once for whoever it goes to."""
    options, dtype = message.options, message.prior.dtype
    if options is not None and options.exact:
        dtype = np.dtype(np.float64)  # its gradient has terms that are not of the tiles
    small = replace(
        message,
        prior=_halved(message.prior),
        posterior=None if message.posterior is None else _moments_only(message.posterior, dtype),
    )
    return Packed(f"{message.setting.fit}-{message.number}", cloudpickle.dumps(small))


@lru_cache(maxsize=2)
def unpacked(message: Packed) -> Message:
    """The message itself; a worker opens it once for all of its tasks."""
    return opened(message)


def opened(message: Packed) -> Message:
    """The message itself."""
    small: Message = pickle.loads(message.data)
    prior = copy.copy(small.prior)
    for name in ("whitener", "L"):
        if name in vars(prior):
            setattr(prior, name, lower(vars(prior)[name]))
    posterior = small.posterior
    if posterior is not None and posterior.factors is not None:
        posterior = replace(posterior, factors=np.stack([lower(half) for half in posterior.factors]))
    elif posterior is not None:
        posterior = replace(posterior, covariance=_symmetrics(posterior.covariance))
    return replace(small, prior=prior, posterior=posterior)


def for_rows(prior: Prior, *, directions: bool) -> Prior:
    """The prior without what only the driver needs of it.

    The bound kernel goes along: a worker need not know how to bind a kernel that a user has registered.
    """
    prior.rows_kernel, prior.whitener  # noqa: B018  (made here, not by every worker)
    if directions:
        prior.L  # noqa: B018
    slim = copy.copy(prior)
    slim.Z = prior.Z[:, :0]  # the bound kernel has the points; what counts here is how many they are
    unused = ["_K", "_tape", "_factor", "L_inverse"] + ([] if directions else ["L"])
    if prior.dtype != np.float64:
        unused.append("_bound")
    for name in unused:
        slim.__dict__.pop(name, None)
    return slim


def _halved(prior: Prior) -> Prior:
    small = copy.copy(prior)
    for name in ("whitener", "L"):
        if name in vars(small):
            setattr(small, name, triangle(vars(small)[name].astype(prior.dtype, copy=False)))
    return small


def _moments_only(posterior: Posterior, dtype: Dtype) -> Posterior:
    nothing = Naturals.zeros(len(posterior.mean), 0)
    if posterior.factors is not None:
        return replace(posterior, factors=_triangles(posterior.factors))
    halves = _triangles(posterior.covariance.astype(dtype, copy=False))
    return replace(posterior, covariance=halves, naturals=nothing)


def packed_sums(sums: Sums, dtype: Dtype) -> Sums:
    """Sums of a shard for the way: they add up as they are.

    Precisions as triangles; the gradient in the precision of the tiles, which the driver takes it to.
    """
    smaller: dict[str, Any] = {"precision": _triangles(sums.precision)}
    if sums.replaced_precision is not None:
        smaller["replaced_precision"] = _triangles(sums.replaced_precision)
    for name in ("bracket", "Z"):
        if (value := getattr(sums, name)) is not None:
            smaller[name] = value.astype(dtype, copy=False)
    return replace(sums, **smaller)


def unpacked_sums(sums: Sums) -> Sums:
    """The sums themselves."""
    whole: dict[str, Any] = {"precision": _symmetrics(sums.precision)}
    if sums.replaced_precision is not None:
        whole["replaced_precision"] = _symmetrics(sums.replaced_precision)
    if sums.Z is not None:
        whole["Z"] = sums.Z.astype(np.float64, copy=False)
    return replace(sums, **whole)


def packed_naturals(naturals: Naturals) -> Naturals:
    """Naturals with triangles for precisions."""
    return Naturals(_triangles(naturals.precision), naturals.shift)


def unpacked_naturals(naturals: Naturals) -> Naturals:
    """The naturals themselves."""
    return Naturals(_symmetrics(naturals.precision), naturals.shift)


def _triangles(matrices: Array) -> Array:
    return np.stack([triangle(M) for M in matrices])


def _symmetrics(halves: Array) -> Array:
    return np.stack([symmetric(half) for half in halves])


PATIENCE = 20.0
"""Seconds in which one worker at least must have been reached."""
_LAG = 4.0
"""How many times as long as the first one the other workers may take, and a second besides."""
_COPIES = 16
"""Copies that the driver sends at least, if there are so many workers; see `n_copies`."""

Copy = asyncio.Task[Future | None]


class Sent(NamedTuple):
    """What has become of a message."""

    q: Future | None
    """Where tasks find it; None if it could not be brought to any worker."""
    complete: bool
    """Whether all workers that should have a copy have one."""


def n_copies(n_workers: int) -> int:
    """Workers that are sent a copy: each of them has as many more to serve as the driver has sent.

    >>> n_copies(2), n_copies(100), n_copies(1000)
    (2, 16, 31)
    """
    return min(n_workers, max(_COPIES, isqrt(n_workers)))


def broadcast(cluster: Cluster, packed: Packed, workers: list[str]) -> Sent:
    """Bring a message to workers."""
    wanted = workers[: n_copies(len(workers))]
    if cluster.direct is False or not wanted or cluster.client.status != "running":
        return Sent(None, True)
    sent: Sent = cluster.client.sync(_brought, cluster, packed, wanted)
    return sent


async def _brought(cluster: Cluster, packed: Packed, workers: list[str]) -> Sent:
    client = cluster.client
    copies: dict[Copy, str] = {
        asyncio.ensure_future(_copied(client, packed, worker)): worker for worker in workers
    }
    try:
        silent = await _awaited(client, copies)
    except (OSError, asyncio.TimeoutError):  # of the scheduler: the pass itself will find out
        silent = False
    found = [q for one in copies if one.done() and (q := one.result()) is not None]
    for one in copies:
        one.cancel()
    if found:
        cluster.direct = True
    elif silent:
        cluster.direct = False  # the driver cannot see workers that live: it need not try again
    return Sent(found[0] if found else None, len(found) == len(workers))


async def _awaited(client: Client, copies: dict[Copy, str]) -> bool:
    """Wait for the copies that are worth it; whether some worker that lives has been silent."""
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


async def _copied(client: Client, packed: Packed, worker: str) -> Future | None:
    """Send one copy; all of them have one key, and are one to the scheduler."""
    key = f"cavity-q-{packed.name}"
    try:
        futures = await client.scatter(
            {key: packed}, workers=[worker], direct=True, hash=False, asynchronous=True
        )
    except (OSError, asyncio.TimeoutError, KeyError):
        # A connection that breaks or cannot be made; a worker that the scheduler knows no more.
        return None
    found: Future = futures[key]
    return found
