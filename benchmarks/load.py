"""How many cores other processes use while something is timed, and waiting until they use few."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

LIMIT = 0.25
"""Cores that other processes may use while seconds are counted."""
SAMPLE = 3.0
"""Seconds over which the load is looked at before something is timed."""
_STAT = Path("/proc/stat")


class BusyError(RuntimeError):
    """The machine is busy with other work, or with another timed run."""


def core_seconds() -> float | None:
    """Core-seconds that all processes have used so far; None where the system does not tell.

    Time that the hypervisor took away counts too.
    """
    if not _STAT.exists():
        return None
    user, nice, system, _, _, irq, softirq, steal = map(int, _STAT.read_text().split(maxsplit=9)[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def own_core_seconds() -> float:
    """Core-seconds of this process and of its children that have ended."""
    return sum(os.times()[:4])


@dataclass
class OtherWork:
    """The cores that other processes use from its creation on."""

    total: Callable[[], float | None] = core_seconds
    own: Callable[[], float] = own_core_seconds
    clock: Callable[[], float] = time.monotonic
    _begin: tuple[float, float | None, float] = field(init=False)

    def __post_init__(self) -> None:
        self._begin = self.clock(), self.total(), self.own()

    def cores(self) -> float | None:
        """The mean number so far; None where the system does not tell."""
        began, total, own = self._begin
        now, later = self.clock(), self.total()
        if total is None or later is None or now <= began:
            return None
        return round(max(0.0, (later - total) - (self.own() - own)) / (now - began), 2)


def sampled(seconds: float = SAMPLE) -> float:
    """The cores that other processes use in the next seconds; 0 where the system does not tell."""
    work = OtherWork()
    time.sleep(seconds)
    return work.cores() or 0.0


@dataclass
class Quiet:
    """Lets a measurement begin on a quiet machine only."""

    patience: float
    """Seconds to wait for others to end."""
    look: Callable[[], float] = sampled
    clock: Callable[[], float] = time.monotonic
    _trusted: bool = False

    def wait(self) -> None:
        """Return when others use at most `LIMIT` cores; raise `BusyError` if that takes too long."""
        if self._trusted:
            return
        began = self.clock()
        while (cores := self.look()) > LIMIT:
            if self.clock() - began >= self.patience:
                raise BusyError(
                    f"other processes use {cores:.1f} cores, more than {LIMIT:g}, after a wait of "
                    f"{self.patience / 60:.0f} min; end them, wait longer (--wait), or try the "
                    "benchmark with --quick"
                )
        self._trusted = True

    def seen(self, cores: float | None) -> None:
        """Take note of the load during a measurement: after a high one the next `wait` looks again."""
        self._trusted = cores is None or cores <= LIMIT
