"""Recovery of what was lost with a worker: rows are read again, sites are computed again.

Every few passes the state of each group is copied to another worker, and the driver keeps the messages
of the passes since. A lost state is recovered exactly by repeating those passes, from the copy on, over
the rows of its group alone. Where there is no copy (one worker only, after minibatches, or if the copy
is lost too), the sites are computed from the last q that refined them, in a few passes, each of which
takes the sites that the one before has found out of that q. These are not the sites that were lost, but
they lead to the same fixed point.

Beside a checkpoint each worker writes a file for each of its shards, into a folder with the name of the
checkpoint and `.sites`. If the folder is on a file system that all workers share, a fit that is resumed
finds every site, on any number of workers. A shard without a file starts from sites of zero precision,
which lead to the same fixed point.
"""

from __future__ import annotations

import shutil
import warnings
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import dask
import numpy as np
from distributed import Client, Future

from cavity.engines.dask.cluster import FAULTS
from cavity.engines.dask.comm import (
    GroupRows,
    GroupState,
    Message,
    PackedMessage,
    ShardState,
    identity,
    pack,
)
from cavity.engines.dask.layout import slot_of
from cavity.engines.dask.passes import GroupStates, PassRunner
from cavity.engines.dask.worker import put_state, replay_group, state_key
from cavity.engines.local import state_arrays, state_from_arrays
from cavity.files import written_atomically

PASSES_BETWEEN_COPIES = 16
"""Number of passes after which states are copied again; at most twice as many are repeated."""
_BYTES = 2**25
"""Size of the messages after which states are copied again; at most twice as much is kept."""
_PASSES_WITHOUT_COPY = 5
"""Passes that find the sites of rows whose state has no copy."""
_TRIES = 5
"""Attempts at a repair, if more workers are lost during it, before sites start from zero."""


class CopyRequest(NamedTuple):
    """Copies of the states that have been asked for and may not be complete."""

    copies: list[Future]
    n_messages: int
    """Number of messages that need not be kept when the copies are complete."""


class ReplayPlan(NamedTuple):
    """How a lost state is found again: the passes of these messages, from this state on."""

    state: Future | None
    messages: list[PackedMessage]
    exact: bool
    """Whether the state will be the one that was lost."""


class RecoveryLog:
    """Copies of states, and the messages of passes since: all that is needed to recover lost states."""

    def __init__(self, client: Client, states: GroupStates) -> None:
        self._client = client
        self._states = states
        self._copies: list[Future] | list[None] | None = [None] * len(states)
        """A copy of each group's state (None: sites of zero precision); None if there are no copies."""
        self._messages: list[PackedMessage] = []
        """Messages of the passes since those copies."""
        self._request: CopyRequest | None = None
        self._due = False
        """Whether states are to be copied with the next pass."""
        self._refining: Message | None = None
        """The last message of a pass that refined sites."""
        self._scoring: Message | None = None
        """The last message since then of a pass that only scored rows."""

    def forget(self) -> None:
        """Forget copies and messages: the states are no longer those that they lead to."""
        self._copies, self._messages, self._request = None, [], None

    def copy_soon(self) -> None:
        """Copy the states with the next pass, as copies may have been lost."""
        self._request, self._due = None, True

    def committed(self, message: Message, packed: PackedMessage, slots: list[str] | None) -> None:
        """Note that the states are those which a pass has left.

        slots: the workers, each as many times as it has threads; None after a pass over a minibatch.
        """
        if message.row_pass.refines:
            self._refining, self._scoring = message, None
        else:
            self._scoring = message
        if slots is None:
            self.forget()
            return
        self._check_request()
        useless = self._copies is None and self._request is None
        if useless or self._exceeds(2):
            self.forget()
        self._messages.append(packed)
        if self._request is None and (self._exceeds(1) or self._due or self._copies is None):
            self._request_copies(slots)

    def replay_plan(self, group: int) -> ReplayPlan | None:
        """How to recover the state of a group; None if its sites had zero precision."""
        if self._copies is not None:
            copy = self._copies[group]
            if copy is None or copy.status == "finished":
                return ReplayPlan(copy, list(self._messages), exact=True)
        last = self._refining or self._scoring
        if last is None:
            return None
        finding = pack(replace(last, row_pass=last.row_pass.finding_sites(), leaves=None))
        # After a pass that has only scored the rows, those that were lost must be scored, too.
        scoring = [] if self._scoring is None else [pack(replace(self._scoring, leaves=None))]
        return ReplayPlan(None, [finding] * _PASSES_WITHOUT_COPY + scoring, exact=False)

    def _exceeds(self, times: int) -> bool:
        """Whether the messages are at least `times` as many as should lead to new copies."""
        size = sum(len(packed.data) for packed in self._messages)
        return len(self._messages) >= times * PASSES_BETWEEN_COPIES or size > times * _BYTES

    def _check_request(self) -> None:
        """Use the copies that were asked for, if they are complete."""
        if self._request is None:
            return
        copies, n_messages = self._request
        found = {copy.status for copy in copies}
        if found == {"finished"}:
            self._copies, self._messages, self._request = copies, self._messages[n_messages:], None
        elif found - {"finished", "pending"}:
            self._request = None

    def _request_copies(self, slots: list[str]) -> None:
        """Have each state copied to a worker that it is not on."""
        workers, n_groups = list(dict.fromkeys(slots)), len(self._states)
        if len(workers) < 2:
            return
        name = f"cavity-copy-{self._messages[-1].name}"
        graph, others = {}, {}
        for i in range(n_groups):
            home = workers.index(slots[slot_of(i, n_groups, len(slots))])
            others[f"{name}-{i}"] = [workers[(home + 1) % len(workers)]]
            graph[f"{name}-{i}"] = (identity, self._states[i])
        with dask.annotate(workers=others.__getitem__, allow_other_workers=True):
            copies = self._client.get(graph, list(graph), sync=False)
        self._request, self._due = CopyRequest(copies, len(self._messages)), False


