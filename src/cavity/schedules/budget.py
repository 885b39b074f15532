"""How much training may cost, and how steps and gains shrink towards its end."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

_LAST_RATE = 0.01
_LAST_GAIN = 0.05
_POLISHING_EPOCHS = 3.0
_POLISHING_SHARE = 0.25
_SHORT_COOLING = 0.25
"""Length of the cooling when training ends early, as a share of the training so far."""


@dataclass(frozen=True)
class Budget:
    """Epochs and seconds at most; whichever binds first decides."""

    max_epochs: float
    max_seconds: float = np.inf
    cooling_starts: float = 0.5
    """Share of the budget after which steps and gains shrink: worth more in NLL than anything else.
    1 means never."""
    epochs_after: float = 0.0
    """Epochs' worth of seconds that will be needed when training is over, besides the exact sweeps."""

    def used(self, epochs: float, seconds: float) -> float:
        """Share of the budget that is gone, from 0 to 1 and beyond."""
        return max(epochs / self.max_epochs, seconds / self.max_seconds)

    def rate(self, used: float) -> float:
        """Factor on the optimiser's steps: 1 before the cooling, then half a cosine.

        >>> budget = Budget(max_epochs=10)
        >>> budget.rate(0.2), round(budget.rate(0.75), 6), budget.rate(1.0)
        (1.0, 0.5, 0.01)
        """
        return float(max(_LAST_RATE, 0.5 * (1.0 + np.cos(np.pi * self._cooled(used)))))

    def gain(self, used: float) -> float:
        """Factor on the smallest gain: 1 before the cooling, then straight down."""
        return max(_LAST_GAIN, 1.0 - self._cooled(used))

    def ending_soon(self, epochs: float) -> Budget:
        """A budget that cools from `epochs` on and ends a quarter of them later.

        Epochs decide, not seconds: without max_seconds the clock has no say in a result.
        """
        longer = 1.0 + _SHORT_COOLING
        soon = min(self.max_epochs, longer * epochs)
        return replace(self, max_epochs=soon, cooling_starts=1.0 / longer)

    def without_polishing(self, seconds_per_epoch: float) -> Budget:
        """The budget of the training proper, with some seconds kept for what comes after it.

        For the exact sweeps that is three epochs' worth, if it is at most a quarter of all seconds.
        Sweeps of data that are too large for that are left out: q is then the average that training has
        made.

        >>> budget = Budget(max_epochs=10, max_seconds=100.0, epochs_after=1.0)
        >>> budget.without_polishing(5.0).max_seconds, budget.without_polishing(10.0).max_seconds
        (80.0, 90.0)
        """
        most = _POLISHING_SHARE * self.max_seconds
        polishing, after = _POLISHING_EPOCHS * seconds_per_epoch, self.epochs_after * seconds_per_epoch
        reserve = min(after, most) + (polishing if polishing <= most else 0.0)
        return replace(self, max_seconds=self.max_seconds - reserve)

    def _cooled(self, used: float) -> float:
        if used <= self.cooling_starts or self.cooling_starts >= 1.0:
            return 0.0
        return min(1.0, (used - self.cooling_starts) / (1.0 - self.cooling_starts))
