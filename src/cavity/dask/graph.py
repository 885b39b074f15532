"""One graph for one pass: q, a task for each group of shards, and the tree of sums above them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cloudpickle

from cavity.dask.messages import Message, Packed, unpacked
from cavity.dask.tree import FAN_IN_LEVELS, add_up

_CARRIED_BYTES = 16_000_000
"""What the copies of q that go along with the tasks may take together."""


def pass_graph(
    message: Message, tasks: dict[int, Callable[[Any], tuple[Any, ...]]]
) -> tuple[dict[str, Any], str]:
    """A Dask graph, and the key of its total; tasks make (function, arguments …) of where q is.

    A small q goes along with every task: nobody waits for it, and where the tasks run depends on the
    rows alone. A large one is a task of its own, made of bytes, which workers pass on to each other; one
    that needs it while its holder is lost can have it made again.
    """
    name = f"{message.setting.fit}-{message.number}"
    packed = Packed(cloudpickle.dumps(message))
    graph: dict[str, Any] = {}
    q: Any = packed
    if len(packed.data) * len(tasks) > _CARRIED_BYTES:
        q = f"cavity-q-{name}"
        graph[q] = (unpacked, packed)
    nodes: dict[int, str] = {}
    for i, task in tasks.items():
        nodes[i] = f"cavity-pass-{name}-{i}"
        graph[nodes[i]] = task(q)
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
