"""A peer at its best: its settings are searched on rows held out of training, in a stated budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.data import Dataset
from benchmarks.methods import Method, MethodFailedError, Result, code_of

HELD_OUT, MOST_HELD_OUT = 0.1, 10_000
"""Share of the training rows that a search is scored on, and the most of them."""


@dataclass(frozen=True)
class Searched:
    """The method with the lowest NLL on held-out rows, then trained anew on all rows.

    `settings["search"]` has `candidates`, each a dictionary with the name of a method and its settings,
    and `seconds`, the training budget of each of them (None: that of the fit). The seconds of the search
    are recorded, but are not those of the fit.
    """

    methods: Mapping[str, Method]

    @property
    def code(self) -> str:
        """Those of all methods."""
        return "-".join(dict.fromkeys(code_of(method) for method in self.methods.values()))

    def __call__(
        self, train: Dataset, test: Dataset, settings: Mapping[str, Any], budget: float | None
    ) -> Result:
        """Search, then fit; fails if every candidate does."""
        common = {name: value for name, value in settings.items() if name != "search"}
        search = settings["search"]
        inner, held_out = hold_out(train, settings.get("seed", 0))
        trials: list[dict[str, Any]] = []
        for candidate in search["candidates"]:
            trial = self._run(candidate, inner, held_out, {**common, "curve": False}, search["seconds"])
            trials.append({**candidate, **trial})
        scored = [trial for trial in trials if np.isfinite(trial.get("nll", np.nan))]
        if not scored:
            raise MethodFailedError(f"every candidate failed; the last: {trials[-1].get('failure')}")
        best = min(scored, key=lambda trial: trial["nll"])
        chosen = search["candidates"][trials.index(best)]
        own = {name: value for name, value in chosen.items() if name != "method"}
        done = self.methods[chosen["method"]](train, test, {**common, **own}, budget)
        seconds = sum(trial["seconds"] for trial in scored)
        extra = {"chosen": chosen, "search": trials, "search_seconds": seconds}
        return replace(done, extra={**done.extra, **extra})

    def _run(
        self,
        candidate: Mapping[str, Any],
        train: Dataset,
        test: Dataset,
        common: Mapping[str, Any],
        seconds: float | None,
    ) -> dict[str, Any]:
        own = {name: value for name, value in candidate.items() if name != "method"}
        try:
            done = self.methods[candidate["method"]](train, test, {**common, **own}, seconds)
        except MethodFailedError as failure:
            return {"failure": str(failure).strip().splitlines()[-1][:160]}
        return {"nll": done.nll, "seconds": done.seconds}


def hold_out(train: Dataset, seed: int) -> tuple[Dataset, Dataset]:
    """The rows that candidates are trained on, and those that they are scored on."""
    order = np.random.default_rng([seed, len(train.y)]).permutation(len(train.y))
    n = min(MOST_HELD_OUT, max(1, round(HELD_OUT * len(order))))
    return train.take(order[n:]), train.take(order[:n])
