"""What a worker process reads and prints; it imports nothing but NumPy, for every peer's environment.

A worker is called with the path of a job (JSON); the arrays are .npy files beside it. It prints
a JSON line per evaluation, {"point": {seconds, step, nll, error}}, and a last one,
{"final": {seconds, peak_memory, ...}}, and leaves the test rows' log p(−1), log p(+1) in log_p.npy, or
a column a class if there are more than two (y is then 0, 1, …). Asked for uncertainty, it leaves named
scores of the test rows in scores.npz; larger ones are less certain.
"""

import contextlib
import json
import os
import resource
import sys
import time
from importlib import metadata
from pathlib import Path

import numpy as np

LIBRARIES = (
    "catboost",
    "cavity",
    "gpboost",
    "gpflow",
    "gpytorch",
    "lightgbm",
    "numpy",
    "pytabkit",
    "scikit-learn",
    "tensorflow",
    "torch",
    "xrfm",
)
WARM_UP = 20  # steps before the step rate counts
LAST_RATE = 0.01  # of a cosine schedule, as a share of the first
ONE_ROW = 300  # predictions of a single row that are timed


class Job:
    """The data and settings of one fit, and its clock.

    The clock counts training only: it starts at `begin()` (libraries imported, data in memory)
    and stands still during evaluations. `final` tells how long the first step took, which includes
    what a library does only once.
    """

    def __init__(self):
        path = Path(sys.argv[1])
        job = json.loads(path.read_text())
        self.folder = path.parent
        self.mode = job["mode"]
        self.settings = job["settings"]
        self.budget = job["budget"]
        self.lengthscale = job.get("lengthscale")
        self.amplitude = job.get("amplitude", 1.0)
        self.seed = self.settings.get("seed", 0)
        self.threads = self.settings.get("threads") or len(os.sched_getaffinity(0))
        if self.settings.get("memory_gb"):
            limit = int(self.settings["memory_gb"] * 2**30)
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        self._due = _evaluation_times(self.budget) if self.settings.get("curve", True) else []
        self._paused = 0.0
        self._first_step = self._warm = None

    def array(self, name, dtype=None):
        """One of X: [n, d], y: [n], X_test, y_test, Z: [m, d]."""
        array = np.load(self.folder / f"{name}.npy")
        return array if dtype is None else array.astype(dtype)

    def begin(self):
        """Start the clock."""
        self._begin = time.perf_counter()

    def seconds(self):
        """Training seconds so far."""
        return time.perf_counter() - self._begin - self._paused

    def over(self, step):
        """Whether training ends after `step` steps: the budget is spent, or the steps are done."""
        now = self.seconds()
        if step == 1:
            self._first_step = now
        if step == WARM_UP:
            self._warm = now
        limit = self.settings.get("steps")
        return bool((self.budget and now >= self.budget) or (limit and step >= limit))

    def rate(self, step):
        """The factor on all learning rates at a step: 1, or down to nearly 0 along a cosine."""
        if self.settings.get("schedule", "constant") == "constant":
            return 1.0
        limit = self.settings.get("steps")
        done = step / limit if limit else self.seconds() / self.budget
        return LAST_RATE + (1.0 - LAST_RATE) * 0.5 * (1.0 + np.cos(np.pi * min(1.0, done)))

    def evaluate_if_due(self, step, log_probabilities):
        """Score the test rows if a point of the curve is due; the clock stands still."""
        now = self.seconds()
        if not self._due or now < self._due[0]:
            return
        self._due = [t for t in self._due if t > now]
        begin = time.perf_counter()
        self._point(now, step, log_probabilities())
        self._paused += time.perf_counter() - begin

    def finish(self, log_probabilities, step=None, one_row=None, scores=None, **extra):
        """Stop the clock, score once more, and report.

        one_row: predicts the class probabilities of rows, for the time of a single one. scores: gives
        named scores [t] of the test rows. Both are called only if the job asks for them.
        """
        seconds = self.seconds()
        if one_row is not None and self.settings.get("one_row"):
            extra["one_row_microseconds"] = microseconds(one_row, self.array("X_test"))
        if scores is not None and self.settings.get("uncertainty"):
            np.savez(self.folder / "scores.npz", **scores())
        if self._warm is not None and step > WARM_UP:
            extra["steps_per_second"] = (step - WARM_UP) / (seconds - self._warm)
        if self._first_step is not None:
            extra["first_step_seconds"] = self._first_step
        if step is not None:
            extra["steps"] = step
        log_p = np.asarray(log_probabilities(), dtype=np.float64)
        self._point(seconds, step, log_p)
        self.report([], seconds, log_p, **extra)

    def report(self, curve, seconds, log_p, **extra):
        """Hand over a result: points of the curve that are not printed yet, and all the rest."""
        for point in curve:
            _print(point=point)
        np.save(self.folder / "log_p.npy", np.asarray(log_p, dtype=np.float64))
        final = {"seconds": seconds, "peak_memory": peak_memory(), "versions": versions(), **extra}
        _print(final=final)

    def _point(self, seconds, step, log_p):
        y = self.array("y_test")
        code = (y > 0 if log_p.shape[1] == 2 else y).astype(int)
        nll = -np.mean(log_p[np.arange(len(code)), code])
        error = np.mean(log_p.argmax(axis=1) != code)
        _print(point={"seconds": seconds, "step": step, "nll": float(nll), "error": float(error)})


def microseconds(predict, X):
    """The median time of predicting one row of X, after a warm-up."""
    times = []
    for number in range(ONE_ROW + WARM_UP):
        row = X[number % len(X) : number % len(X) + 1]
        begin = time.perf_counter()
        predict(row)
        times.append(time.perf_counter() - begin)
    return 1e6 * float(np.median(times[WARM_UP:]))


def versions():
    """Versions of the libraries that this environment has."""
    found = {}
    for name in LIBRARIES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def peak_memory():
    """Peak resident bytes of this process.

    Linux hands the parent's peak down to the child in `ru_maxrss`, so the kernel's own high-water
    mark is read where there is one.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(s for s in status.read_text().splitlines() if s.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _evaluation_times(budget):
    """Twenty moments, spread evenly on a log scale from 1 s (or a tenth of the budget)."""
    if not budget:
        return []
    return list(np.geomspace(min(1.0, budget / 10), budget, 20)[:-1])


def _print(**line):
    print(json.dumps(line), flush=True)
