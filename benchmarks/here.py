"""Methods of ours that run in the harness's own process.

They are for thousands of fits of about a second, where a process for each would mostly import modules.
The peak memory of a single fit is unknown then.
"""

from __future__ import annotations

import time
import warnings
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

        start = starting_point(train.X, settings["m"], settings["seed"])
        job = Job(train.X, train.y, test.X, test.y, start, settings, budget)
        try:
            done = fit(self.mode, job)
        except Exception as error:
            raise MethodFailedError(f"{self.mode}: {type(error).__name__}: {error}") from error
        return Result.from_log_probabilities(
            done.log_p, test.y, done.seconds, curve=done.curve, extra=done.extra
        )


@dataclass(frozen=True)
class HereSEP:
    """`SEPClassifier` with the parameters of the settings and no others, fitted in this process."""

    def __call__(
        self, train: Dataset, test: Dataset, settings: Mapping[str, Any], budget: float | None
    ) -> Result:
        """Fit and score; whatever goes wrong becomes a `MethodFailedError`."""
        from cavity import SEPClassifier

        model = SEPClassifier(
            random_state=settings["seed"],
            n_jobs=settings.get("threads"),
            max_seconds=budget,
            **settings.get("parameters", {}),
        )
        begin = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a fit that ends with its budget says so
                model.fit(train.X, train.y)
        except Exception as error:
            raise MethodFailedError(f"SEP: {type(error).__name__}: {error}") from error
        seconds = time.perf_counter() - begin
        extra = {
            "n_iter": model.n_iter_,
            "m": len(model.inducing_points_),
            "inverse_temperature": model.inverse_temperature_,
        }
        return Result.from_log_probabilities(
            model.predict_log_proba(test.X), test.y, seconds, extra=extra
        )
