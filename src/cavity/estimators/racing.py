"""Settings that a race on held-out rows decides: those that a classifier's parameters leave open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cavity.data.sampling import HeldOut
from cavity.data.source import RowSource
from cavity.engines.backend import Backend
from cavity.gp.mean_function import MeanFunction
from cavity.inference.candidates import SAFE, Candidate, Entrants
from cavity.inference.checkpoint_file import Fingerprint
from cavity.inference.config import ConfigFields, TrainingConfig
from cavity.inference.decisions import FEWEST_ROWS_TO_HOLD_OUT, points_of_a_leaf
from cavity.inference.history import Progress
from cavity.inference.race import RaceDecision, race
from cavity.inference.race_records import RaceLog
from cavity.inference.start import MakeStart

if TYPE_CHECKING:
    from cavity.estimators.base import SparseGPClassifier


def entrants(
    model: SparseGPClassifier,
    config: TrainingConfig,
    n_rows: int,
    feature_sets: tuple[str, ...] = (),
) -> Entrants | None:
    """The candidates of a race for what the parameters leave open; None if they leave nothing open.

    config: what the parameters mean without leaves, since models without them race first.
    """
    if isinstance(model.config, TrainingConfig) or model._continues or not config.learn_kernel:
        return None
    free = _free_fields(model, config, len(feature_sets))
    if n_rows < FEWEST_ROWS_TO_HOLD_OUT or free.isdisjoint(Candidate._fields):
        return None
    n_local = points_of_a_leaf(model._given_fields().get("n_local"))
    return Entrants(Candidate.of(config), free, n_rows, feature_sets, n_local)


def _free_fields(
    model: SparseGPClassifier, config: TrainingConfig, n_feature_sets: int
) -> frozenset[str]:
    """The fields that a race may choose: those that the parameters leave open.

    A kernel, inducing points or a mean function of the user's own are for the columns as they are.
    """
    given, leaves = model._given_fields(), model.leaves
    auto_leaves = isinstance(leaves, str)
    is_auto = {name: given.get(name, "auto") == "auto" for name in ("n_predicting", *Candidate._fields)}
    own_kernel, own_points = model.kernel is not None, model._given_points is not None
    safe_or_sharp = config.method == "ep" and all(is_auto[name] for name in SAFE)
    size = is_auto["n_inducing"] and not own_points and (leaves is None or auto_leaves)
    tries_leaves = (
        auto_leaves
        and size
        and not own_kernel
        and (config.posterior_update, config.site_storage) == ("natural", "sites")
        and config.batch_size is not None
        and not config.exact_gradient
        and config.n_predicting is None
    )
    rules = {
        "residual_scale": safe_or_sharp,
        "trace_penalty": safe_or_sharp,
        "scaling": is_auto["scaling"] and not own_kernel,
        "kernel_name": is_auto["kernel_name"] and not own_kernel,
        "n_inducing": size,
        "feature_set": n_feature_sets > 1
        and not given.get("feature_set")
        and not (own_kernel or own_points or model.mean_function is not None),
        "n_leaves": tries_leaves,
        "n_local": tries_leaves and given.get("n_local") in (None, "auto"),
        "n_predicting": size and is_auto["n_predicting"],
        "max_epochs": given.get("max_epochs") is None and given.get("max_seconds") is None,
    }
    return frozenset(name for name, is_free in rules.items() if is_free)


NO_LEAVES: ConfigFields = {"n_leaves": None, "n_local": None}
"""Fields of a configuration without local inducing points."""


@dataclass(frozen=True)
class OpenFit:
    """A fit before its race: its rows, where they are, and what the parameters say about it."""

    source: RowSource
    """The rows, with every set of features."""
    backend: Backend
    config: TrainingConfig
    """What the parameters mean without a race."""
    configure: Callable[[ConfigFields], TrainingConfig]
    """Makes the configuration with some fields decided."""
    make_start: MakeStart
    held_out: HeldOut | None
    candidates: Entrants | None
    """What a race may decide; None if there is no race."""
    checkpoint: Path | None
    progress: Progress
    mean_function: MeanFunction | None

    @property
    def chooses_predicting(self) -> bool:
        """Whether held-out rows choose the number of inducing points for predicting."""
        is_asked = self.candidates is not None and "n_predicting" in self.candidates.free
        return is_asked and self.held_out is not None


def decide(fit: OpenFit, make_fingerprint: Callable[[], Fingerprint]) -> RaceDecision:
    """Let the held-out rows decide what the parameters leave open.

    Unless leaves are among the questions of the race, it is about models without them, whose trials are
    cheap. The fit that follows has the seconds that the race has left, and a clock that begins anew.
    """
    candidates, config = fit.candidates, fit.config
    if fit.held_out is None or candidates is None:
        return RaceDecision(config)
    free = candidates.free

    def decided(candidate: Candidate) -> ConfigFields:
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
