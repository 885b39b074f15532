"""Sites that are lost with a worker are found again, exactly where they were.

Every few passes the states of all groups are copied, each to another worker, and the driver keeps the
messages of the passes since. A lost state is that copy after those passes once more, over the rows of
its group alone: a fit goes on as if nothing had happened. Where there is no copy, as with one worker,
after minibatches, or if both are lost, the sites are found from the last q that they were part of. It is
held for a few passes, each of which takes the sites that the one before has found out of it: no longer
where they were, but on the way to the same fixed point.

After a fault: what was lost is read again, or found again.

Sites of shards beside a checkpoint: a file a shard, written by the worker that has it.

The folder is named after the checkpoint, with `.sites` at its end. If it is on a file system that all
workers share, a fit that is resumed finds every site, on any number of workers. Where a worker finds no
file, its shard starts from sites that say nothing: the fixed point is the same.
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
    Packed,
    ShardState,
    itself,
    packed_message,
)
from cavity.engines.dask.passes import GroupStates, Passes
from cavity.engines.dask.shards import slot_of
from cavity.engines.dask.worker import keep, replayed_group, state_key
from cavity.files import written_atomically
from cavity.gp.tiles import Sites

PASSES = 16
"""After which states are copied again; no more than twice as many are ever repeated."""
_BYTES = 2**25
"""Of messages, after which states are copied again; no more than twice as many are ever kept."""
_PASSES_WITHOUT_COPY = 5


class Begun(NamedTuple):
    """Copies that are on their way."""

    copies: list[Future]
    n_past: int
    """How many of the messages they make superfluous."""


class Past(NamedTuple):
    """How a state is found again: the passes of these messages, from this state on."""

    state: Future | None
    messages: list[Packed]
    exact: bool


class History:
    """What it takes to find lost states again."""

    def __init__(self, client: Client, states: GroupStates) -> None:
        self._client = client
        self._states = states
        self._copies: list[Future] | list[None] | None = [None] * len(states)
        """Of the groups' states (None: of sites that say nothing yet), if they are known at all."""
        self._past: list[Packed] = []
        self._begun: Begun | None = None
        self._due = False
        self._last: Message | None = None
        self._share = 1.0
        """Of the residual, in the last pass that refined sites; one that only scores has its own."""

    def forget(self) -> None:
        """The states are no longer those that copies and messages lead to."""
        self._copies, self._past, self._begun = None, [], None

    def copy_soon(self) -> None:
        """Copies may be lost: new ones with the next pass."""
        self._begun, self._due = None, True

    def committed(self, message: Message, packed: Packed, places: list[str] | None) -> None:
        """The states are those that a pass over all rows has left, on workers with so many `places`.

        None stands for a pass over a minibatch.
        """
        self._last = message
        if message.options is not None and message.options.damping > 0.0:
            self._share = message.options.residual_scale
        if places is None:
            self.forget()
            return
        self._look_after_copies()
        useless = self._copies is None and self._begun is None
        if useless or self._fills(2):
            self.forget()
        self._past.append(packed)
        if self._begun is None and (self._fills(1) or self._due or self._copies is None):
            self._copy(places)

    def past_of(self, group: int) -> Past | None:
        """How the state of a group is found again; None if it never said anything."""
        if self._copies is not None:
            copy = self._copies[group]
            if copy is None or copy.status == "finished":
                return Past(copy, list(self._past), exact=True)
        if self._last is None:
            return None
        last = self._last
        assert last.options is not None
        still = replace(
            last.options, gradient=False, damping=1.0, trace_penalty=0.0, inverse_temperature=1.0,
            residual_scale=self._share,
        )  # fmt: skip
        finding = [packed_message(replace(last, options=still))] * _PASSES_WITHOUT_COPY
        # A pass that has only scored the rows must score those that were lost, too.
        scoring = [packed_message(last)] if last.options.damping == 0.0 else []
        return Past(None, finding + scoring, exact=False)

    def _fills(self, times: int) -> bool:
        """Whether the messages are so many times as much as should be there when states are copied."""
        size = sum(len(packed.data) for packed in self._past)
        return len(self._past) >= times * PASSES or size > times * _BYTES

    def _look_after_copies(self) -> None:
        if self._begun is None:
            return
        copies, n_past = self._begun
        found = {copy.status for copy in copies}
        if found == {"finished"}:
            self._copies, self._past, self._begun = copies, self._past[n_past:], None
        elif found - {"finished", "pending"}:
            self._begun = None

    def _copy(self, places: list[str]) -> None:
        """Have each state copied to a worker that it is not on."""
        workers, n_groups = list(dict.fromkeys(places)), len(self._states)
        if len(workers) < 2:
            return
        name = f"cavity-copy-{self._past[-1].name}"
        graph, others = {}, {}
        for i in range(n_groups):
            home = workers.index(places[slot_of(i, n_groups, len(places))])
            others[f"{name}-{i}"] = [workers[(home + 1) % len(workers)]]
            graph[f"{name}-{i}"] = (itself, self._states[i])
        with dask.annotate(workers=others.__getitem__, allow_other_workers=True):
            copies = self._client.get(graph, list(graph), sync=False)
        self._begun, self._due = Begun(copies, len(self._past)), False


