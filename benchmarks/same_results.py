"""Whether a change keeps the numbers: `python -m benchmarks.same_results BASE`.

The fits of `FITS` run with the sources of the commit BASE and with those of the working tree, on one
thread and on two. What they learned and what they predict is compared. A fit is described once, by the
parameters of today; `constructor_arguments` translates them for trees whose constructors are older.
"""

from __future__ import annotations

import argparse
import inspect
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.compare import ROOT, worktree

FULL_BATCH_TOLERANCE = 1e-9
"""Largest relative difference of a fit whose steps see all rows: rounding."""
MINIBATCH_TOLERANCE = 1e-6
"""The same for minibatches and streams, where rounding grows from step to step."""
ROWS_PREDICTED = 50
CHUNKS = 5
SOURCES = "sources"
"""Key of the path from which `cavity` was imported, beside the numbers of the fits."""

Numbers = dict[str, NDArray[np.floating]]
"""What a fit has come to, by the name of the quantity."""


@dataclass(frozen=True)
class Fit:
    """One fit: a classifier, its parameters, and what it learns from."""

    name: str
    classifier: str
    data: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    how: str = "fit"
    """"fit", "weights" (of the rows), "stream" (`partial_fit`) or "csv" (`TableClassifier`)."""

    @property
    def tolerance(self) -> float:
        """Largest relative difference that counts as none."""
        full = self.settings.get("batch_size") is None and self.how != "stream"
        return FULL_BATCH_TOLERANCE if full else MINIBATCH_TOLERANCE


MINIBATCH = {"batch_size": 100, "max_epochs": 6}
"""60 steps on 1,000 rows."""
FITS = [
    Fit("SEP, defaults", "SEPClassifier", "moons 300"),
    Fit("SEP, all rows", "SEPClassifier", "cancer", {"max_epochs": 40}),
    Fit("SEP, early stopping", "SEPClassifier", "moons", {"max_epochs": 60, "validation_fraction": 0.2}),
    Fit("SEP, exact gradient", "SEPClassifier", "cancer", {"max_epochs": 40, "exact_gradient": True}),
    Fit("SEP, optimizer=None", "SEPClassifier", "cancer", {"optimizer": None}),
    Fit("SEP, logit", "SEPClassifier", "cancer", {"max_epochs": 40, "likelihood": "logit"}),
    Fit("SEP, minibatches", "SEPClassifier", "moons", MINIBATCH),
    Fit("SEP, stored factors", "SEPClassifier", "moons", {**MINIBATCH, "site_storage": "factors"}),
    Fit("SVI, natural", "SVIClassifier", "cancer", {"max_epochs": 40}),
    Fit("SVI, natural, minibatches", "SVIClassifier", "moons", MINIBATCH),
    Fit("SVI, gradient", "SVIClassifier", "moons", {"max_epochs": 60, "posterior_update": "gradient"}),
    Fit(
        "SVI, gradient, minibatches",
        "SVIClassifier",
        "moons",
        {**MINIBATCH, "posterior_update": "gradient"},
    ),
    Fit("GFITC", "GFITCClassifier", "cancer", {"max_iter": 20, "tol": 1e-5}),
    Fit("three classes", "SEPClassifier", "iris", {"max_epochs": 40}),
    Fit("three classes, SVI", "SVIClassifier", "iris", {"max_epochs": 40}),
    Fit(
        "weights",
        "SEPClassifier",
        "cancer",
        {"max_epochs": 40, "class_weight": "balanced"},
        how="weights",
    ),
    Fit("stream", "SEPClassifier", "moons", {"window_size": 500.0}, how="stream"),
    Fit("CSV", "SEPClassifier", "moons", {"max_epochs": 40}, how="csv"),
    Fit("whitening", "SEPClassifier", "cancer", {"max_epochs": 40, "scaling": "whiten"}),
]

EARLIER_NAMES = {
    "trace_penalty": "residual_penalty",
    "residual_scale": "residual_share",
    "site_storage": "site_memory",
    "window_size": "stream_memory",
    "hyperprior_scale": "hyperprior",
}
EARLIER_SCALING = {"standard": True, "whiten": "whiten", None: False}


