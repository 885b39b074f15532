"""Sums in a fixed order: a binary tree over the shards, whichever task adds up which part of it."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass
from typing import NamedTuple

from cavity.gp.tiles import Sums

FAN_IN = 4
"""Largest number of results that one task adds up."""


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
class PartialSum:
    """Sums over a range of shards: those of the largest nodes within it, in the order of the shards."""

    nodes: tuple[tuple[Node, Sums], ...]


def added(a: Sums, b: Sums) -> Sums:
    """a + b as a new object: the cluster may still need both."""
    total = deepcopy(a)
    total += b
    return total


def fold(parts: Iterable[tuple[Node, Sums]], extent: range) -> PartialSum:
    """The sum of parts within a range of shards; the parts come in the order of their shards.

    A shard of the range that is in no part adds nothing: a node without a sibling moves up unchanged.
    Folding in several stages, each over a range of its own, gives the same bits as folding at once. At
    most one node of each level is held at a time.
    """
    found: list[tuple[Node, Sums]] = []
    for node, part in parts:
        _move_up(found, extent, node.start)
        found.append((node, part))
    _move_up(found, extent, extent.stop)
    return PartialSum(tuple(found))


def _move_up(found: list[tuple[Node, Sums]], extent: range, stop: int) -> None:
    """Move the last node up the tree as far as all shards below it come before `stop`."""
    while found:
        node, part = found[-1]
        parent = node.parent
        if parent.start < extent.start or parent.stop > min(stop, extent.stop):
            return
        found.pop()
        if found and found[-1][0] == (node.level, node.i ^ 1):
            part = added(found.pop()[1], part)
        found.append((parent, part))


def combine(sums: list[PartialSum], extent: range) -> PartialSum:
    """Sums over neighbouring ranges, in the order of their shards, as one over `extent`."""
    return fold((item for one in sums for item in one.nodes), extent)


def total(sums: list[PartialSum], n_shards: int) -> Sums:
    """The sum over all shards, whose number is a power of two."""
    ((_, part),) = combine(sums, range(n_shards)).nodes
    return part
