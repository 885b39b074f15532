"""What travels between driver and workers: rows and sites of a group of shards, and q."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from dask.sizeof import sizeof

from cavity.dask.tree import PartialSum
from cavity.posterior import Naturals, Posterior
from cavity.prior import Prior
from cavity.rows import Sites
from cavity.rules.protocol import Rule
from cavity.sources.protocol import RawRows
from cavity.standardize import Standardizer
from cavity.sums import Sums
from cavity.sweep import SweepOptions
from cavity.typing import Array, IntArray


class GroupRows(NamedTuple):
    """The rows of some shards in a row."""

    first: int
    """Number of the first of the shards."""
    starts: tuple[int, ...]
    """Row number at which each begins."""
    shards: tuple[RawRows, ...]


class ShardState(NamedTuple):
    """What stays with the rows of a shard."""

    sites: Sites
    log_predictive: Array


GroupState = tuple["ShardState | None", ...]
"""Of the shards of a group; None is a shard whose sites say nothing yet."""


@dataclass(frozen=True)
class Setting:
    """What all passes of a fit have in common."""

    fit: str
    rule: Rule
    standardizer: Standardizer
    held_out: IntArray
    """Sorted numbers of the rows that take no part."""
    stored_directions: int


@dataclass(frozen=True)
class Message:
    """What all tasks of one pass are told: the one broadcast of an iteration."""

    setting: Setting
    prior: Prior
    posterior: Posterior | None
    options: SweepOptions | None
    number: int
    """Of the pass."""
    live: frozenset[str]
    """Keys of the states that are still needed."""


@dataclass(frozen=True)
class Packed:
    """A message as bytes."""

    name: str
    """Of the fit and the pass: no other message has it."""
    data: bytes = field(compare=False, repr=False)


def itself(thing: Any) -> Any:
    """The thing that travels, where a task wants it."""
    return thing


@sizeof.register(PartialSum)
def _size_of_sum(sums: PartialSum[Any]) -> int:
    return sum(sizeof(part) for _, part in sums.nodes)


@sizeof.register(Sums)
@sizeof.register(Naturals)
def _size_of_record(record: Any) -> int:
    # Where a task runs depends on the size of its inputs, and Dask does not look into our records.
    return sum(sizeof(getattr(record, part.name)) for part in fields(record))


@sizeof.register(Packed)
def _size_of_message(message: Packed) -> int:
    return len(message.data)
