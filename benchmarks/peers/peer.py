"""A method that runs in another process: write its job, follow its lines, read its result."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import code
from benchmarks.data import Dataset
from benchmarks.methods import MethodFailedError, Result
from benchmarks.peers import environments
from benchmarks.records import MOST_REFUSED
from benchmarks.start import starting_point

HERE = Path(__file__).parent
GRACE = 900.0  # seconds for imports, evaluations and fits without a budget
STDERR_TAIL = 1500  # characters kept of a failure
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Peer:
    """A method served by `worker_NAME.py`, in the environment NAME unless another is given.

    `environment="project"` is the interpreter that runs the harness: for methods of the project
    itself, which are then timed exactly as the peers are.
    """

    name: str
    mode: str
    environment: str | None = None
    worker: Path | None = None

    @property
    def code(self) -> str | None:
        """The fingerprint of worker and versions; None if what runs is the library itself."""
        if self.environment == "project":
            return None
        return code.digest([self._worker(), environments.requirements(self.environment or self.name)])

    def __call__(
        self, train: Dataset, test: Dataset, settings: Mapping[str, Any], budget: float | None
    ) -> Result:
        """Fit and score in a fresh process; raise `MethodFailedError` with the end of its stderr."""
        with tempfile.TemporaryDirectory(prefix="cavity-benchmark-") as name:
            folder = Path(name)
            job = self._write_job(folder, train, test, settings, budget)
            lines = self._follow(job, settings, budget)
            curve = [line["point"] for line in lines if "point" in line]
            final = next((line["final"] for line in lines if "final" in line), None)
            if final is None:
                raise MethodFailedError(f"{self.name}: the worker ended without a result")
            log_p = np.load(folder / "log_p.npy")
            scores = _scores(folder / "scores.npz")
        refused = final.get("refused_steps", 0)
        if refused > MOST_REFUSED * final.get("steps", 0):
            raise MethodFailedError(f"{self.name}: refused {refused} of {final['steps']} steps")
        if test.n_foreign:
            curve = []  # it scores foreign rows too, which have no labels
        return Result.from_log_probabilities(
            log_p,
            test.y,
            seconds=final.pop("seconds"),
            n_foreign=test.n_foreign,
            uncertainty=scores,
            curve=curve,
            peak_memory=final.pop("peak_memory"),
            extra=final,
        )

    def _write_job(
        self,
        folder: Path,
        train: Dataset,
        test: Dataset,
        settings: Mapping[str, Any],
        budget: float | None,
    ) -> Path:
        train.write(folder)
        test.write(folder, "_test")
        job: dict[str, Any] = {"mode": self.mode, "settings": dict(settings), "budget": budget}
        if isinstance(settings.get("m"), int):  # "auto" is our own classifiers' choice
            start = starting_point(train.X, settings["m"], settings["seed"])
            np.save(folder / "Z.npy", start.Z)
            job |= {"lengthscale": start.lengthscale, "amplitude": start.amplitude}
        path = folder / "job.json"
        path.write_text(json.dumps(job))
        return path

    def _follow(
        self, job: Path, settings: Mapping[str, Any], budget: float | None
    ) -> list[dict[str, Any]]:
        environ = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore"}
        if settings.get("threads"):
            environ |= dict.fromkeys(_THREAD_VARIABLES, str(settings["threads"]))
        try:
            done = subprocess.run(
                [str(self._python()), str(self._worker()), str(job)],
                capture_output=True,
                text=True,
                env=environ,
                timeout=settings.get("timeout", GRACE + 4.0 * (budget or 0.0)),
                check=False,
            )
        except subprocess.TimeoutExpired as expired:
            raise MethodFailedError(f"{self.name}: no end after {expired.timeout:.0f} s") from expired
        if done.returncode:
            tail = done.stderr[-STDERR_TAIL:]
            raise MethodFailedError(f"{self.name}: exit status {done.returncode}\n{tail}")
        # Libraries print to standard output as they like; the protocol's lines are JSON objects.
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    def _worker(self) -> Path:
        return self.worker or HERE / f"worker_{self.name}.py"

    def _python(self) -> Path:
        if self.environment == "project":
            return Path(sys.executable)
        name = self.environment or self.name
        try:
            environments.install(name)
        except subprocess.CalledProcessError as error:
            raise MethodFailedError(f"{name}: the environment could not be installed") from error
        return environments.python(name)


def _scores(path: Path) -> dict[str, NDArray[np.floating]]:
    if not path.exists():
        return {}
    with np.load(path) as arrays:
        return dict(arrays)
