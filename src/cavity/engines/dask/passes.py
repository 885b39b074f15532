"""One graph for one pass: a task for each share of the groups, and the tree of sums above them.

Where the sites of each group of shards are, as the driver knows it.

Passes on a cluster: a message out to every worker, one graph of tasks, sums back.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any, NamedTuple

import dask
from distributed import Client, Future

from cavity.engines.dask.comm import (
    Message,
    Packed,
    Setting,
    broadcast,
    for_rows,
    itself,
    packed_message,
)
from cavity.engines.dask.shards import ShardedSource, slot_of, slots
from cavity.engines.dask.tree import FAN_IN, add_up, total
from cavity.gp.posterior import Posterior
from cavity.gp.prior import Prior
from cavity.inference.sweep import SweepOptions


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


class GroupStates:
    """Keys of the groups' states, which the workers hold; None where sites say nothing yet."""

    def __init__(self, client: Client, n_groups: int) -> None:
        self._client = client
        self.keys: list[str | None] = [None] * n_groups

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, group: int) -> Future | None:
        """The state of a group, for a task."""
        key = self.keys[group]
        return None if key is None else Future(key, self._client)

    def update(self, keys: dict[int, str]) -> None:
        """New states of some groups."""
        for group, key in keys.items():
            self.keys[group] = key

    @property
    def live(self) -> frozenset[str]:
        """Keys that are still needed."""
        return frozenset(key for key in self.keys if key is not None)

    def forget_lost(self) -> list[int]:
        """The groups whose states are gone with a worker, and now say nothing."""
        known = self._client.who_has([Future(key, self._client) for key in self.live])
        lost = [i for i, key in enumerate(self.keys) if key is not None and not known.get(key)]
        for i in lost:
            self.keys[i] = None
        return lost


_PASSES_TO_LOOK_AROUND = 20
"""Passes after which workers that have come are noticed."""
SMALL = 2_000_000
"""Bytes of a message up to which the driver adds up the last sums itself: that saves a round trip, and
sums are as large as messages are."""


class Done(NamedTuple):
    """A pass that is over."""

    total: Any
    """The sum of what its tasks returned."""
    message: Message
    packed: Packed


class Passes:
    """Numbers the passes of a fit, sends them out and takes their sums."""

    def __init__(self, source: ShardedSource, setting: Setting, states: GroupStates) -> None:
        self.source = source
        self.setting = setting
        self.states = states
        self.count = 0
        self.slots: list[str] = []
        """The workers, each as many times as it has threads."""
        self._watchful_until = 0
        self._q: Future | None = None

    def message(
        self, prior: Prior, posterior: Posterior | None, options: SweepOptions | None
    ) -> Message:
        """What the tasks of the next pass are told."""
        self.count += 1
        slim = for_rows(prior, directions=self.setting.stored_directions > 0)
        return Message(self.setting, slim, posterior, options, self.count, self.states.live)

    def run(
        self,
        prepare: Callable[[], tuple[Message, Task]],
        groups: list[int],
        repair: Callable[[], None],
    ) -> Done:
        """A pass over some groups; after a fault, `repair` and another one."""
        sent: list[tuple[Message, Packed]] = []

        def submit() -> list[Future]:
            message, task = prepare()
            packed = packed_message(message)
            sent.append((message, packed))
            return self.submit(message, packed, task, groups)

        try:
            results = self.source.cluster.run(submit, repair)
        finally:
            self._q = None  # now: to let go of it just before the next graph would delay that one
        return Done(total(results, self.source.layout.n_shards), *sent[-1])

    def submit(self, message: Message, packed: Packed, task: Task, groups: list[int]) -> list[Future]:
        """Send out one pass; the last nodes of its tree of sums."""
        shares = self._shares(groups)
        n_roots = FAN_IN if len(packed.data) <= SMALL else 1
        workers = list(dict.fromkeys(self.slots))
        self._q, complete = broadcast(self.source.cluster, packed, workers)
        futures = self._started(pass_graph(packed, self._q, shares, task, n_roots))
        if not complete:
            self.forget_workers()
        return futures

    def forget_workers(self) -> None:
        """Some worker was lost: look around before each of the next passes, others may come."""
        self.slots = []
        self._watchful_until = self.count + _PASSES_TO_LOOK_AROUND

    def _started(self, graph: PassGraph) -> list[Future]:
        client, everyone = self.source.cluster.client, sorted(set(self.slots))
        # A wish, which the loss of a worker overrules. Left to itself, Dask may settle for one worker.
        homes = {key: [home] if (home := graph.homes.get(key)) else everyone for key in graph.tasks}
        wish = {"workers": homes.__getitem__, "allow_other_workers": True} if everyone else {}
        # A message in the graph may be larger than what Dask thinks reasonable for a graph.
        roomy = dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"})
        with dask.annotate(**wish), roomy:
            return list(client.get(graph.tasks, graph.roots, sync=False))

    def _shares(self, groups: list[int]) -> list[Share]:
        """The groups as they are dealt out: a task for each thread that has some of them."""
        watchful = self.count < self._watchful_until or self.count % _PASSES_TO_LOOK_AROUND == 0
        if watchful or not self.slots:
            self.slots = slots(self.source.cluster.client.nthreads())
        shards, n_groups = self.source.groups, len(self.source.groups)
        n_slots = len(self.slots) or n_groups  # nobody is there yet: a task for each group
        shares = []
        for slot, dealt in groupby(groups, lambda group: slot_of(group, n_groups, n_slots)):
            mine = list(dealt)
            home = self.slots[slot] if self.slots else None
            extent = range(shards[mine[0]].start, shards[mine[-1]].stop)
            shares.append(Share(extent, mine, home))
        return shares
