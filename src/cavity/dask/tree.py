"""Adding up in a fixed order: a binary tree over the shards, whoever does which part of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from cavity.posterior import Naturals
from cavity.sums import Sums

Part = TypeVar("Part", Sums, Naturals)

FAN_IN_LEVELS = 2
"""Levels of the tree that a reduction task climbs: it adds up four results at most."""


def added(a: Part, b: Part) -> Part:
    """a + b, neither of them changed: the cluster may still need them."""
    values: dict[str, Any] = {
        field.name: None if (mine := getattr(a, field.name)) is None else mine + getattr(b, field.name)
        for field in fields(a)
    }
    return type(a)(**values)


def climbed(nodes: Mapping[int, Part], levels: int) -> dict[int, Part]:
    """The nodes so many levels up: nodes 2i and 2i + 1 make node i; one without a sibling stays itself.

    Climbing in several stages, each over a part of the nodes, gives the same bits as at once.
    """
    current = dict(nodes)
    for _ in range(levels):
        above: dict[int, Part] = {}
        for i in sorted(current):
            above[i // 2] = added(above[i // 2], current[i]) if i // 2 in above else current[i]
        current = above
    return current


def top(nodes: Mapping[int, Part]) -> Part:
    """All nodes added up."""
    current = dict(nodes)
    while len(current) > 1:
        current = climbed(current, 1)
    ((_, node),) = current.items()
    return node


def add_up(places: list[int], parts: list[Any]) -> Any:
    """One node from its descendants at these places, `FAN_IN_LEVELS` below."""
    ((_, node),) = climbed(dict(zip(places, parts, strict=True)), FAN_IN_LEVELS).items()
    return node
