"""Adding up in a fixed order: a binary tree over the shards, whoever does which part of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Generic, NamedTuple, TypeVar

from cavity.gp.posterior import Naturals
from cavity.gp.tiles import Sums

Part = TypeVar("Part", Sums, Naturals)

FAN_IN = 4
"""Results that a reduction task adds up at most."""


class Node(NamedTuple):
    """A place in the tree: the shards i·2^level up to (i + 1)·2^level."""

    level: int
    i: int

    @property
    def start(self) -> int:
        """The first of its shards."""
        return self.i << self.level

    @property
    def stop(self) -> int:
        """The shard after its last."""
        return (self.i + 1) << self.level

    @property
    def parent(self) -> Node:
        """The node above."""
        return Node(self.level + 1, self.i >> 1)


@dataclass(frozen=True)
class PartialSum(Generic[Part]):
    """Sums of an extent of shards: the largest nodes that lie within it, in their order."""

    nodes: tuple[tuple[Node, Part], ...]


def added(a: Part, b: Part) -> Part:
    """a + b, neither of them changed: the cluster may still need them."""
    values: dict[str, Any] = {
        field.name: None if (mine := getattr(a, field.name)) is None else mine + getattr(b, field.name)
        for field in fields(a)
    }
    return type(a)(**values)


def folded(parts: Iterable[tuple[Node, Part]], extent: range) -> PartialSum[Part]:
    """The sum of parts that come in the order of their shards, all of them of an extent.

    A shard of the extent that is in no part adds nothing: a node without a sibling moves up as it is.
    Folding in several stages, each over an extent of its own, gives the same bits as at once. No more is
    held than a node of each level.
    """
    found: list[tuple[Node, Part]] = []
    for node, part in parts:
        _settle(found, extent, node.start)
        found.append((node, part))
    _settle(found, extent, extent.stop)
    return PartialSum(tuple(found))


def _settle(found: list[tuple[Node, Part]], extent: range, stop: int) -> None:
    """Move the last node up as far as nothing more can come in below, which begins at `stop`."""
    while found:
        node, part = found[-1]
        parent = node.parent
        if parent.start < extent.start or parent.stop > min(stop, extent.stop):
            return
        found.pop()
        if found and found[-1][0] == (node.level, node.i ^ 1):
            part = added(found.pop()[1], part)
        found.append((parent, part))


def add_up(sums: list[PartialSum[Part]], extent: range) -> PartialSum[Part]:
    """The sums of neighbours, in the order of their shards, as one of their common extent."""
    return folded((item for one in sums for item in one.nodes), extent)


def total(sums: list[PartialSum[Part]], n_shards: int) -> Part:
    """The sum of all shards, a power of two."""
    ((_, part),) = add_up(sums, range(n_shards)).nodes
    return part
