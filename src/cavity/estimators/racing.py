"""Settings that a race on held-out rows decides: those that a classifier's parameters leave open."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cavity.data.sampling import HeldOut
from cavity.data.source import RowSource
from cavity.engines.local import LocalBackend
from cavity.gp.mean_function import MeanFunction
from cavity.inference.candidates import SAFE, Candidate, Entrants
from cavity.inference.checkpoint_file import Fingerprint
from cavity.inference.config import TrainingConfig
from cavity.inference.decisions import (
    DEFAULT_POINTS,
    FEWEST_ROWS_TO_HOLD_OUT,
)
from cavity.inference.history import Progress
from cavity.inference.race import RaceDecision, race
from cavity.inference.race_records import RaceLog
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
    *,
    with_leaves: bool = True,
) -> Entrants | None:
    """The candidates of a race for what the parameters leave open; None if that is nothing.

    with_leaves: whether trials of local inducing points are possible where the rows are.
    """
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
    n_local, own_local = DEFAULT_POINTS, given.get("n_local", "auto")
    if own_local not in ("auto", None):
        n_local = int(own_local)
    if with_leaves and _may_have_leaves(model, config, free):
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
    if config.n_leaves is not None and given["n_inducing"] == "auto":
        start = start._replace(n_inducing=DEFAULT_POINTS)  # of the models without leaves that race
    return Entrants(start, frozenset(free), n_rows, feature_sets, n_local)


def _may_have_leaves(model: SparseGPClassifier, config: TrainingConfig, free: Collection[str]) -> bool:
    """Whether a race may choose local inducing points.

    The kernel and the number of points must be free.
    """
    return (
        isinstance(model._given_leaves, str)  # "auto"
        and model.kernel is None
        and "n_inducing" in free
        and (config.posterior_update, config.site_storage) == ("natural", "sites")
        and config.batch_size is not None
        and not config.exact_gradient
        and config.n_predicting is None
    )


NO_LEAVES: Mapping[str, None] = {"n_leaves": None, "n_local": None}
"""Fields of a configuration without local inducing points."""


@dataclass(frozen=True)
class OpenFit:
    """A fit before its race: its rows, where they are, and what the parameters say about it."""

    source: RowSource
    """The rows, with every set of features."""
    backend: LocalBackend
    config: TrainingConfig
    """What the parameters mean without a race."""
    configure: Callable[[dict[str, Any]], TrainingConfig]
    """Makes the configuration with some fields decided."""
    make_start: StartingPoint
    held_out: HeldOut | None
    candidates: Entrants | None
    """What a race may decide; None if there is no race."""
    checkpoint: Path | None
    progress: Progress
    mean_function: MeanFunction | None

    @property
    def chooses_predicting(self) -> bool:
        """Whether held-out rows choose the number of inducing points for predicting."""
        return self.candidates is not None and "n_predicting" in self.candidates.free


def decide(fit: OpenFit, make_fingerprint: Callable[[], Fingerprint]) -> RaceDecision:
    """Let the held-out rows decide what the parameters leave open.

    Unless leaves are among the questions of the race, it is about models without them, whose trials are
    cheap. The fit that follows has the seconds that the race has left, and a clock that begins anew.
    """
    candidates, config = fit.candidates, fit.config
    if fit.held_out is None or candidates is None:
        return RaceDecision(config)
    free = candidates.free

    def decided(candidate: Candidate) -> dict[str, Any]:
        return {name: value for name, value in candidate._asdict().items() if name in free}

    def configure(candidate: Candidate) -> TrainingConfig:
        fields = decided(candidate)
        return fit.configure(fields if fields.get("n_leaves") else {**fields, **NO_LEAVES})

    decision = race(
        fit.source,
        fit.held_out,
        fit.backend,
        candidates,
        configure,
        fit.make_start,
        fit.progress,
        RaceLog.open(fit.checkpoint, config, make_fingerprint),
    )
    assert decision.race is not None
    fit.progress.resume_at(0.0)
    found = decision.config
    if config.n_leaves is not None and decision.stopped is None:
        leaves = {"kernel_start": found.kernel_start, "n_leaves": config.n_leaves}
        found = fit.configure({**decided(Candidate.of(found)), **leaves})
    if found.max_seconds < np.inf:
        # At least a step is taken, however long the race was.
        left = max(found.max_seconds - decision.race.seconds, 1e-3)
        found = replace(found, max_seconds=left)
    return decision._replace(config=found)


def check_leaves_before(model: SparseGPClassifier, config: TrainingConfig) -> None:
    """Raise for a warm start with leaves after a fit without them, or the other way round."""
    leaves = model._given_leaves
    if not model._continues or isinstance(leaves, str):
        return
    if (leaves is None) != (config.n_leaves is None):
        there = "no leaves" if config.n_leaves is None else "leaves"
        raise ValueError(
            f"leaves={leaves!r} and warm_start=True, but the fit to go on from has {there}; set "
            'warm_start=False to begin anew, or leaves="auto"'
        )
