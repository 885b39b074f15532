"""Our three classifiers as the paper sets them up, or at their defaults, scored on test rows.

"paper" is the paper's own setting, see `benchmarks.paper.schemes`. "default" is
`SEPClassifier(n_inducing=m)` and so on: what a user gets who sets nothing else.
"""

from __future__ import annotations

import hashlib
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.metrics import latent_scores, scores
from benchmarks.paper import schemes
from benchmarks.start import Start
from benchmarks.watch import Watch
from cavity import GFITCClassifier, SEPClassifier, SVIClassifier
from cavity.inference.candidates import Candidate

KINDS = {"sep": SEPClassifier, "svi": SVIClassifier, "gfitc": GFITCClassifier}


@dataclass(frozen=True)
class Job:
    """One fit: arrays, where to start, settings and budget."""

    X: NDArray[np.floating]
    y: NDArray[np.integer]
    X_test: NDArray[np.floating]
    y_test: NDArray[np.integer]
    start: Start | None
    """Where the paper's schemes begin; the defaults find their own start."""
    settings: Mapping[str, Any]
    budget: float | None = None
    f_test: NDArray[np.floating] | None = None
    """The true latent function at the test rows, of drawn sets."""


@dataclass(frozen=True)
class Fit:
    """The result of a fit."""

    log_p: NDArray[np.floating]
    seconds: float
    curve: list[dict[str, float]]
    extra: dict[str, Any] = field(default_factory=dict)


def fit(mode: str, job: Job) -> Fit:
    """Fit SEP, SVI or GFITC as `job.settings["scheme"]` says, and score it on the test rows."""
    grid = _grid(job.settings.get("grid"))
    points = job.X_test if grid is None else np.vstack([job.X_test, grid])
    paper = job.settings.get("scheme", "default") == "paper"
    done = _paper_fit(mode, job, points) if paper else _default_fit(mode, job, points)
    n_test, extra = len(job.y_test), dict(done.extra)
    Z = extra.pop("inducing_points")
    extra["steps_per_second"] = extra["steps"] / done.seconds
    extra["rows"] = digest(job.X, job.y, job.X_test, job.y_test)
    if not job.settings.get("objective", False):
        del extra["objective"]
    if grid is not None:
        log_odds = done.log_p[n_test:, 1] - done.log_p[n_test:, 0]
        extra["log_odds"] = np.round(log_odds, 2).tolist()
        extra["inducing_points"] = np.round(Z, 3).tolist()
    return Fit(done.log_p[:n_test], done.seconds, done.curve, extra)


def _paper_fit(mode: str, job: Job, points: NDArray[np.floating]) -> Fit:
    assert job.start is not None
    watch = Watch(
        points,
        lambda log_p: _nll_and_error(log_p[: len(job.y_test)], job.y_test),
        curve_wanted=bool(job.settings.get("curve", False)),
        budget=job.budget,
    )
    start = schemes.run(mode, job.X, job.y, job.start, job.settings, watch)
    assert watch.log_p is not None
    extra = {
        "steps": watch.steps,
        "start": start,
        "objective": watch.objective,
        "inducing_points": watch.inducing_points,
    }
    return Fit(watch.log_p, watch.seconds, watch.curve, extra)


def _default_fit(mode: str, job: Job, points: NDArray[np.floating]) -> Fit:
    model = KINDS[mode](**parameters_of(job.settings, job.budget))
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fit that ends with its budget says so
        model.fit(job.X, job.y)
    seconds = time.perf_counter() - begin
    log_p = model.predict_log_proba(points)
    final = _nll_and_error(log_p[: len(job.y_test)], job.y_test)
    extra = {
        **facts(model, seconds),
        "steps": model.n_iter_,
        "objective": [
            {"step": i.iteration, "seconds": i.seconds, "objective": i.objective} for i in model.history_
        ],
        "inducing_points": model.inducing_points_,
    }
    if job.f_test is not None:
        moments = model.latent_mean_and_variance(job.X_test)
        entropy = model.predict_uncertainty(job.X_test)
        extra["latent"] = latent_scores(job.f_test, *moments, log_p[: len(job.y_test)]) | {
            "aleatoric": float(np.median(entropy.aleatoric)),
            "epistemic": float(np.median(entropy.epistemic)),
            "ood": float(np.median(model.ood_score(job.X_test))),
        }
    return Fit(log_p, seconds, [{"seconds": seconds, "step": model.n_iter_, **final}], extra)


def parameters_of(settings: Mapping[str, Any], budget: float | None) -> dict[str, Any]:
    """Constructor arguments of a classifier at its defaults, but for what the settings say."""
    parameters = dict(settings.get("parameters", {}))
    if budget is not None:
        parameters["max_seconds"] = budget
    if "m" in settings:
        parameters.setdefault("n_inducing", settings["m"])
    return {
        **parameters,
        "random_state": settings.get("seed", 0),
        "n_jobs": settings.get("threads"),
    }


def facts(model: Any, seconds: float) -> dict[str, Any]:
    """What a record keeps of a fit that took so many seconds: its calibration and its race.

    "parameters" of a candidate are those of a fit with this candidate and without a race.
    """
    found = {
        "n_iter": model.n_iter_,
        "m": len(model.inducing_points_),
        "inverse_temperature": model.inverse_temperature_,
        "residual_variance_scale": model.residual_variance_scale_,
    }
    race = getattr(model, "race_", None)
    if race is None:
        return found
    return found | {
        "held_out_nll": model.validation_log_loss_,
        "race_seconds": race.seconds,
        "race": [
            {
                "candidate": str(entry.candidate),
                "parameters": _pinned(entry.candidate),
                "length": entry.length,
                "held_out_nll": entry.log_loss,
                "seconds": entry.seconds,
                "chosen": entry.chosen,
            }
            for entry in race
        ],
    }


def uncertainty(model: Any, X: Any) -> dict[str, NDArray[np.floating]]:
    """Scores [t] of the rows X by which foreign rows are told: what a model does not know of them."""
    return {"epistemic": model.predict_uncertainty(X).epistemic, "ood": model.ood_score(X)}


def _pinned(candidate: Candidate) -> dict[str, Any]:
    fields = candidate._asdict()
    parameters = {name: fields.pop(name) for name in ("scaling", "n_inducing")}
    parameters["leaves"] = fields.pop("n_leaves")
    return {**parameters, "config": fields}


def _grid(settings: Mapping[str, Any] | None) -> NDArray[np.float64] | None:
    """Points [k·k, 2] of a square grid from `low` to `high`, k on each side."""
    if settings is None:
        return None
    side = np.linspace(settings["low"], settings["high"], settings["k"])
    return np.column_stack([axis.ravel() for axis in np.meshgrid(side, side)])


def digest(*arrays: NDArray[Any]) -> str:
    """A short fingerprint of arrays: methods that show the same one were given the same rows."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(str(array.shape).encode() + np.ascontiguousarray(array).tobytes())
    return total.hexdigest()[:16]


def _nll_and_error(log_p: NDArray[np.floating], y: NDArray[np.integer]) -> dict[str, float]:
    both = scores(log_p, y)
    return {"nll": both["nll"], "error": both["error"]}
