"""One message to all workers: straight from the driver, and never for longer than it is worth.

Dask's own broadcast waits for ever if a worker dies meanwhile. Here every worker is sent a copy of its
own. Whoever does not get one, because it is lost, or slow, or has only just come, takes that of another
worker when a task needs it. If no worker can be reached from here, as with a cluster that shows nothing
but its scheduler, the message goes along with the tasks instead.
"""

from __future__ import annotations

import asyncio
from typing import Any

from distributed import Client, Future
from distributed.protocol import to_serialize

from cavity.dask.faults import Cluster
from cavity.dask.messages import Packed

PATIENCE = 20.0
"""Seconds after which a worker that has not got its copy is left to others."""
_MOST_COPIES = 16
"""Copies that the driver sends; on larger clusters workers pass them on to each other."""
_TRIES = 3


def broadcast(cluster: Cluster, packed: Packed, workers: list[str]) -> Future | None:
    """Where tasks find the message; None if it could not be brought to any worker."""
    if cluster.direct is False or not workers:
        return None
    client, key = cluster.client, f"cavity-q-{packed.name}"
    held: list[str] = client.sync(_sent, cluster, key, packed, workers[:_MOST_COPIES])
    return Future(key, client) if held else None


async def _sent(cluster: Cluster, key: str, packed: Packed, workers: list[str]) -> list[str]:
    """Send copies; the workers that have one now."""
    client, data = cluster.client, {key: to_serialize(packed)}
    arrived = await asyncio.gather(*(_copied(client, worker, data) for worker in workers))
    holders = [worker for worker, answer in zip(workers, arrived, strict=True) if answer is True]
    if holders:
        cluster.direct = True
    elif all(answer is None for answer in arrived):
        cluster.direct = False  # the driver cannot see the workers: it need not try again
    for _ in range(_TRIES):
        if not holders:
            break
        try:
            said = client.scheduler.update_data(
                who_has={key: holders}, nbytes={key: len(packed.data)}, client=client.id
            )
            await asyncio.wait_for(said, PATIENCE)
            return holders
        except KeyError:  # one of them has died meanwhile
            alive = await client.nthreads()
            holders = [worker for worker in holders if worker in alive]
        except (OSError, asyncio.TimeoutError):
            break
    return []


async def _copied(client: Client, worker: str, data: dict[str, Any]) -> bool | None:
    """Whether the worker has its copy; None if it did not answer in time."""
    try:
        await asyncio.wait_for(client.rpc(worker).update_data(data=data), PATIENCE)
    except asyncio.TimeoutError:
        return None
    except OSError:  # connections that break or cannot be made
        return False
    return True
