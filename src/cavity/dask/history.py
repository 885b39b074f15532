"""Sites that are lost with a worker are found again, exactly where they were.

Every few passes the states of all groups are copied, each to another worker, and the driver keeps the
messages of the passes since. A lost state is that copy after those passes once more, over the rows of
its group alone: a fit goes on as if nothing had happened. Where there is no copy, as with one worker,
after minibatches, or if both are lost, the sites are found from the last q that they were part of. It is
held for a few passes, each of which takes the sites that the one before has found out of it: no longer
where they were, but on the way to the same fixed point.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import dask
from distributed import Client, Future

from cavity.dask.layout import slot_of
from cavity.dask.messages import Message, Packed, itself
from cavity.dask.packing import packed_message
from cavity.dask.states import GroupStates

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
            self._share = message.options.residual_share
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
            last.options, gradient=False, damping=1.0, residual_penalty=0.0, stretch=1.0,
            residual_share=self._share,
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
