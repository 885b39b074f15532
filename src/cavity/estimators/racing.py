"""Settings that a race on held-out rows decides: those that a classifier's parameters leave open."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cavity.data.sampling import HeldOut
from cavity.data.source import RowSource
from cavity.engines.local import LocalBackend
from cavity.inference.config import (
    DEFAULT_POINTS,
    FEWEST_ROWS_TO_HOLD_OUT,
    POINTS_BESIDE_LEAVES,
    TrainingConfig,
    leaves_with_enough_rows,
)
from cavity.inference.history import Progress
from cavity.inference.race import SAFE, Decision, Entrants, race
from cavity.inference.race_records import Candidate, RaceLog
from cavity.inference.start import StartingPoint

if TYPE_CHECKING:
    from cavity.estimators.base import SparseGPClassifier


def judged_by_given_rows(model: SparseGPClassifier, config: TrainingConfig) -> TrainingConfig:
    """The configuration of a fit with validation rows of the user's own, which also end it early."""
    if config.schedule != "steps":
        raise ValueError(
            f"X_val has no use for this {type(model).__name__}: there are no training steps that "
            "validation rows could judge; leave X_val out, or set another optimizer"
        )
    config = replace(config, validation_fraction=0.0)
    if isinstance(model.config, TrainingConfig):
        return config
    given = model._given_fields()
    if given["validation_fraction"] not in ("auto", None):
        raise ValueError(
            f"validation_fraction={given['validation_fraction']!r} and X_val; either rows are held "
            "out, or your own are used: leave one of them out"
        )
    if given.get("early_stopping", "auto") == "auto":
        return replace(config, early_stopping="validation")
    return config


def entrants(
    model: SparseGPClassifier,
    config: TrainingConfig,
    n_rows: int,
    feature_sets: tuple[str, ...] = (),
) -> Entrants | None:
    """The candidates of a race for what the parameters leave open; None if that is nothing."""
    if isinstance(model.config, TrainingConfig) or model._continues or not config.learn_kernel:
        return None
    if n_rows < FEWEST_ROWS_TO_HOLD_OUT:
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
        # Points, kernels and mean functions of the user's own are for the columns alone.
        own = model._given_points is not None or model._given_mean is not None
        if len(feature_sets) > 1 and not given.get("feature_set") and not own:
            free.add("feature_set")
    else:
        free.discard("scaling")
    own_local = given.get("n_local", "auto")
    n_local = DEFAULT_POINTS if own_local in ("auto", None) else int(own_local)
    beside = POINTS_BESIDE_LEAVES if "n_inducing" in free else config.n_inducing
    if _may_have_leaves(model, config) and leaves_with_enough_rows(n_rows, beside + n_local) > 1:
        free |= {"n_leaves"} if own_local == n_local else {"n_leaves", "n_local"}
    if not free:
        return None
    if given.get("max_epochs") is None and given.get("max_seconds") is None:
        free.add("max_epochs")
    if config.n_leaves is not None:  # their points are not the question of a race
        free -= {"n_inducing"}
    if not free - {"max_epochs"}:
        return None
    if "n_inducing" in free and given.get("n_predicting", "auto") == "auto":
        free.add("n_predicting")
    start = Candidate.of(config)._replace(n_leaves=None, n_local=None)
    return Entrants(start, frozenset(free), feature_sets, n_local)


def _may_have_leaves(model: SparseGPClassifier, config: TrainingConfig) -> bool:
    """Whether a race may choose local inducing points."""
    return (
        vars(model).get("leaves") == "auto"
        and (config.posterior_update, config.site_storage) == ("natural", "sites")
        and config.batch_size is not None
        and not config.exact_gradient
        and config.n_predicting is None
    )


def decide(
    source: RowSource,
    held_out: HeldOut,
    backend: LocalBackend,
    candidates: Entrants,
    configure: Callable[[dict[str, Any]], TrainingConfig],
    make_start: StartingPoint,
    progress: Progress,
    log: RaceLog,
) -> Decision:
    """Let the held-out rows decide what the parameters leave open, and configure the fit that follows.

    configure: makes the configuration of a whole fit with some fields given. The fit that follows has
    the seconds that the race has left, and a clock that begins anew.
    """

    def of(candidate: Candidate) -> TrainingConfig:
        return configure(_fields(candidate, candidates))

    decision = race(source, held_out, backend, candidates, of, make_start, progress, log)
    assert decision.race is not None
    progress.resume_at(0.0)
    config = decision.config
    if config.max_seconds < np.inf:
        # At least a step is taken, however long the race was.
        left = max(config.max_seconds - decision.race.seconds, 1e-3)
        config = replace(config, max_seconds=left)
    return decision._replace(config=config)


def _fields(candidate: Candidate, candidates: Entrants) -> dict[str, Any]:
    """The fields of a candidate that the race may decide."""
    return {name: value for name, value in candidate._asdict().items() if name in candidates.free}


NO_LEAVES: Mapping[str, None] = {"n_leaves": None, "n_local": None}
"""Fields of a configuration without local inducing points."""


def check_leaves(model: SparseGPClassifier, config: TrainingConfig) -> None:
    """Raise for settings that do not go with leaves, before any work is done."""
    leaves = vars(model).get("leaves")
    if model._continues and leaves not in (None, "auto") and config.n_leaves is None:
        raise ValueError(
            f"leaves={leaves!r} and warm_start=True, but the fit to go on from has no leaves; set "
            "warm_start=False to begin anew, or leaves=None"
        )


def with_leaves(
    config: TrainingConfig,
    configure: Callable[[dict[str, Any]], TrainingConfig],
    candidates: Entrants,
    n_leaves: int,
) -> TrainingConfig:
    """The configuration with leaves, and with what a race without them has decided."""
    decided = _fields(Candidate.of(config), candidates)
    decided |= {"kernel_start": config.kernel_start, "n_leaves": n_leaves}
    return replace(configure(decided), max_seconds=config.max_seconds)
