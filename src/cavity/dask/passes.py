"""Passes on a cluster: a message out to every worker, one graph of tasks, sums back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask
from distributed import Future

from cavity.dask.broadcast import broadcast
from cavity.dask.graph import Task, pass_graph
from cavity.dask.messages import Message, Setting
from cavity.dask.packing import for_rows, packed_message
from cavity.dask.source import ShardedSource
from cavity.dask.states import GroupStates
from cavity.dask.tree import FAN_IN_LEVELS, top
from cavity.posterior import Posterior
from cavity.prior import Prior
from cavity.sweep import SweepOptions

_PASSES_TO_LOOK_AROUND = 20
"""Passes after which workers that have come are noticed."""
SMALL = 2_000_000
"""Bytes of a message up to which the driver adds up the last sums itself: that saves a round trip, and
sums are as large as messages are."""


class Passes:
    """Numbers the passes of a fit, sends them out and takes their sums."""

    def __init__(self, source: ShardedSource, setting: Setting, states: GroupStates) -> None:
        self.source = source
        self.setting = setting
        self.states = states
        self.count = 0
        self._workers: list[str] = []
        self._q: Future | None = None

    def message(
        self, prior: Prior, posterior: Posterior | None, options: SweepOptions | None
    ) -> Message:
        """What the tasks of the next pass are told."""
        self.count += 1
        slim = for_rows(prior, directions=self.setting.stored_directions > 0)
        return Message(self.setting, slim, posterior, options, self.count, self.states.live)

    def total(
        self, prepare: Callable[[], tuple[Message, dict[int, Task]]], repair: Callable[[], None]
    ) -> Any:
        """The sum of what the tasks of a pass return; after a fault, `repair` and another pass."""
        places: list[int] = []

        def submit() -> list[Future]:
            roots = self.submit(*prepare())
            places[:] = roots
            return list(roots.values())

        try:
            nodes = self.source.cluster.run(submit, repair)
        finally:
            self._q = None  # now: to let go of it just before the next graph would delay that one
        return top(dict(zip(places, nodes, strict=True)))

    def submit(self, message: Message, tasks: dict[int, Task]) -> dict[int, Future]:
        """Send out one pass; the last nodes of its tree of sums, by their places."""
        cluster, workers = self.source.cluster, self._look_around()
        packed = packed_message(message)
        n_roots = 1 << FAN_IN_LEVELS if len(packed.data) <= SMALL else 1
        self._q, complete = broadcast(cluster, packed, workers)
        graph, roots = pass_graph(packed, self._q, tasks, n_roots)
        # Left to itself, Dask may settle for most of the groups on one worker.
        homes = self._homes(graph, list(tasks))
        wish = {"workers": homes.__getitem__, "allow_other_workers": True} if homes else {}
        # A message in the graph may be larger than what Dask thinks reasonable for a graph.
        roomy = dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"})
        with dask.annotate(**wish), roomy:
            futures = cluster.client.get(graph, list(roots.values()), sync=False)
        if not complete:
            self.forget_workers()
        return dict(zip(roots, futures, strict=True))

    def forget_workers(self) -> None:
        """Look around before the next pass: some worker was lost."""
        self._workers = []

    def _look_around(self) -> list[str]:
        if not self._workers or self.count % _PASSES_TO_LOOK_AROUND == 0:
            self._workers = sorted(self.source.cluster.client.nthreads())
        return self._workers

    def _homes(self, graph: dict[str, Any], groups: list[int]) -> dict[str, list[str]]:
        """Where each task of a graph had best run: a wish, which the loss of a worker overrules."""
        if not self._workers:
            return {}
        homes = dict.fromkeys(graph, self._workers)
        for key, group in zip(graph, groups, strict=False):  # the tasks of the groups come first
            homes[key] = [self.source.home(group, self._workers)]
        return homes
