"""How long an iteration on a cluster takes: a model with a handful of measured constants.

An iteration sends q to the workers, sweeps the shards, adds up the sums in a tree and takes one step on
the driver:

    T(K) = broadcast(K) + rounds(K) · task(K) + tree(K) + scheduler · tasks(K) + driver

Each message costs a latency and its bytes over the bandwidth, and a process sends or receives its
messages one after the other. A worker is one core.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from cavity.engines.dask.comm import FAN_IN, n_copies
from cavity.engines.dask.layout import ShardLayout
from cavity.engines.dask.passes import SMALL_MESSAGE


@dataclass(frozen=True)
class Costs:
    """The measured constants, in seconds and bytes."""

    row: float
    """A row's share of a sweep on one core."""
    driver: float
    """A step without its sweep: Cholesky factors, gradient through K, optimiser."""
    latency: float
    """A message there and back, with the task that it starts."""
    scheduler: float
    """What one more task costs the scheduler."""
    bandwidth: float
    """Bytes a second between two processes, packing included."""
    q_bytes: float
    sum_bytes: float


@dataclass(frozen=True)
class Iteration:
    """The parts of one iteration, in seconds."""

    compute: float
    broadcast: float
    reduction: float
    scheduler: float
    driver: float

    @property
    def seconds(self) -> float:
        """The whole iteration."""
        return self.compute + self.broadcast + self.reduction + self.scheduler + self.driver

    @property
    def communication(self) -> float:
        """All but the workers' and the driver's own computation."""
        return self.broadcast + self.reduction + self.scheduler


def iteration(n_rows: int, n_workers: int, costs: Costs) -> Iteration:
    """The model's iteration on so many rows and workers."""
    layout = ShardLayout.of(n_rows)
    groups = len(layout.groups(n_workers))
    tasks = min(groups, n_workers)  # a worker's groups are one task
    depth = math.ceil(math.log(tasks, FAN_IN)) if n_workers > 1 else 0
    reductions = max(0, math.ceil((tasks - 1) / (FAN_IN - 1)))
    last = 1  # nodes that the driver takes
    if costs.q_bytes <= SMALL_MESSAGE:
        last, depth, reductions = min(tasks, FAN_IN), max(0, depth - 1), max(0, reductions - 1)
    sum_seconds = costs.latency + costs.sum_bytes / costs.bandwidth
    q_seconds, copies = costs.q_bytes / costs.bandwidth, n_copies(n_workers)
    fetches = math.ceil(n_workers / copies) - 1
    return Iteration(
        compute=math.ceil(groups / n_workers) * (n_rows / groups) * costs.row,
        # The driver's copies, then those that each holder hands on.
        broadcast=2 * costs.latency + copies * q_seconds + fetches * (costs.latency + q_seconds),
        # A node waits for up to three sums, one after the other; the last ones go to the driver.
        reduction=costs.latency
        + last * costs.sum_bytes / costs.bandwidth
        + sum_seconds * depth * min(FAN_IN - 1, n_workers - 1),
        scheduler=costs.scheduler * (tasks + reductions),
        driver=costs.driver,
    )


def bottleneck(n_rows: int, costs: Costs, most: int = 100_000) -> int | None:
    """The number of workers from which on communication takes longer than computation."""
    n_workers = 1
    while n_workers <= most:
        parts = iteration(n_rows, n_workers, costs)
        if parts.communication > parts.compute:
            return n_workers
        n_workers = max(n_workers + 1, n_workers * 21 // 20)
    return None
