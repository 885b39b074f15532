"""Methods of ours that run in the harness's own process.

They are for thousands of fits of about a second, where a process for each would mostly import modules.
The peak memory of a single fit is unknown then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.data import Dataset
from benchmarks.methods import MethodFailedError, Result
from benchmarks.start import starting_point


@dataclass(frozen=True)
class Here:
    """SEP, SVI or GFITC as `benchmarks.ours` sets them up, fitted in this process."""

    mode: str

    def __call__(
        self, train: Dataset, test: Dataset, settings: Mapping[str, Any], budget: float | None
    ) -> Result:
        """Fit and score; whatever goes wrong becomes a `MethodFailedError`."""
        from benchmarks.ours import Job, fit

        start = starting_point(train.X, settings["m"], settings["seed"]) if "m" in settings else None
        job = Job(train.X, train.y, test.X, test.y, start, settings, budget, test.f)
        try:
            done = fit(self.mode, job)
        except Exception as error:
            raise MethodFailedError(f"{self.mode}: {type(error).__name__}: {error}") from error
        return Result.from_log_probabilities(
            done.log_p, test.y, done.seconds, curve=done.curve, extra=done.extra
        )
