"""Where the sites of each group of shards are, as the driver knows it."""

from __future__ import annotations

from distributed import Client, Future


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
