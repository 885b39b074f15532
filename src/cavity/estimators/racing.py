"""The race of a classifier: what its parameters leave open, and what held-out rows make of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cavity.data.sampling import HeldOut
from cavity.data.source import RowSource
from cavity.engines.backend import LocalBackend
from cavity.inference.config import FEWEST_ROWS_TO_SPARE, TrainingConfig
from cavity.inference.history import Progress
from cavity.inference.race import SAFE, Candidate, Decision, Entrants, RaceLog, race

if TYPE_CHECKING:
    from cavity.estimators.base import SparseGPClassifier


def entrants(model: SparseGPClassifier, config: TrainingConfig, n_rows: int) -> Entrants | None:
    """The candidates of a race for what the parameters leave open; None if that is nothing."""
    if isinstance(model.config, TrainingConfig) or model._continues or not config.learn_kernel:
        return None
    if n_rows < FEWEST_ROWS_TO_SPARE:
        return None
    given = model._given_fields()
    free = {name for name in ("scaling", "n_inducing") if given.get(name) == "auto"}
    if model._own_points() is not None:
        free.discard("n_inducing")
    if config.method == "ep" and all(given.get(name, "auto") == "auto" for name in SAFE):
        free |= set(SAFE)
    if model.kernel is None:
        if given.get("kernel_name", "auto") == "auto":
            free.add("kernel_name")
    else:
        free.discard("scaling")
    if not free:
        return None
    start = Candidate(*(getattr(config, name) for name in Candidate._fields))
    return Entrants(start, frozenset(free))


def decide(
    model: SparseGPClassifier,
    source: RowSource,
    held_out: HeldOut,
    backend: LocalBackend,
    candidates: Entrants,
    config: TrainingConfig,
    checkpoint: Path | None,
    progress: Progress,
) -> tuple[Decision, TrainingConfig]:
    """Let the held-out rows decide what the parameters leave open."""

    def configure(candidate: Candidate, max_seconds: float | None = None) -> TrainingConfig:
        given = candidate._asdict()
        if config.method == "vi":
            del given["residual_scale"], given["trace_penalty"]
        if max_seconds is not None:
            given["max_seconds"] = max_seconds
        return model._resolve(source.n_rows, config.seed, given)

    log = RaceLog.open(checkpoint, model._fingerprint_of(source, config))
    decision = race(
        source,
        held_out,
        backend,
        candidates,
        configure,
        lambda scaling, one: model._start(source, scaling, one),
        progress,
        log,
    )
    progress.resume_at(0.0)
    if config.max_seconds == np.inf:
        return decision, configure(decision.candidate)
    # At least a step is taken, however long the race was.
    return decision, configure(decision.candidate, max(config.max_seconds - decision.race.seconds, 1e-3))
