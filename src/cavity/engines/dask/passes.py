"""Passes on a cluster: a message to the workers, one graph of tasks, sums back."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import NamedTuple, TypeAlias

import dask
from distributed import Client, Future

from cavity.engines.dask.comm import (
    FAN_IN,
    Message,
    PackedMessage,
    broadcast,
    combine,
    identity,
    pack,
    total,
)
from cavity.engines.dask.layout import slot_of, worker_slots
from cavity.engines.dask.shards import ShardedSource
from cavity.gp.tiles import Sums

_PASSES_TO_LOOK_AROUND = 20
"""Number of passes after which the driver looks for workers that have joined."""
SMALL_MESSAGE = 2_000_000
"""Up to this size of a message, in bytes, the driver adds up the last sums itself: that saves a round
trip, and sums are about as large as messages."""


class Assignment(NamedTuple):
    """What one task of a pass has to do."""

    extent: range
    """Shards from the first to the last of its groups."""
    groups: list[int]
    """The groups among them that take part."""
    worker: str | None = None
    """The worker that should run the task."""


Task: TypeAlias = tuple[object, ...]
"""A task as Dask writes it: a function and its arguments."""

MakeTask: TypeAlias = Callable[[Assignment, "Future | str"], Task]
"""Makes a task from an assignment and the place of the message."""


class PassGraph(NamedTuple):
    """A Dask graph, and where its tasks should run."""

    tasks: dict[str, Task]
    workers: dict[str, str | None]
    """By key: the worker that should run the task."""
    roots: list[str]
    """Keys of the last nodes of the tree of sums, in the order of their shards."""


def pass_graph(
    packed: PackedMessage,
    sent: Future | None,
    assignments: list[Assignment],
    make_task: MakeTask,
    n_roots: int,
) -> PassGraph:
    """The graph of a pass, with at most `n_roots` last nodes.

    sent: the message on the workers. If it is None the message becomes a task of its own, whose result
    workers pass on to each other, and which Dask repeats if its result is lost.
    """
    message = f"cavity-message-{packed.name}"
    nodes = {f"cavity-pass-{packed.name}-{i}": each for i, each in enumerate(assignments)}
    graph = {key: make_task(assignment, sent or message) for key, assignment in nodes.items()}
    workers = {key: assignment.worker for key, assignment in nodes.items()}
    if sent is None:
        graph[message] = (identity, packed)
    extents, level = {key: assignment.extent for key, assignment in nodes.items()}, 0
    while len(extents) > n_roots:
        level += 1
        extents = _next_level(graph, extents, f"cavity-sum-{packed.name}-{level}")
    return PassGraph(graph, workers, list(extents))


def _next_level(graph: dict[str, Task], extents: dict[str, range], name: str) -> dict[str, range]:
    keys, above = list(extents), {}
    for i in range(0, len(keys), FAN_IN):
        below = keys[i : i + FAN_IN]
        if len(below) == 1:
            above[below[0]] = extents[below[0]]
            continue
        extent = range(extents[below[0]].start, extents[below[-1]].stop)
        key = f"{name}-{i // FAN_IN}"
        graph[key] = (combine, below, extent)
        above[key] = extent
    return above


class GroupStates:
    """Keys of the groups' states, which the workers hold; None where sites have zero precision."""

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
    def needed_keys(self) -> frozenset[str]:
        """Keys that are still needed."""
        return frozenset(key for key in self.keys if key is not None)

    def forget_lost(self) -> list[int]:
        """Forget the states that were lost with a worker; returns the numbers of their groups."""
        known = self._client.who_has([Future(key, self._client) for key in self.needed_keys])
        lost = [i for i, key in enumerate(self.keys) if key is not None and not known.get(key)]
        for i in lost:
            self.keys[i] = None
        return lost


class PassResult(NamedTuple):
    """The result of a pass."""

    sums: Sums
    """Packed sums of all shards."""
    message: Message
    packed: PackedMessage


class PassRunner:
    """Numbers the passes of a fit, sends them to the workers and collects their sums."""

    def __init__(self, source: ShardedSource, fit_id: str, states: GroupStates) -> None:
        self.source = source
        self.fit_id = fit_id
        self.states = states
        self.count = 0
        """Number of the last pass."""
        self.slots: list[str] = []
        """The workers, each as many times as it has threads."""
        self._watch_until = 0
        self._sent: Future | None = None

    def next_number(self) -> int:
        """The number of a new pass."""
        self.count += 1
        return self.count

    def run(
        self,
        prepare: Callable[[], tuple[Message, MakeTask]],
        groups: list[int],
        repair: Callable[[], None],
    ) -> PassResult:
        """Run a pass over some groups; after a fault, `repair` and run another one."""
        tried: list[tuple[Message, PackedMessage]] = []

        def submit() -> list[Future]:
            message, make_task = prepare()
            packed = pack(message)
            tried.append((message, packed))
            return self.submit(packed, make_task, groups)

        try:
            results = self.source.cluster.run(submit, repair)
        finally:
            self._sent = None  # now: to release it just before the next graph would delay that one
        return PassResult(total(results, self.source.layout.n_shards), *tried[-1])

    def submit(self, packed: PackedMessage, make_task: MakeTask, groups: list[int]) -> list[Future]:
        """Submit one pass; returns the last nodes of its tree of sums."""
        assignments = self._assignments(groups)
        n_roots = FAN_IN if len(packed.data) <= SMALL_MESSAGE else 1
        workers = list(dict.fromkeys(self.slots))
        self._sent, complete = broadcast(self.source.cluster, packed, workers)
        futures = self._start(pass_graph(packed, self._sent, assignments, make_task, n_roots))
        if not complete:
            self.forget_workers()
        return futures

    def forget_workers(self) -> None:
        """After the loss of a worker: look for workers before each of the next passes."""
        self.slots = []
        self._watch_until = self.count + _PASSES_TO_LOOK_AROUND

    def _start(self, graph: PassGraph) -> list[Future]:
        client, everyone = self.source.cluster.client, sorted(set(self.slots))
        # A preference, which the loss of a worker overrides. Without it Dask may use one worker only.
        workers = {key: [own] if (own := graph.workers.get(key)) else everyone for key in graph.tasks}
        wish = {"workers": workers.__getitem__, "allow_other_workers": True} if everyone else {}
        # A message in the graph may be larger than the size of a graph at which Dask warns.
        roomy = dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"})
        with dask.annotate(**wish), roomy:
            return list(client.get(graph.tasks, graph.roots, sync=False))

    def _assignments(self, groups: list[int]) -> list[Assignment]:
        """A task for each thread of the workers that has some of the groups."""
        watch = self.count < self._watch_until or self.count % _PASSES_TO_LOOK_AROUND == 0
        if watch or not self.slots:
            self.slots = worker_slots(self.source.cluster.client.nthreads())
        shards, n_groups = self.source.groups, len(self.source.groups)
        n_slots = len(self.slots) or n_groups  # no worker is known yet: a task for each group
        assignments = []
        for slot, dealt in groupby(groups, lambda group: slot_of(group, n_groups, n_slots)):
            mine = list(dealt)
            worker = self.slots[slot] if self.slots else None
            extent = range(shards[mine[0]].start, shards[mine[-1]].stop)
            assignments.append(Assignment(extent, mine, worker))
        return assignments