def repair(passes: PassRunner, recovery: RecoveryLog) -> None:
    """Find out what was lost, read rows again and recover sites.

    If workers are lost in every attempt, the sites start from zero precision.
    """
    cluster, lost = passes.source.cluster, set[int]()
    for _ in range(_TRIES):
        passes.forget_workers()
        passes.source.reload()
        lost.update(passes.states.forget_lost())
        plans = {i: plan for i in sorted(lost) if (plan := recovery.replay_plan(i)) is not None}
        try:
            passes.states.update(_replay(passes, plans))
            if not all(plan.exact for plan in plans.values()):
                recovery.forget()
            recovery.copy_soon()
            return
        except FAULTS:
            cluster.wait_for_workers()
    recovery.forget()


def _replay(passes: PassRunner, plans: dict[int, ReplayPlan]) -> dict[int, str]:
    """Recover states of groups; returns their new keys."""
    fit_id, number = passes.fit_id, passes.next_number()
    keys = {i: state_key(fit_id, number, i) for i in plans}
    cluster, rows, needed_keys = passes.source.cluster, passes.source.rows, passes.states.needed_keys
    cluster.results(
        [
            cluster.client.submit(
                replay_group,
                rows[i], plan.state, plan.messages, keys[i], fit_id, number, needed_keys, pure=False,
            )
            for i, plan in plans.items()
        ]
    )  # fmt: skip
    return keys


def folder_of(checkpoint: Path) -> Path:
    """The folder of the sites that belong to a checkpoint."""
    return checkpoint.with_name(f"{checkpoint.name}.sites")


def make_folder(checkpoint: Path) -> None:
    """Make the folder, if the driver can write there."""
    with suppress(OSError):
        folder_of(checkpoint).mkdir(exist_ok=True)


def remove_folder(checkpoint: Path) -> None:
    """Remove the folder, if the driver can reach it."""
    shutil.rmtree(folder_of(checkpoint), ignore_errors=True)


def report_unwritten(checkpoint: Path, n_unwritten: int, n_groups: int) -> None:
    """Warn if workers could not write their files."""
    if n_unwritten:
        warnings.warn(
            f"{n_unwritten} of {n_groups} tasks could not write to {str(folder_of(checkpoint))!r} on "
            "their worker; a fit resumed from this checkpoint starts their sites anew. Put the "
            "checkpoint on a file system that the workers share",
            UserWarning,
            stacklevel=2,
        )


def write_group(rows: GroupRows, state: GroupState | None, checkpoint: str, version: str) -> bool:
    """Write the state of each shard, and remove all but the latest of its earlier files."""
    folder = folder_of(Path(checkpoint))
    try:
        for i, own in enumerate(state or ()):
            name = f"{rows.first + i:06d}"
            older = sorted(folder.glob(f"{name}-*.npz"), key=lambda file: file.stat().st_mtime)
            if own is not None:
                arrays: dict[str, Any] = state_arrays(*own)
                with written_atomically(folder / f"{name}-{version}.npz") as file:
                    np.savez(file, **arrays)
            for file_ in older[:-1]:
                file_.unlink(missing_ok=True)
    except OSError:
        return False
    return True


def read_group_state(
    rows: GroupRows, checkpoint: str, version: str, key: str, fit_id: str, number: int
) -> int:
    """Read the state of each shard that has a file; returns their number."""
    folder = folder_of(Path(checkpoint))
    states: list[ShardState | None] = []
    for i, shard in enumerate(rows.shards):
        own = _read(folder / f"{rows.first + i:06d}-{version}.npz")
        fits = own is not None and len(own.log_predictive) == len(shard.labels)
        states.append(own if fits else None)
    put_state({key: tuple(states)}, fit_id, number, frozenset())
    return sum(state is not None for state in states)


def _read(path: Path) -> ShardState | None:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return ShardState(*state_from_arrays(arrays))
    except (OSError, EOFError, ValueError, KeyError, BadZipFile):
        return None
