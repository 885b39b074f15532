"""Does a stream end where a fit on the same rows ends, in whatever order the rows come?

Two functions are known, draws from a Gaussian process over two inputs. There the NLL can be compared
with that of the true probabilities, and the intervals of the latent values with the true values. A real
set is sorted by its first column.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from benchmarks.context import Context
from benchmarks.data import holdout
from benchmarks.metrics import scores
from benchmarks.records import Repetition
from benchmarks.registry import benchmark
from benchmarks.tables import MISSING, markdown
from cavity import SEPClassifier

ROWS, TEST_ROWS, CHUNK, POINTS = 10_000, 2_000, 500, 100
REAL = "electricity"
HOW = ("fit", "shuffled stream", "sorted stream")


@dataclass(frozen=True)
class Rows:
    """Training rows in no order, then test rows; `f` [n] are the true latent values, if known."""

    X: NDArray[np.floating]
    y: NDArray[np.integer]
    n_train: int
    f: NDArray[np.floating] | None = None


def known_function(n_train: int, seed: int, lengthscale: float = 0.5, amplitude: float = 2.0) -> Rows:
    """Rows whose labels are those of a draw from a Gaussian process, by random Fourier features."""
    rng = np.random.default_rng(seed)
    n, k = n_train + TEST_ROWS, 2_000
    X = rng.uniform(-2.0, 2.0, (n, 2))
    frequencies = rng.standard_normal((2, k)) / lengthscale
    waves = np.cos(X @ frequencies + rng.uniform(0.0, 2.0 * np.pi, k))
    f = amplitude * np.sqrt(2.0 / k) * waves @ rng.standard_normal(k)
    y = np.where(rng.uniform(size=n) < norm.cdf(f), 1, -1)
    return Rows(X, y, n_train, f)


def real_rows(n_train: int) -> Rows:
    """Rows of a set from the data folder."""
    split = holdout(REAL, TEST_ROWS)
    train = split.train.take(slice(n_train))
    X, y = np.vstack([train.X, split.test.X]), np.concatenate([train.y, split.test.y])
    return Rows(X, y, len(train.y))


def learn(rows: Rows, how: str) -> dict[str, Any]:
    """Scores on the test rows after a fit or a stream."""
    X, y = rows.X[: rows.n_train], rows.y[: rows.n_train]
    if how == "sorted stream":
        order = np.argsort(X[:, 0], kind="stable")
        X, y = X[order], y[order]
    model = SEPClassifier(n_inducing=POINTS, random_state=0)
    began = time.perf_counter()
    if how == "fit":
        model.fit(X, y)
    else:
        for start in range(0, len(X), CHUNK):
            chunk = slice(start, start + CHUNK)
            model.partial_fit(X[chunk], y[chunk], classes=[-1, 1])
    measured: dict[str, Any] = {"seconds": time.perf_counter() - began}
    X, y = rows.X[rows.n_train :], rows.y[rows.n_train :]
    measured |= scores(model.predict_log_proba(X), y)
    measured["ood"] = float(model.ood_score(X).mean())
    if rows.f is not None:
        f = rows.f[rows.n_train :]
        mean, variance = (np.ravel(values) for values in model.latent_mean_and_variance(X))
        best = norm.logcdf(np.outer(f, [-1.0, 1.0]))
        measured["best_nll"] = scores(best, y)["nll"]
        measured["covered"] = float(np.mean(np.abs(f - mean) < 1.96 * np.sqrt(variance)))
        measured["slope"] = float(np.polyfit(mean, f, 1)[0])
    return measured


def _table(repetitions: Sequence[Repetition]) -> str:
    """One row per set and way: scores, and coverage and slope of the latent values if they are known."""

    def cell(values: Any, name: str, form: str) -> str:
        return format(values[name], form) if name in values else MISSING

    rows = [
        [
            r.label,
            f"{r.extra['nll']:.4f}",
            cell(r.extra, "best_nll", ".4f"),
            f"{100 * r.extra['error']:.2f}",
            cell(r.extra, "covered", ".3f"),
            cell(r.extra, "slope", ".2f"),
            f"{r.extra['ood']:.2f}",
            f"{r.extra['seconds']:.1f}",
        ]
        for r in repetitions
    ]
    header = ["rows, way", "NLL", "best NLL", "error %", "covered by 95 %", "slope", "OOD score", "s"]
    return markdown(header, rows)


@benchmark(
    "streams",
    "streams of rows in random order and sorted, beside fit: NLL, coverage of a known function",
    table=_table,
    minutes=2,
    timed=False,
)
def run(context: Context) -> None:
    """Every set in three ways."""
    n = 2_000 if context.quick else ROWS
    draws = context.repetitions(2, quick=1)
    sets = {f"draw {seed}": known_function(n, seed) for seed in range(draws)}
    if not context.quick:
        sets[REAL] = real_rows(n)
    context.expect(len(sets) * len(HOW))
    for name, rows in sets.items():
        for how in HOW:
            context.note(f"{name}, {how}", partial(learn, rows, how))
