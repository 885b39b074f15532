"""Sites on the workers: data without a history.

The state that a pass leaves is not the result of a task: a result remembers how it was made, and would
have to be asked for apart from the sums. A task puts its states into the cluster, all at once, by keys
that the driver has chosen, and its worker keeps them until a later pass says that they are no longer
needed.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Lock
from typing import Any

from distributed import Client, Future, get_client, get_worker

from cavity.dask.packing import unpacked

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

    A task need not wait until the scheduler has heard of it. It hears before the sums that the task
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


def let_go(fit: str) -> None:
    """Let go of all states of a fit, and of messages that were opened."""
    with _lock:
        _held.pop(fit, None)
    unpacked.cache_clear()