def constructor_arguments(classifier: type, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as the constructor of this tree's classifier takes them.

    >>> class Today:
    ...     def __init__(self, batch_size=None, max_epochs=None, config=None): ...
    >>> class Earlier:
    ...     def __init__(self, batch_size=None, max_epochs=None, max_iter=200, site_memory="sites"): ...
    >>> settings = {"max_epochs": 40, "site_storage": "factors"}
    >>> constructor_arguments(Today, settings)
    {'max_epochs': 40, 'config': {'site_storage': 'factors'}}
    >>> constructor_arguments(Earlier, settings)
    {'max_iter': 40, 'site_memory': 'factors'}
    """
    known = inspect.signature(classifier).parameters
    if "config" in known:
        config = {name: value for name, value in settings.items() if name not in known}
        arguments = {name: value for name, value in settings.items() if name in known}
        return arguments | ({"config": config} if config else {})
    full_batch = settings.get("batch_size") is None
    earlier: dict[str, Any] = {}
    for name, value in settings.items():
        match name:
            case "scaling":
                earlier["standardize"] = EARLIER_SCALING[value]
            case "exact_gradient":
                earlier["gradient"] = "exact" if value else "approximate"
            case "max_epochs" if full_batch:
                earlier["max_iter"] = value
            case "inducing_points" if isinstance(value, str):
                earlier["init_inducing"] = value
            case "validation_fraction":
                earlier |= {"early_stopping": "validation", "validation_fraction": value}
            case _:
                earlier[name if name in known else EARLIER_NAMES[name]] = value
    return earlier


@cache
def rows(name: str) -> tuple[NDArray[np.floating], NDArray[np.integer]]:
    """X [n, d] and y [n] of one of scikit-learn's small sets."""
    from sklearn.datasets import load_breast_cancer, load_iris, make_moons

    if name == "cancer":
        X, y = load_breast_cancer(return_X_y=True)
    elif name == "iris":
        X, y = load_iris(return_X_y=True)
    else:
        X, y = make_moons(300 if name == "moons 300" else 1_000, noise=0.3, random_state=0)
    return np.asarray(X), np.asarray(y)


def numbers(fit: Fit, threads: int) -> Numbers:
    """Run a fit with the `cavity` that is imported here."""
    import cavity

    X, y = rows(fit.data)
    classifier = getattr(cavity, fit.classifier)
    settings = {"random_state": 0, "n_jobs": threads, **fit.settings}
    if fit.settings:
        settings = {"n_inducing": 30, "scaling": "standard"} | settings
    model = classifier(**constructor_arguments(classifier, settings))
    if fit.how == "csv":
        return _of_csv(cavity.TableClassifier(model), X, y)
    if fit.how == "stream":
        for X_chunk, y_chunk in zip(np.array_split(X, CHUNKS), np.array_split(y, CHUNKS), strict=True):
            model.partial_fit(X_chunk, y_chunk, classes=np.unique(y))
    elif fit.how == "weights":
        model.fit(X, y, sample_weight=np.random.default_rng(0).integers(0, 4, len(y)).astype(float))
    else:
        model.fit(X, y)
    return _learned(model) | {"predict_proba": model.predict_proba(X[:ROWS_PREDICTED])}


def _of_csv(model: Any, X: NDArray[np.floating], y: NDArray[np.integer]) -> Numbers:
    """Fit a table with numbers, words and missing cells, which is written to a file first."""
    import pandas

    frame = pandas.DataFrame({"x": X[:, 0], "y": X[:, 1]})
    frame["half"] = np.where(X[:, 0] > 0.5, "east", "west")
    frame.loc[::7, "half"] = None
    frame.loc[::11, "y"] = None
    frame["label"] = np.where(y == 1, "upper", "lower")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        frame.to_csv(path, index=False)
        model.fit(path, "label")
    fitted = model.estimator_ if hasattr(model, "estimator_") else model.classifier_
    test = frame.drop(columns="label").iloc[:ROWS_PREDICTED]
    return _learned(fitted) | {"predict_proba": model.predict_proba(test)}


def _learned(model: Any) -> Numbers:
    earlier = hasattr(model, "loo_score_")
    learned = {
        "kernel_.theta": model.kernel_.theta,
        "inducing_points_": model.inducing_points_,
        "log_marginal_likelihood_value_": model.log_marginal_likelihood_value_,
        "loo_log_loss_": -model.loo_score_ if earlier else model.loo_log_loss_,
        "inverse_temperature_": model.stretch_ if earlier else model.inverse_temperature_,
        "n_iter_": model.n_iter_,
    }
    return {name: np.asarray(value, dtype=np.float64) for name, value in learned.items()}


def run_fits(out: Path, threads: int, only: str) -> None:
    """Run all fits and write their numbers to `out`; what a failed one raised is written instead."""
    import cavity

    found: dict[str, Any] = {SOURCES: np.array(str(cavity.__file__))}
    for fit in chosen(only):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # most fits end with their budget, and say so
                learned = numbers(fit, threads)
        except Exception as error:  # one fit that a tree cannot run must not hide the others
            found[f"{fit.name}/error"] = np.array(f"{type(error).__name__}: {error}")
        else:
            found |= {f"{fit.name}/{quantity}": value for quantity, value in learned.items()}
    np.savez(out, **found)


def chosen(only: str) -> list[Fit]:
    """The fits whose names have `only` in them."""
    return [fit for fit in FITS if only in fit.name]


def measured(tree: Path, threads: int, out: Path, only: str) -> dict[str, Any]:
    """The numbers of all fits with the sources of `tree`, in a process of its own."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(tree / "src"), str(ROOT)]),
        "OMP_NUM_THREADS": str(threads),
    }
    command = [sys.executable, "-m", "benchmarks.same_results", "--write", str(out)]
    command += ["--threads", str(threads), "--only", only]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    with np.load(out) as stored:
        found = dict(stored)
    imported = Path(str(found.pop(SOURCES)))
    if not imported.is_relative_to(tree / "src"):
        raise RuntimeError(f"the fits of {tree} ran with the sources in {imported.parent}")
    return found


@dataclass(frozen=True)
class Difference:
    """How far apart the two trees are in one fit."""

    fit: Fit
    threads: int
    absolute: float
    relative: float
    """The largest difference in a quantity, in units of its largest value; then the largest of those."""
    where: str
    """The quantity in which they differ most, or what a tree raised."""

    @property
    def too_large(self) -> bool:
        """Whether this is more than rounding."""
        return not self.relative <= self.fit.tolerance


def difference(fit: Fit, threads: int, base: Mapping[str, Any], head: Mapping[str, Any]) -> Difference:
    """Compare the numbers of two trees. A failure, or a quantity of another shape, is infinitely far.

    >>> a = {"SEP/theta": np.array([1.0, 2.0]), "SEP/objective": np.array(np.nan)}
    >>> fit = Fit("SEP", "SEPClassifier", "moons")
    >>> difference(fit, 1, a, a | {"SEP/theta": np.array([1.0, 2.5])}).relative
    0.2
    >>> difference(fit, 1, a, a).too_large
    False
    """
    for side, found in (("base", base), ("head", head)):
        error = found.get(f"{fit.name}/error")
        if error is not None:
            return Difference(fit, threads, np.inf, np.inf, f"{side}: {error}")
    quantities = sorted(name for name in {*base, *head} if name.startswith(f"{fit.name}/"))
    largest = Difference(fit, threads, 0.0, 0.0, "")
    for name in quantities:
        absolute, relative = _distance(base.get(name), head.get(name))
        if relative > largest.relative:
            largest = Difference(fit, threads, absolute, relative, name.partition("/")[2])
    return largest


def _distance(a: Any, b: Any) -> tuple[float, float]:
    """Largest absolute and relative difference of two arrays."""
    if a is None or b is None or a.shape != b.shape or not np.array_equal(np.isnan(a), np.isnan(b)):
        return np.inf, np.inf
    differs = (a != b) & ~np.isnan(a)
    if not differs.any():
        return 0.0, 0.0
    absolute = float(np.abs(a[differs] - b[differs]).max())
    return absolute, absolute / float(np.nanmax(np.maximum(np.abs(a), np.abs(b))))


def compared(base: str, head: str | None, only: str) -> Iterator[Difference]:
    """Run both trees, on one thread and on two."""
    with worktree(base) as a, worktree(head) as b, tempfile.TemporaryDirectory() as folder:
        for threads in (1, 2):
            sides = []
            for side, tree in (("base", a), ("head", b)):
                print(f"{side}, threads: {threads}", file=sys.stderr)
                sides.append(measured(tree, threads, Path(folder) / f"{side}-{threads}.npz", only))
            yield from (difference(fit, threads, *sides) for fit in chosen(only))


def main(argv: list[str] | None = None) -> int:
    """Print the comparison; the exit status is 1 if a fit differs by more than rounding."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.same_results", description=__doc__)
    parser.add_argument("base", nargs="?", help="commit to compare with")
    parser.add_argument("head", nargs="?", help="commit to judge; default: the working tree")
    parser.add_argument("--only", metavar="TEXT", default="", help="fits with this text in their name")
    parser.add_argument("--write", type=Path, help="run the fits of the imported cavity alone; .npz")
    parser.add_argument("--threads", type=int, default=1, help="for --write")
    arguments = parser.parse_args(argv)
    if arguments.write is not None:
        run_fits(arguments.write, arguments.threads, arguments.only)
        return 0
    if arguments.base is None:
        parser.error("name the commit to compare with")
    found = list(compared(arguments.base, arguments.head, arguments.only))
    print("| fit | threads | largest difference | relative | allowed | where | |")
    print("|---|---|---|---|---|---|---|")
    for d in found:
        print(
            f"| {d.fit.name} | {d.threads} | {d.absolute:.1e} | {d.relative:.1e} "
            f"| {d.fit.tolerance:.0e} | {d.where} | {'differs' if d.too_large else ''} |"
        )
    return int(any(d.too_large for d in found))


if __name__ == "__main__":
    sys.exit(main())
