"""`cavity demo`: which flights out of New York arrive late?

`cavity reproduce`.
"""

from __future__ import annotations

import sys
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from textwrap import fill
from typing import Any, TextIO

import numpy as np
import typer
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cavity.cli.guard import CommandError
from cavity.cli.io import checked_output, print_json
from cavity.cli.progress import progress_shown, shown_until_interrupted
from cavity.datasets import nycflights13
from cavity.datasets.nycflights13 import Flights
from cavity.estimators.sep import SEPClassifier
from cavity.gp.metrics import score
from cavity.typing import Array

SEED = 2013
N_TEST = 10_000
N_INDUCING = 200
MAX_SECONDS = 40.0
REPORT = "cavity-demo.html"

_NAMES = np.array(["in time", "late"])
"""Of the classes; sorted, as classifiers have them."""
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def run_demo(output: str | None, seconds: float, force: bool, json: bool) -> None:
    """Load, train, compare, explain and write the report."""
    # A second demo may replace the report of the first, but not a file that the user named.
    path = checked_output(REPORT if output is None else output, force or output is None)
    started = time.perf_counter()
    with progress_shown() as watcher:
        watcher.stage("loading the flights of 2013")
        flights = nycflights13.load()
    results = run(flights, sys.stderr if json else sys.stdout, max_seconds=seconds, report=path)
    elapsed = time.perf_counter() - started
    if json:
        print_json({**results, "report": str(path), "seconds": elapsed})
    else:
        print(f"\n{elapsed:.0f} s in all; the report is in {path}")


def run(
    flights: Flights,
    out: TextIO,
    *,
    n_test: int = N_TEST,
    n_inducing: int | None = None,
    max_seconds: float = MAX_SECONDS,
    report: Path | None = None,
) -> dict[str, Any]:
    """Train on all flights but `n_test`, write to `out` what came of it; returns the scores."""
    order = np.random.default_rng(SEED).permutation(len(flights.y))
    test, train = order[:n_test], order[n_test:]
    X, y = flights.X[train], flights.y[train]
    print(
        f"{len(train):,} flights to learn from, {n_test:,} to be tested on, {X.shape[1]} attributes; "
        f"{flights.y.mean():.0%} arrived late.\n",
        file=out,
        flush=True,
    )
    line = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    model = SEPClassifier(
        n_inducing=n_inducing or N_INDUCING, max_seconds=max_seconds, random_state=SEED
    )
    with progress_shown() as watcher, shown_until_interrupted(watcher):
        watcher.n_rows = len(train)
        watcher.stage("choosing where to start")
        model.fit(X, _NAMES[y.astype(int)])

    counts = np.bincount(y)
    X, y = flights.X[test], flights.y[test]
    rows = {
        name: score(estimator.predict_log_proba(X), y.astype(int), counts)
        for name, estimator in (("logistic regression", line), ("cavity", model))
    }
    words = explanation(rows["logistic regression"], rows["cavity"])
    print(table(rows), words, examples(model, X, y), sep="\n\n", file=out, flush=True)
    if report is not None:
        with progress_shown() as watcher:
            watcher.stage("writing the report")
            _write_report(model, X, y, report)
    return rows


def table(rows: dict[str, dict[str, Any]]) -> str:
    """One method a line."""
    lines = [f"{'':22}{'test NLL':>10}{'error':>10}{'calibration error':>20}"]
    for name, scores in rows.items():
        calibration = scores["calibration_error"]
        lines.append(f"{name:22}{scores['nll']:10.4f}{scores['error']:10.1%}{calibration:20.1%}")
    return "\n".join(lines)


def explanation(line: dict[str, Any], model: dict[str, Any]) -> str:
    """What the table means, in a sentence."""
    return fill(
        f"In words: of 100 flights, logistic regression calls about {100 * line['error']:.0f} wrong and "
        f"cavity about {100 * model['error']:.0f}; to what really happened they had given a probability "
        f"of {np.exp(-line['nll']):.0%} and {np.exp(-model['nll']):.0%} (the test NLL, as a geometric "
        f"mean); and what cavity calls 70% sure comes true about 70 times in 100, give or take "
        f"{100 * model['calibration_error']:.0f} (the calibration error).",
        width=88,
    )


def examples(model: SEPClassifier, X: Array, y: NDArray[np.bool_]) -> str:
    """Three flights, from probably in time to probably late, and how sure the model is of each."""
    mean, variance = model.latent_mean_and_variance(X)
    probability = model.predict_proba(X)[:, 1]
    in_order = np.argsort(probability, kind="stable")
    lines = ["Three of the test flights   chance to be late   how sure (80% interval)     what happened"]
    for share in (0.02, 0.5, 0.98):
        i = in_order[int(share * len(y))]
        low, high = ndtr(mean[i] + ndtri([0.1, 0.9]) * np.sqrt(variance[i]))
        lines.append(
            f"  {describe(X[i]):26}{probability[i]:17.0%}   {f'{low:.0%} to {high:.0%}':28}"
            f"{'late' if y[i] else 'in time'}"
        )
    return "\n".join(lines)


def describe(x: Array) -> str:
    """A flight in words, from its attributes [8].

    >>> describe(np.array([14, 1400, 227, 317, 510, 2, 1, 1]))
    'Tue  1 Jan 05:17, 1400 mi'
    """
    at = dict(zip(nycflights13.FEATURES, (int(value) for value in x), strict=True))
    hours, minutes = divmod(at["departure_time"] % 1440, 60)
    return (
        f"{_DAYS[at['day_of_week'] - 1]} {at['day_of_month']:2} {_MONTHS[at['month'] - 1]} "
        f"{hours:02}:{minutes:02}, {at['distance']} mi"
    )


def _write_report(model: SEPClassifier, X: Array, y: NDArray[np.bool_], path: Path) -> None:
    from cavity.report import write_report

    names = nycflights13.FEATURES
    labels = _NAMES[y.astype(int)]
    write_report(model, path, X, labels, feature_names=names, title="Which flights arrive late?")


def run_reproduce(name: str | None, quick: bool) -> None:
    """Run a benchmark, or print the names of all."""
    benchmarks = _benchmarks()
    if name is None:
        print("\n".join(f"{entry.name:16} {entry.description}" for entry in benchmarks.values()))
        return
    if name not in benchmarks:
        from cavity.text import suggestion

        raise CommandError(f"there is no benchmark {name!r}{suggestion(name, list(benchmarks))}")
    status = import_module("benchmarks.__main__").main(["run", name, *(["--quick"] if quick else [])])
    if status:
        raise typer.Exit(status)


def benchmark_names() -> list[str]:
    """The names of all benchmarks, for the shell to complete; none outside a checkout."""
    try:
        return list(_benchmarks())
    except CommandError:
        return []


def _benchmarks() -> dict[str, Any]:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    if find_spec("benchmarks") is None or find_spec("benchmarks.registry") is None:
        raise CommandError(
            "the benchmarks are not installed with the package; run this in a checkout of the repository"
        )
    return dict(import_module("benchmarks.registry").benchmarks())
