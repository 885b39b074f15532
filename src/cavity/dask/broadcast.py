"""One message to all workers: straight from the driver, and never for longer than it is worth.

Dask's own broadcast waits for ever if a worker dies meanwhile. Here every worker is sent a copy of its
own. Whoever does not get one, because it is lost, or slow, or has only just come, takes that of another
worker when a task needs it. If no worker can be reached from here, as with a cluster that shows nothing
but its scheduler, the message goes along with the tasks instead.
"""

from __future__ import annotations

import asyncio
import time
from math import isqrt
from typing import Any, NamedTuple

from distributed import Client, Future
from distributed.protocol import to_serialize

from cavity.dask.faults import Cluster
from cavity.dask.messages import Packed

PATIENCE = 20.0
"""Seconds in which one worker at least must have been reached."""
_LAG = 4.0
"""How many times as long as the first one the other workers may take, and a second besides."""
_COPIES = 16
"""Copies that the driver sends at least, if there are so many workers; see `n_copies`."""
_TRIES = 3


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
    client, key = cluster.client, f"cavity-q-{packed.name}"
    wanted = workers[: n_copies(len(workers))]
    if cluster.direct is False or not wanted or client.status != "running":
        return Sent(None, True)
    q = Future(key, client)  # before the scheduler speaks of it
    holders: list[str] = client.sync(_brought, cluster, key, packed, wanted)
    return Sent(q if holders else None, len(holders) == len(wanted))


async def _brought(cluster: Cluster, key: str, packed: Packed, workers: list[str]) -> list[str]:
    """Send copies and tell the scheduler; the workers that have one now."""
    client = cluster.client
    data = {key: to_serialize(packed)}
    copies = {asyncio.ensure_future(_copied(client, worker, data)): worker for worker in workers}
    try:
        silent = await _awaited(client, copies)
        holders = [copies[copy] for copy in copies if copy.done() and copy.result()]
        if holders:
            cluster.direct = True
        elif silent:
            cluster.direct = False  # the driver cannot see workers that live: it need not try again
        return await _announced(client, key, len(packed.data), holders)
    except (OSError, asyncio.TimeoutError):  # of the scheduler: the pass itself will find out
        return []
    finally:
        for copy in copies:
            copy.cancel()


async def _awaited(client: Client, copies: dict[asyncio.Task[bool], str]) -> bool:
    """Wait for the copies that are worth it; whether some worker that lives has been silent."""
    begin, limit, waiting = time.monotonic(), PATIENCE, set(copies)
    while waiting and time.monotonic() - begin < limit:
        first = asyncio.FIRST_COMPLETED
        done, waiting = await asyncio.wait(waiting, timeout=1.0, return_when=first)
        if any(copy.result() for copy in done):
            limit = min(limit, 1.0 + _LAG * (time.monotonic() - begin))
        if not done:
            alive = await asyncio.wait_for(client.nthreads(), PATIENCE)
            waiting = {copy for copy in waiting if copies[copy] in alive}
    return bool(waiting)


async def _copied(client: Client, worker: str, data: dict[str, Any]) -> bool:
    try:
        await client.rpc(worker).update_data(data=data)
    except OSError:  # a connection that breaks or cannot be made
        return False
    return True


async def _announced(client: Client, key: str, size: int, holders: list[str]) -> list[str]:
    """Tell the scheduler who has a copy; those that are still there."""
    for _ in range(_TRIES):
        if not holders:
            break
        said = client.scheduler.update_data(who_has={key: holders}, nbytes={key: size}, client=client.id)
        try:
            await asyncio.wait_for(said, PATIENCE)
            return holders
        except KeyError:  # one of them has died meanwhile
            alive = await asyncio.wait_for(client.nthreads(), PATIENCE)
            holders = [worker for worker in holders if worker in alive]
    return []
