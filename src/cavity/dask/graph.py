"""One graph for one pass: a task for each share of the groups, and the tree of sums above them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from distributed import Future

from cavity.dask.messages import Packed, itself
from cavity.dask.tree import FAN_IN, add_up


class Share(NamedTuple):
    """What one task of a pass has to do."""

    extent: range
    """Of shards."""
    groups: list[int]
    """The groups within that take part."""
    home: str | None = None
    """The worker that had best do it."""


Task = Callable[[Share, Any], tuple[Any, ...]]
"""Of a share and where the message is: a task as Dask writes it."""


class PassGraph(NamedTuple):
    """A Dask graph, and what its author knows of it."""

    tasks: dict[str, Any]
    homes: dict[str, str | None]
    """By key: where the task of a share had best run."""
    roots: list[str]
    """Keys of the last nodes of the tree, in the order of their shards."""


def pass_graph(
    packed: Packed, q: Future | None, shares: list[Share], task: Task, n_roots: int
) -> PassGraph:
    """The graph of a pass, with at most `n_roots` last nodes.

    Without `q`, where the message lies already, it is a task of its own, which workers pass on to each
    other; one that needs it while its holder is lost can have it made again.
    """
    message = f"cavity-message-{packed.name}"
    nodes = {f"cavity-pass-{packed.name}-{i}": share for i, share in enumerate(shares)}
    graph: dict[str, Any] = {key: task(share, q or message) for key, share in nodes.items()}
    homes = {key: share.home for key, share in nodes.items()}
    if q is None:
        graph[message] = (itself, packed)
    extents, level = {key: share.extent for key, share in nodes.items()}, 0
    while len(extents) > n_roots:
        level += 1
        extents = _next_level(graph, extents, f"cavity-sum-{packed.name}-{level}")
    return PassGraph(graph, homes, list(extents))


def _next_level(graph: dict[str, Any], extents: dict[str, range], name: str) -> dict[str, range]:
    keys, above = list(extents), {}
    for i in range(0, len(keys), FAN_IN):
        below = keys[i : i + FAN_IN]
        if len(below) == 1:
            above[below[0]] = extents[below[0]]
            continue
        extent = range(extents[below[0]].start, extents[below[-1]].stop)
        key = f"{name}-{i // FAN_IN}"
        graph[key] = (add_up, below, extent)
        above[key] = extent
    return above
