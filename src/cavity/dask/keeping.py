"""Sites on the workers: data without a history.

The state that a pass leaves is not the result of a task: a result remembers how it was made, and after a
thousand passes Dask would remember a thousand of them, with every q. A task puts its state into the
cluster under a key that the driver has chosen, and its worker keeps it until a later pass says that it
is no longer needed. What is lost with a worker is lost: its shards start again from sites that say
nothing.
"""

from __future__ import annotations

from threading import Lock
from typing import Any

from distributed import Future, get_client

from cavity.dask.packing import unpacked

_held: dict[str, dict[str, Future]] = {}
"""By fit and key: this worker's interest in the states that it has made."""
_lock = Lock()


def state_key(fit: str, number: int, group: int) -> str:
    """Key of the state that pass `number` leaves of a group."""
    return f"{_prefix(fit, number)}{group}"


def _prefix(fit: str, number: int) -> str:
    return f"cavity-sites-{fit}-{number}-"


def keep(key: str, state: Any, fit: str, number: int, live: frozenset[str]) -> None:
    """Put a state into the cluster, and let go of those that no pass will ask for."""
    future = get_client().scatter({key: state}, hash=False)[key]
    with _lock:
        mine = _held.setdefault(fit, {})
        mine[key] = future
        current = _prefix(fit, number)
        for old in [k for k in mine if k not in live and not k.startswith(current)]:
            del mine[old]


def let_go(fit: str) -> None:
    """Let go of all states of a fit, and of messages that were opened."""
    with _lock:
        _held.pop(fit, None)
    unpacked.cache_clear()
