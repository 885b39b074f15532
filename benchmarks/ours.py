"""Our three classifiers, set up as in the paper or left at their defaults, and fitted under a watch.

"paper" is the paper's own setting: amplitude × ARD squared exponential + noise, started at the inducing
points, lengthscale and amplitude that every method is given, no hyper-prior, no residual penalty, no
standardisation beyond that of the split; SEP on all rows with the sign-based rates and damping .5, on
minibatches with ADADELTA and a stored factor a row; SVI moves mean and covariance of q by gradients,
with L-BFGS-B over all rows and ADADELTA on minibatches; GFITC is L-BFGS-B around converged EP.
"default" is `SEPClassifier(n_inducing=m)` and so on: what a user gets who sets nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from benchmarks.metrics import scores
from benchmarks.paper.outer import ExactOuterClassifier, OuterClassifier
from benchmarks.start import Start
from benchmarks.watch import Watch
from cavity import GFITCClassifier, SEPClassifier, SVIClassifier

KINDS = {
    "sep": SEPClassifier,
    "svi": SVIClassifier,
    "gfitc": GFITCClassifier,
    "outer": OuterClassifier,
    "outer-exact": ExactOuterClassifier,
}
CONVERGED = ("gfitc", "outer", "outer-exact")
"""Those that run EP to convergence before they take a gradient."""
ITERATIONS = 250
"""Of batch training, as in the paper."""
FIRST_NOISE = 0.1
"""Start of the noise variance; the paper does not give its own."""
LBFGS_TOL = 2.2e-9
"""Relative change at which L-BFGS-B stops before its 250 iterations: the default of R's `optim`."""
_ENDLESS = 10**6


@dataclass(frozen=True)
class Job:
    """One fit: arrays, where to start, settings and budget."""

    X: NDArray[np.floating]
    y: NDArray[np.integer]
    X_test: NDArray[np.floating]
    y_test: NDArray[np.integer]
    start: Start
    settings: Mapping[str, Any]
    budget: float | None = None


@dataclass(frozen=True)
class Fit:
    """What came of it."""

    log_p: NDArray[np.floating]
    seconds: float
    curve: list[dict[str, float]]
    extra: dict[str, Any] = field(default_factory=dict)


def paper_kernel(start: Start) -> Any:
    """The paper's covariance function at the common start."""
    lengthscales = np.full(start.Z.shape[1], start.lengthscale)
    return ConstantKernel(start.amplitude) * RBF(lengthscales) + WhiteKernel(FIRST_NOISE)


def paper_parameters(mode: str, start: Start, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Constructor arguments of the paper's setting."""
    minibatch = settings.get("minibatch")
    iterations = settings.get("iterations", ITERATIONS)
    common = {
        "kernel": paper_kernel(start),
        "inducing_points": start.Z,
        "standardize": False,
        "hyperprior": None,
        "calibration": None,
    }
    if mode in CONVERGED:
        return {**common, "max_iter": iterations, "tol": LBFGS_TOL}
    if mode == "svi":
        common["posterior_update"] = "gradient"
        if minibatch is None:
            return {**common, "batch_size": None, "max_iter": iterations, "tol": LBFGS_TOL}
        return {**common, "batch_size": minibatch, "optimizer": "adadelta", "max_epochs": _ENDLESS}
    common["trace_penalty"], common["residual_scale"] = 0, 1
    if minibatch is None:
        # The watch ends it after its iterations: a budget of its own would cool the rates.
        scheme = {"optimizer": "rprop", "damping": 0.5, "tol": 0.0, "max_iter": _ENDLESS}
        return {**common, **scheme, "batch_size": None}
    return {
        **common,
        "batch_size": minibatch,
        "optimizer": "adadelta",
        "site_storage": "factors",
        "max_epochs": _ENDLESS,
    }


def fit(mode: str, job: Job) -> Fit:
    """Fit SEP, SVI or GFITC as `job.settings["scheme"]` says, and score it on the way."""
    settings = job.settings
    paper = settings.get("scheme", "default") == "paper"
    batch = settings.get("minibatch") is None
    if paper:
        parameters = paper_parameters(mode, job.start, settings)
    else:
        parameters = {"n_inducing": len(job.start.Z)}
        if job.budget is not None and mode != "gfitc":
            parameters["max_seconds"] = job.budget
    parameters |= settings.get("parameters", {})
    parameters |= {"random_state": settings.get("seed", 0), "n_jobs": settings.get("threads")}
    grid = _grid(settings.get("grid"))
    n_test = len(job.y_test)
    watch = Watch(
        job.X_test if grid is None else np.vstack([job.X_test, grid]),
        lambda log_p: _nll_and_error(log_p[:n_test], job.y_test),
        # Pauses would eat into an estimator's own budget in seconds, hence no curve then.
        curve_wanted=bool(settings.get("curve", False)) and (paper or job.budget is None),
        iterations=settings.get("iterations", ITERATIONS) if paper and batch else None,
        budget=job.budget if paper else None,
        line_search=mode in CONVERGED or (mode == "svi" and paper and batch),
    )
    watch.fit(KINDS[mode], parameters, job.X, job.y)
    assert watch.log_p is not None
    assert watch.inducing_points is not None
    extra: dict[str, Any] = {
        "steps": watch.steps,
        "steps_per_second": watch.steps / watch.seconds,
        "start": watch.start,
        "rows": digest(job.X, job.y, job.X_test, job.y_test),
    }
    if settings.get("objective", False):
        extra["objective"] = watch.objective
    if grid is not None:
        log_odds = watch.log_p[n_test:, 1] - watch.log_p[n_test:, 0]
        extra["log_odds"] = np.round(log_odds, 2).tolist()
        extra["inducing_points"] = np.round(watch.inducing_points, 3).tolist()
    return Fit(watch.log_p[:n_test], watch.seconds, watch.curve, extra)


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
