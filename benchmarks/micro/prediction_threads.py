"""What threads cost and save in predictions: `python -m benchmarks.micro.prediction_threads`.

`predict_proba` with `n_jobs=None` and with `n_jobs=1`, in turns: best times and their ratio. Threads pay
where the ratio is below 1; where rows make one tile, none are started and the ratio is 1.
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks.micro.test_micro import D, M, rows
from cavity import SEPClassifier

SIZES = (1, 50, 500, 5_000, 50_000)
ROUNDS, SECONDS = 40, 0.03


def compare(model: SEPClassifier, X: np.ndarray) -> list[float]:
    """Microseconds of a prediction for X with all threads, and with one."""
    best = [np.inf, np.inf]
    for _ in range(ROUNDS):
        for k, n_jobs in enumerate((None, 1)):
            model.set_params(n_jobs=n_jobs)
            count, start = 0, time.perf_counter()
            while time.perf_counter() - start < SECONDS:
                model.predict_proba(X)
                count += 1
            best[k] = min(best[k], 1e6 * (time.perf_counter() - start) / count)
    return best


def main() -> None:
    """Print the table."""
    X, labels = rows()
    model = SEPClassifier(n_inducing=M, optimizer=None, random_state=0).fit(X, labels)
    print("   rows  default, µs  n_jobs=1, µs  ratio")
    for n in SIZES:
        default, single = compare(model, rows(n, D)[0])
        print(f"{n:7d} {default:12.0f} {single:13.0f} {default / single:6.2f}", flush=True)


if __name__ == "__main__":
    main()
