"""Damage model files in thousands of ways and see what loading them does.

From the folder `tests`:

    python -m campaign.model_files --seed 0 --count 3000

Every damaged file must either load and predict finite numbers, or be refused with a `ModelFileError`.
Any other exception, a number that is not finite, a crash, and more than `SECONDS` or `MEGABYTES` are
failures. Files are loaded in a process of their own, so that a crash is seen.
"""

import multiprocessing
import random
import resource
import sys
import tempfile
import time
import warnings
import zipfile
from pathlib import Path

import numpy as np
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import cavity
from campaign.mutations import MUTATIONS
from campaign.runner import main, unexpected
from cavity.export.model_file import describe
from flights_table import flights
from support import table

SECONDS = 20.0
"""Longest time that one file may take."""
MEGABYTES = 300.0
"""Most memory by which the process may grow."""
LOADED, REFUSED, TRANSFORMER = "loaded", "refused", "refused by a transformer"
"""What may come out. A step of scikit-learn before a classifier checks its numbers when it predicts."""

KINDS = sorted(MUTATIONS)
"""Every kind of damage."""

X, LABELS = table(60)
THREE = np.array(["a", "b", "c"])[(X[:, 0] > 0.5).astype(int) + (X[:, 1] > 0)]
X_STAR = table(20, seed=9)[0]


def honest_models():
    """Fitted estimators of several kinds, by name."""
    sep = {"n_inducing": 5, "max_epochs": 3, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        classifier = cavity.SEPClassifier(**sep)
        stream = cavity.SEPClassifier(n_inducing=5, random_state=0)
        gradient = cavity.SVIClassifier(**sep, config={"posterior_update": "gradient"})
        return {
            "SEP": cavity.SEPClassifier(**sep).fit(X, LABELS),
            "three classes": cavity.SEPClassifier(**sep).fit(X, THREE),
            "logit": cavity.SVIClassifier(**sep, likelihood="logit").fit(X.astype("f4"), LABELS),
            "gradient steps": gradient.fit(X, THREE),
            "GFITC": cavity.GFITCClassifier(n_inducing=5, max_iter=3, random_state=0).fit(X, LABELS),
            "stream": stream.partial_fit(X[:30], LABELS[:30]).partial_fit(X[30:], LABELS[30:]),
            "whitened": cavity.SEPClassifier(**sep, scaling="whiten").fit(X, LABELS),
            "quantiles": cavity.SEPClassifier(**sep, scaling="quantile").fit(X, LABELS),
            "table": cavity.TableClassifier(classifier).fit(flights(60), "delayed"),
            "pipeline": make_pipeline(StandardScaler(), cavity.SEPClassifier(**sep)).fit(X, LABELS),
        }


def honest_files(folder):
    """The parts of honest files, by the names of their models."""
    files = {}
    for name, model in honest_models().items():
        path = Path(folder) / "honest.cavity"
        cavity.save(model, path)
        with zipfile.ZipFile(path) as archive:
            files[name] = {member: archive.read(member) for member in archive.namelist()}
    return files


def outcome(path):
    """What loading a file and predicting with it does, in a word, and the words of an error."""
    try:
        describe(path)
        model = cavity.load(path)
    except cavity.ModelFileError as error:
        words = str(error)
        return (REFUSED, words) if str(path) in words and len(words) > 40 else ("no sentence", words)
    rows = flights(20).drop(columns="delayed") if isinstance(model, cavity.TableClassifier) else X_STAR
    if isinstance(model, Pipeline):
        try:
            rows = model[:-1].transform(rows)
            finite = rows.shape == X_STAR.shape and np.isfinite(rows).all()
        except Exception as error:
            return TRANSFORMER, str(error)
        if not finite:
            return TRANSFORMER, "not finite"
        model = model[-1]
    proba = model.predict_proba(rows)
    if proba.shape != (20, len(model.classes_)) or not np.isfinite(proba).all():
        return "predictions are not finite", ""
    if model.predict(rows).shape != (20,):
        return "labels of the wrong shape", ""
    return LOADED, ""


def serve(connection):
    """Load files for another process: receives paths, sends outcomes and peaks of memory."""
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while True:
        path = connection.recv()
        try:
            with np.errstate(all="ignore"):
                result = outcome(path)
        except BaseException as error:
            result = unexpected(error)
        connection.send((*result, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))


class Worker:
    """A process that loads files, and is replaced when it dies or takes too long."""

    def __init__(self, honest):
        self.honest, self.process = honest, None

    def try_file(self, path):
        """The outcome, and the words of an error, of one file."""
        if self.process is None:
            self._start()
        begun = time.monotonic()
        answer = self._ask(path, SECONDS)
        if answer is None:
            late = time.monotonic() - begun >= SECONDS
            self.stop()
            return ("too slow" if late else "crash"), ""
        result, words, peak = answer
        if peak > self.before + MEGABYTES:
            self.stop()
            return "too much memory", f"{peak - self.before:.0f} MB"
        return result, words

    def _start(self):
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=serve, args=(other,), daemon=True)
        self.process.start()
        other.close()
        for path in self.honest:
            result, words, self.before = self._ask(path, 120.0)
            assert result == LOADED, words

    def _ask(self, path, seconds):
        try:
            self.connection.send(path)
            return self.connection.recv() if self.connection.poll(seconds) else None
        except (EOFError, OSError):
            return None

    def stop(self):
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process = None


def run(seed, numbers):
    """Try damaged files; yields (kind of damage, kind of model, number, outcome, words)."""
    with tempfile.TemporaryDirectory() as folder:
        files = honest_files(folder)
        honest = []
        for i, parts in enumerate(files.values()):
            honest.append(f"{folder}/honest{i}.cavity")
            with zipfile.ZipFile(honest[-1], "w") as archive:
                for name, content in parts.items():
                    archive.writestr(name, content)
        worker = Worker(honest)
        try:
            for number in numbers:
                rng = random.Random(f"{seed} {number}")
                name, kind = KINDS[number % len(KINDS)], rng.choice(sorted(files))
                path = Path(folder) / "damaged.cavity"
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    path.write_bytes(MUTATIONS[name](rng, dict(files[kind])))
                yield (name, kind, number, *worker.try_file(str(path)))
        finally:
            worker.stop()


if __name__ == "__main__":
    sys.exit(main(__doc__, KINDS, run, allowed=(LOADED, REFUSED, TRANSFORMER), count=3_000))
