"""What travels between driver and workers: rows and sites of a group of shards, and q."""

from __future__ import annotations

import copy
import pickle
import sys
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from dask.sizeof import sizeof

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
    """A message as bytes: packed once, whoever it goes to."""

    data: bytes


def unpacked(message: Message | Packed) -> Message:
    """The message itself."""
    if isinstance(message, Packed):
        opened: Message = pickle.loads(message.data)
        return opened
    return message


def for_rows(prior: Prior, *, directions: bool) -> Prior:
    """The prior without what only the driver needs of it.

    The bound kernel goes along: a worker need not know how to bind a kernel that a user has registered.
    """
    prior.rows_kernel, prior.whitener  # noqa: B018  (made here, not by every worker)
    slim = copy.copy(prior)
    slim.Z = prior.Z[:, :0]  # the bound kernel has the points; what counts here is how many they are
    unused = ["_K", "_tape", "L_inverse"] + ([] if directions else ["L"])
    if prior.dtype != np.float64:
        unused.append("_bound")
    for name in unused:
        slim.__dict__.pop(name, None)
    return slim


def moments_only(posterior: Posterior) -> Posterior:
    """The posterior without its naturals."""
    n_latents = len(posterior.mean)
    return Posterior(
        posterior.mean,
        posterior.covariance,
        posterior.half_log_determinant,
        Naturals.zeros(n_latents, 0),
    )


@sizeof.register(Sums)
@sizeof.register(Naturals)
def _size_of_record(record: Any) -> int:
    # Where a task runs depends on the size of its inputs, and Dask does not look into our records.
    return sum(sizeof(getattr(record, field.name)) for field in fields(record))


@sizeof.register(Message)
def _size_of_message(message: Message) -> int:
    total = sys.getsizeof(message)
    for record in (message.prior, message.posterior):
        for value in getattr(record, "__dict__", {}).values():
            total += value.nbytes if isinstance(value, np.ndarray) else 0
    return total
