"""One graph for one pass: a task for each group of shards, and the tree of sums above them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cloudpickle

from cavity.dask.messages import Message, Packed, unpacked
from cavity.dask.tree import FAN_IN_LEVELS, add_up


def pass_graph(
    message: Message, tasks: dict[int, Callable[[Any], tuple[Any, ...]]]
) -> tuple[dict[str, Any], str]:
    """A Dask graph, the groups' tasks first, and the key of its total.

    `tasks` make (function, arguments …) of the key of q. q is a task of its own, made of bytes, which
    workers pass on to each other; one that needs it while its holder is lost can have it made again.
    Scattering it would be faster, but waits for ever if a worker dies meanwhile.
    """
    name = f"{message.setting.fit}-{message.number}"
    q = f"cavity-q-{name}"
    nodes = {i: f"cavity-pass-{name}-{i}" for i in tasks}
    graph: dict[str, Any] = {nodes[i]: task(q) for i, task in tasks.items()}
    graph[q] = (unpacked, Packed(cloudpickle.dumps(message)))
    level = 0
    while len(nodes) > 1:
        level += 1
        nodes = _next_level(graph, nodes, f"cavity-sum-{name}-{level}")
    (root,) = nodes.values()
    return graph, root


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
