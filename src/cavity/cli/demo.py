"""The command `cavity demo`: which flights out of New York arrive late?"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from textwrap import fill
from typing import TextIO

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cavity.cli.guard import Settings, show
from cavity.cli.io import checked_output, print_json
from cavity.cli.progress import progress_shown
from cavity.datasets import nycflights13
from cavity.datasets.nycflights13 import Flights
from cavity.estimators.sep import SEPClassifier
from cavity.gp.metrics import score
from cavity.inference.history import reporting
from cavity.typing import Array, JsonObject

SEED = 2013
N_TEST = 10_000
REPORT = "cavity-demo.html"

_CLASSES = np.array(["in time", "late"])
"""Names of the classes, sorted."""
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def classifier(max_seconds: float) -> SEPClassifier:
    """The classifier that the demo trains."""
    return SEPClassifier(n_inducing=200, max_seconds=max_seconds, random_state=SEED)


def run_demo(output: str | None, seconds: float, settings: Settings) -> None:
    """Load the flights, train, compare, explain and write the report."""
    # A second demo may replace the report of the first, but not a file that the user named.
    path = checked_output(REPORT if output is None else output, settings.force or output is None)
    started = time.perf_counter()
    with progress_shown(settings.quiet) as watcher:
        watcher.stage("loading the flights of 2013")
        flights = nycflights13.load()
    out = sys.stderr if settings.json else sys.stdout
    results = run(flights, classifier(seconds), out, report=path, quiet=settings.quiet)
    elapsed = time.perf_counter() - started
    if settings.json:
        print_json({**results, "report": str(path), "seconds": elapsed})
    else:
        show(f"\n{elapsed:.0f} s in total; the report is {path}")


def run(
    flights: Flights,
    model: SEPClassifier,
    out: TextIO,
    *,
    n_test: int = N_TEST,
    report: Path | None = None,
    quiet: bool = False,
) -> dict[str, JsonObject]:
    """Train the model on all flights but `n_test`, print the results to `out` and return the scores."""
    order = np.random.default_rng(SEED).permutation(len(flights.y))
    test, train = order[:n_test], order[n_test:]
    X, y = flights.X[train], flights.y[train]
    show(
        f"{len(train):,} flights for training and {n_test:,} for testing, with {X.shape[1]} attributes; "
        f"{flights.y.mean():.0%} arrived late.\n",
        out,
    )
    baseline = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    with progress_shown(quiet) as watcher, reporting(watcher):
        model.fit(X, _CLASSES[y.astype(int)])

    counts = np.bincount(y)
    X, y = flights.X[test], flights.y[test]
    rows = {
        name: score(estimator.predict_log_proba(X), y.astype(int), counts)
        for name, estimator in (("logistic regression", baseline), ("cavity", model))
    }
    words = explanation(rows["logistic regression"], rows["cavity"])
    show("\n\n".join([table(rows), words, examples(model, X, y)]), out)
    if report is not None:
        with progress_shown(quiet) as watcher:
            watcher.stage("writing the report")
            _write_report(model, X, y, report)
    return rows


def table(rows: dict[str, JsonObject]) -> str:
    """Format the scores, one method per line."""
    lines = [f"{'':22}{'test NLL':>10}{'error':>10}{'calibration error':>20}"]
    for name, scores in rows.items():
        calibration = scores["calibration_error"]
        lines.append(f"{name:22}{scores['nll']:10.4f}{scores['error']:10.1%}{calibration:20.1%}")
    return "\n".join(lines)


def explanation(baseline: JsonObject, model: JsonObject) -> str:
    """Say in words what the table means."""
    wrong, wrong_baseline = 100 * model["error"], 100 * baseline["error"]
    mean, mean_baseline = np.exp(-model["nll"]), np.exp(-baseline["nll"])
    return fill(
        f"In words: of 100 flights, logistic regression gets about {wrong_baseline:.0f} wrong and "
        f"cavity about {wrong:.0f}. The probabilities that they gave to what happened have a "
        f"geometric mean of {mean_baseline:.0%} and {mean:.0%} (this is the test NLL). "
        f"What cavity predicts with 70% happens about 70 times in 100, give or take "
        f"{100 * model['calibration_error']:.0f} (the calibration error).",
        width=88,
    )


def examples(model: SEPClassifier, X: Array, y: NDArray[np.bool_]) -> str:
    """Show three flights, from probably in time to probably late, with the model's uncertainty."""
    mean, variance = model.latent_mean_and_variance(X)
    probability = model.predict_proba(X)[:, 1]
    in_order = np.argsort(probability, kind="stable")
    lines = ["Three of the test flights   chance to be late   80% interval                what happened"]
    for share in (0.02, 0.5, 0.98):
        i = in_order[int(share * len(y))]
        low, high = ndtr(mean[i] + ndtri([0.1, 0.9]) * np.sqrt(variance[i]))
        lines.append(
            f"  {describe(X[i]):26}{probability[i]:17.0%}   {f'{low:.0%} to {high:.0%}':28}"
            f"{'late' if y[i] else 'in time'}"
        )
    return "\n".join(lines)


def describe(x: Array) -> str:
    """Describe a flight in words, from its attributes [8].

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
    labels = _CLASSES[y.astype(int)]
    write_report(model, path, X, labels, feature_names=names, title="Which flights arrive late?")
