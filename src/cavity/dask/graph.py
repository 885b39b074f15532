"""One graph for one pass: q, a task for each group of shards, and the tree of sums above them."""

from __future__ import annotations

from typing import Any

import cloudpickle

from cavity.dask.messages import Message
from cavity.dask.tree import FAN_IN_LEVELS, add_up


def message_key(message: Message) -> str:
    """Key under which the tasks of a pass find its message."""
    return f"cavity-q-{message.setting.fit}-{message.number}"


def pass_graph(message: Message, tasks: dict[int, tuple[Any, ...]]) -> tuple[dict[str, Any], str]:
    """A Dask graph, and the key of its total; tasks are (function, arguments …) by group.

    q is a task like the others, made of bytes: a worker that needs it while its holder is lost can have
    it made again.
    """
    name = f"{message.setting.fit}-{message.number}"
    graph: dict[str, Any] = {message_key(message): (cloudpickle.loads, cloudpickle.dumps(message))}
    nodes: dict[int, str] = {}
    for i, task in tasks.items():
        nodes[i] = f"cavity-pass-{name}-{i}"
        graph[nodes[i]] = task
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
