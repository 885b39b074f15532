"""Passes on a cluster: a message out to every worker, one graph of tasks, sums back."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any, NamedTuple

import dask
from distributed import Future

from cavity.dask.broadcast import broadcast
from cavity.dask.graph import PassGraph, Share, Task, pass_graph
from cavity.dask.layout import slot_of, slots
from cavity.dask.messages import Message, Packed, Setting
from cavity.dask.packing import for_rows, packed_message
from cavity.dask.source import ShardedSource
from cavity.dask.states import GroupStates
from cavity.dask.tree import FAN_IN, total
from cavity.posterior import Posterior
from cavity.prior import Prior
from cavity.sweep import SweepOptions

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
