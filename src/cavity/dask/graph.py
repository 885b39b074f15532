"""One graph for one pass: a task for each group of shards, and the tree of sums above them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distributed import Future

from cavity.dask.messages import Packed
from cavity.dask.tree import FAN_IN_LEVELS, add_up

Task = Callable[[Any], tuple[Any, ...]]
"""Of where the message is: a task as Dask writes it."""


def pass_graph(
    packed: Packed, q: Future | None, tasks: dict[int, Task], n_roots: int
) -> tuple[dict[str, Any], dict[int, str]]:
    """A Dask graph, the groups' tasks first, and by their places the keys of at most `n_roots` nodes.

    Without `q`, where the message lies already, it is a task of its own, which workers pass on to each
    other; one that needs it while its holder is lost can have it made again.
    """
    nodes = {i: f"cavity-pass-{packed.name}-{i}" for i in tasks}
    message = f"cavity-message-{packed.name}"
    graph: dict[str, Any] = {nodes[i]: task(q or message) for i, task in tasks.items()}
    if q is None:
        graph[message] = (_itself, packed)
    level = 0
    while len(nodes) > n_roots:
        level += 1
        nodes = _next_level(graph, nodes, f"cavity-sum-{packed.name}-{level}")
    return graph, nodes


def _itself(packed: Packed) -> Packed:
    return packed


def _next_level(graph: dict[str, Any], nodes: dict[int, str], name: str) -> dict[int, str]:
    families: dict[int, list[int]] = {}
    for i in sorted(nodes):
        families.setdefault(i >> FAN_IN_LEVELS, []).append(i)
    above = {}
    for parent, places in families.items():
        if len(places) == 1:
            above[parent] = nodes[places[0]]
        else:
            above[parent] = f"{name}-{parent}"
            local = [place - (parent << FAN_IN_LEVELS) for place in places]
            graph[above[parent]] = (add_up, local, [nodes[place] for place in places])
    return above