_TRIES = 5


def repair(passes: Passes, history: History) -> None:
    """Find out what was lost: rows are read again, sites are found again.

    If workers are lost time and again meanwhile, the sites start from nothing.
    """
    cluster, lost = passes.source.cluster, set[int]()
    for _ in range(_TRIES):
        passes.forget_workers()
        passes.source.reload()
        lost.update(passes.states.forget_lost())
        pasts = {i: past for i in sorted(lost) if (past := history.past_of(i)) is not None}
        try:
            passes.states.update(_replayed(passes, pasts))
            if not all(past.exact for past in pasts.values()):
                history.forget()
            history.copy_soon()
            return
        except FAULTS:
            cluster.wait_for_workers()
    history.forget()


def _replayed(passes: Passes, pasts: dict[int, Past]) -> dict[int, str]:
    passes.count += 1
    pass_ = (passes.setting.fit, passes.count)
    keys = {i: state_key(*pass_, i) for i in pasts}
    cluster, rows, live = passes.source.cluster, passes.source.rows, passes.states.live
    cluster.results(
        [
            cluster.client.submit(
                replayed_group, rows[i], *pasts[i][:2], keys[i], *pass_, live, pure=False
            )
            for i in pasts
        ]
    )
    return keys


def folder_of(checkpoint: Path) -> Path:
    """Where the sites that belong to a checkpoint lie."""
    return checkpoint.with_name(f"{checkpoint.name}.sites")


def make_folder(checkpoint: Path) -> None:
    """Make the folder, where the driver can."""
    with suppress(OSError):
        folder_of(checkpoint).mkdir(exist_ok=True)


def remove_folder(checkpoint: Path) -> None:
    """Remove the folder, where the driver sees it."""
    shutil.rmtree(folder_of(checkpoint), ignore_errors=True)


def report_unwritten(checkpoint: Path, n_unwritten: int, n_groups: int) -> None:
    """Warn if workers could not write."""
    if n_unwritten:
        warnings.warn(
            f"{n_unwritten} of {n_groups} tasks could not write to {str(folder_of(checkpoint))!r} on "
            "their worker; a fit resumed from this checkpoint starts their sites anew. Put the "
            "checkpoint on a file system that the workers share",
            UserWarning,
            stacklevel=2,
        )


def write_group(rows: GroupRows, state: GroupState | None, checkpoint: str, version: str) -> bool:
    """Write the state of each shard; files of the version before the last are removed."""
    folder = folder_of(Path(checkpoint))
    try:
        for i, own in enumerate(state or ()):
            name = f"{rows.first + i:06d}"
            older = sorted(folder.glob(f"{name}-*.npz"), key=lambda file: file.stat().st_mtime)
            if own is not None:
                with written_atomically(folder / f"{name}-{version}.npz") as file:
                    np.savez(file, **_arrays(own))
            for file_ in older[:-1]:
                file_.unlink(missing_ok=True)
    except OSError:
        return False
    return True


def read_group_state(
    rows: GroupRows, checkpoint: str, version: str, key: str, fit: str, number: int
) -> int:
    """Keep the state of each shard that there is a file of; their number."""
    folder = folder_of(Path(checkpoint))
    states: list[ShardState | None] = []
    for i, shard in enumerate(rows.shards):
        own = _read(folder / f"{rows.first + i:06d}-{version}.npz")
        fits = own is not None and len(own.log_predictive) == len(shard.labels)
        states.append(own if fits else None)
    keep({key: tuple(states)}, fit, number, frozenset())
    return sum(state is not None for state in states)


def _arrays(state: ShardState) -> dict[str, Any]:
    arrays = {
        "precision": state.sites.precision,
        "shift": state.sites.shift,
        "log_predictive": state.log_predictive,
    }
    if state.sites.directions is not None:
        arrays["directions"] = state.sites.directions
    return arrays


def _read(path: Path) -> ShardState | None:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            directions = arrays["directions"] if "directions" in arrays.files else None
            sites = Sites(arrays["precision"], arrays["shift"], directions)
            return ShardState(sites, arrays["log_predictive"])
    except (OSError, EOFError, ValueError, KeyError, BadZipFile):
        return None
