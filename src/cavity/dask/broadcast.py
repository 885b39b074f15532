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
from typing import NamedTuple

from distributed import Client, Future

from cavity.dask.cluster import Cluster
from cavity.dask.messages import Packed

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
    found = [q for copy in copies if copy.done() and (q := copy.result()) is not None]
    for copy in copies:
        copy.cancel()
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
        if any(copy.result() for copy in done):
            limit = min(limit, 1.0 + _LAG * (time.monotonic() - begin))
        if not done:
            alive = await asyncio.wait_for(client.nthreads(), PATIENCE)
            waiting = {copy for copy in waiting if copies[copy] in alive}
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
