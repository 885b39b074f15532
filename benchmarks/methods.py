"""What a method is, and all methods by name.

A method is a callable `(train, test, settings, budget) -> Result`. `train` and `test` are scaled
`Dataset`s; `settings` is a dictionary of plain JSON values, which goes into the record and
decides whether two runs are the same experiment; `budget` is training seconds, or None for "until
the method is done". Sparse methods take `settings["m"]` and `settings["seed"]` and begin at
`starting_point(train.X, m, seed)`, so that all of them begin at the same place.

To add a method, map its name here and list it among the contenders of a workload. A method that
is timed should run in a process of its own (`Peer`): nothing is imported, compiled or cached
before its clock starts, and its peak memory is its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr

from benchmarks import code
from benchmarks.data import Dataset
from benchmarks.metrics import auroc, rejection, scores

MANY = 1_000
"""Test rows from which on a fit's errors by rejected share are recorded."""


@dataclass(frozen=True)
class Result:
    """Scores and costs of one fit; `seconds` is training time, without imports, loading and scoring."""

    nll: float
    error: float
    seconds: float
    curve: list[dict[str, float]] = field(default_factory=list)  # seconds, nll, error, step
    peak_memory: float | None = None  # bytes
    ece: float | None = None
    ece_by_chance: float | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_log_probabilities(
        cls,
        log_p: NDArray[np.floating],
        y: NDArray[np.integer],
        seconds: float,
        *,
        n_foreign: int = 0,
        uncertainty: Mapping[str, NDArray[np.floating]] | None = None,
        extra: Mapping[str, Any] | None = None,
        **rest: Any,
    ) -> Result:
        """Score log_p: [n, C] against y: [n] (two classes: −1, +1), and the n rows' uncertainty.

        The last `n_foreign` rows are of another source: they are told from the others, not scored. Of
        many rows, the errors are recorded that remain when uncertain rows get no answer.
        """
        own = slice(0, len(y) - n_foreign)
        further = dict(extra or {})
        by_score = {"entropy": entr(np.exp(log_p)).sum(axis=1), **(uncertainty or {})}
        if n_foreign:
            further["auroc"] = {
                name: auroc(score[own], score[own.stop :]) for name, score in by_score.items()
            }
        if uncertainty or own.stop >= MANY:
            code = y[own] > 0 if log_p.shape[1] == 2 else y[own]
            correct = log_p[own].argmax(axis=1) == code
            further["rejection"] = {
                name: rejection(correct, score[own]) for name, score in by_score.items()
            }
        return cls(seconds=seconds, extra=further, **(rest | scores(log_p[own], y[own])))


class MethodFailedError(RuntimeError):
    """A method did not finish; the message says how, and goes into the record."""


Method = Callable[[Dataset, Dataset, Mapping[str, Any], float | None], Result]


@dataclass(frozen=True)
class Contender:
    """A method with its settings, under the name that the tables show."""

    label: str
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)


def code_of(method: Method) -> str:
    """The fingerprint of the code that a method measures: a peer's own, or else the library's."""
    return str(getattr(method, "code", None) or code.ours())


OURS = ("sep", "svi", "gfitc", "outer", "outer-exact")
"""Our own methods, as `benchmarks.ours` sets them up."""


def methods() -> dict[str, Method]:
    """Every method by name."""
    from benchmarks.here import Here
    from benchmarks.peers.peer import Peer
    from benchmarks.peers.search import Searched

    known: dict[str, Method] = {
        **{f"paper-{mode}": Peer("paper", mode, environment="project") for mode in OURS},
        **{f"here-{mode}": Here(mode) for mode in OURS},
        "here-cavity-sep": Here("sep"),
        "cavity-sep": Peer("cavity", mode="sep", environment="project"),
        "cavity-svi": Peer("cavity", mode="svi", environment="project"),
        "cavity-gfitc": Peer("cavity", mode="gfitc", environment="project"),
        "cavity-step-sep": Peer("cavity_steps", mode="sep", environment="project"),
        "cavity-step-svi": Peer("cavity_steps", mode="svi", environment="project"),
        "cavity-step-svi-gradient": Peer("cavity_steps", mode="svi-gradient", environment="project"),
        "cavity-table": Peer("cavity_table", mode="sep", environment="project"),
        "gpflow-lbfgs": Peer("gpflow", mode="lbfgs"),
        "gpflow-adam": Peer("gpflow", mode="adam"),
        "gpflow-natgrad": Peer("gpflow", mode="natgrad"),
        "gpytorch-adam": Peer("gpytorch", mode="adam"),
        "gpytorch-ngd": Peer("gpytorch", mode="ngd"),
        "gpboost-fitc": Peer("gpboost", mode="fitc"),
        "sklearn-gpc": Peer("classic", mode="gpc"),
        "sklearn-hgb": Peer("classic", mode="hgb"),
        "logistic": Peer("classic", mode="logistic"),
        "lightgbm": Peer("classic", mode="lightgbm"),
        "lightgbm-ensemble": Peer("classic", mode="lightgbm-ensemble"),
        "table-lightgbm": Peer("tables", mode="lightgbm"),
        "table-lightgbm-ensemble": Peer("tables", mode="lightgbm-ensemble"),
        "table-catboost": Peer("tables", mode="catboost"),
        "table-hgb": Peer("tables", mode="hgb"),
        "table-logistic": Peer("tables", mode="logistic"),
        "table-xrfm": Peer("neural", mode="xrfm"),
        "table-realmlp": Peer("neural", mode="realmlp"),
    }
    for library in ("gpflow", "gpytorch"):
        mine = {name: method for name, method in known.items() if name.startswith(library)}
        known[f"{library}-searched"] = Searched(mine)
    return known
