"""Take workers from Dask fits, and disks from fits that write, at random; see how they end.

From the folder `tests`:

    python -m campaign.faults --seed 0 --count 20

Workers of a cluster are killed, added and taken away while a fit runs: it must end with the model of a
fit that was left alone. Fits on one machine may write files of a few bytes only, as if the disk were
full: they must end in words, leave no part of a file, and later resume to the same model.

Dask is imported by the functions that use it, because every child imports this module.
"""

import io
import os
import random
import resource
import signal
import sys
import tempfile
import threading
import warnings
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import cavity
from campaign import processes
from campaign.checkpoints import TooSlowError, at_most
from campaign.processes import SECONDS, Child
from cavity.cli import fit, main
from flights_table import flights
from support import make, table

SAME, REFUSED = "same model", "refused, then the same model"
"""What may come out."""
X, LABELS = table(600)
FRAME = flights(600)
MODEL, CHECKPOINT, DATA = "m.cavity", "m.cavity.checkpoint", "flights.csv"
CLUSTER_SECONDS = 300
"""How long a fit may take whose workers have to start again."""


class Disturbance(threading.Thread):
    """Does something to the workers a few times while a fit runs."""

    def __init__(self, rng, client, seconds, do):
        super().__init__(daemon=True)
        self.moments = sorted(rng.uniform(0.0, seconds) for _ in range(rng.randint(1, 3)))
        self.rng, self.client, self.do = rng, client, do
        self.over = threading.Event()

    def run(self):
        """Wait for each moment."""
        before = 0.0
        for moment in self.moments:
            if self.over.wait(moment - before):
                return
            before = moment
            self.do(self.rng, self.client)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()


def kill_a_worker(rng, client):
    """SIGKILL to one of the workers, if any is there."""
    from dask_clusters import worker_pids

    try:
        pids = sorted(worker_pids(client).values())
    except Exception:  # one of them has gone while it was asked
        return
    if pids:
        os.kill(rng.choice(pids), signal.SIGKILL)


def change_their_number(rng, client):
    """Add workers, or take some away."""
    client.cluster.scale(rng.randint(1, 3))


CLUSTER = {"workers are killed": kill_a_worker, "workers come and go": change_their_number}


def cluster_fit(client):
    """A fit at fixed parameters, which has one answer."""
    from cavity.estimators.dask import DaskSEPClassifier
    from dask_clusters import chunked

    options = {"n_inducing": 6, "random_state": 0, "optimizer": None, "tol": 1e-11, "max_epochs": 300}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make(DaskSEPClassifier, **options, client=client).fit(*chunked(X, LABELS, 110))
    return model.predict_proba(X), model.fit_seconds_


@contextmanager
def small_cluster():
    """A client of two workers, which share even a few rows."""
    import dask

    from cavity.engines.dask import layout
    from dask_clusters import started

    least, layout.LEAST_ROWS = layout.LEAST_ROWS, 60
    try:
        with dask.config.set({"cavity.worker-timeout": CLUSTER_SECONDS}), started(2) as client:
            yield client
    finally:
        layout.LEAST_ROWS = least


def cluster_trial(rng, do, client, proba, seconds):
    """What comes of a fit whose workers are disturbed."""
    from dask_clusters import wait_for_workers

    try:
        with at_most(CLUSTER_SECONDS), Disturbance(rng, client, seconds, do):
            disturbed, _ = cluster_fit(client)
    except TooSlowError:
        return "endless", ""
    except Exception as error:
        return type(error).__name__, str(error)
    difference = np.abs(disturbed - proba).max()
    client.cluster.scale(2)
    wait_for_workers(client, 2)
    return (SAME, "") if difference < 1e-8 else ("another model", f"{difference:.3g}")


def command():
    """`cavity fit`, with a checkpoint after every step; returns its exit status."""
    fit.CHECKPOINT_SECONDS = 0.0
    options = ["--inducing", "8", "--budget", "15i", "--resume", "-q"]
    sys.argv = ["cavity", "fit", f"../{DATA}", "--target", "delayed", "-o", MODEL, *options]
    try:
        main()
    except SystemExit as end:
        return end.code
    return 0


def program():
    """A program that fits and saves; returns its exit status."""
    options = {"n_inducing": 8, "batch_size": 100, "max_epochs": 3, "random_state": 0}
    options |= {"checkpoint": CHECKPOINT, "checkpoint_interval": 0.0}
    try:
        cavity.save(make(cavity.SEPClassifier, **options).fit(X, LABELS), MODEL)
    except (cavity.CheckpointError, cavity.ModelFileError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


DISK = {"full disk, command": command, "full disk, program": program}


def limited(connection, name, folder, most):
    """Run a program that may write files of at most so many bytes; sends its status and its words."""
    os.chdir(folder)
    tempfile.tempdir = str(folder)
    sys.stderr = words = io.StringIO()
    warnings.simplefilter("ignore")
    if most is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    connection.send((DISK[name](), words.getvalue()))


def disk_run(name, folder, most=None):
    """Status, words and files left of a run; the status is None if it crashes or does not end."""
    child = Child(limited, name, folder, most)
    status, said = child.answer() or (None, "")
    child.end(SECONDS)
    return status, said, sorted(path.name for path in folder.iterdir())


def predictions(name, folder):
    """Those of the model in the folder."""
    rows = FRAME[:100] if name.endswith("command") else X[:100]
    return cavity.load(folder / MODEL).predict_proba(rows)


def disk_trial(rng, name, folder, proba):
    """What comes of a fit whose files can only have a few bytes, or a few thousand."""
    status, said, files = disk_run(name, folder, int(10 ** rng.uniform(0.0, 4.5)))
    if status not in (0, 1):
        return f"status {status}", said
    if status == 1:
        if "File too large" not in said or "unexpected" in said:
            return "wrong words", said
        if not set(files) <= {CHECKPOINT}:
            return "files are left", ", ".join(files)
        again, said, files = disk_run(name, folder)
        if again != 0:
            return f"resumed: status {again}", said
    if files != [MODEL]:
        return "files are left", ", ".join(files)
    if not np.array_equal(predictions(name, folder), proba):
        return "another model", said
    return (REFUSED if status else SAME), ""


def run(seed, count, *, names=(*CLUSTER, *DISK)):
    """Try `count` fits; yields (kind of fault, number, outcome, words)."""
    trials = [(i, names[i % len(names)], random.Random(f"{seed} {i}")) for i in range(count)]
    with tempfile.TemporaryDirectory() as place:
        FRAME.to_csv(Path(place) / DATA, index=False)
        alone = {}
        for i, name, rng in trials:
            if name in DISK:
                for folder in (Path(place) / name, Path(place) / str(i)):
                    folder.mkdir(exist_ok=True)
                if name not in alone:
                    status, said, _ = disk_run(name, Path(place) / name)
                    assert status == 0, said
                    alone[name] = predictions(name, Path(place) / name)
                yield (name, i, *disk_trial(rng, name, Path(place) / str(i), alone[name]))
    disturbed = [(i, name, rng) for i, name, rng in trials if name in CLUSTER]
    if disturbed:
        with small_cluster() as client:
            calm = cluster_fit(client)
            for i, name, rng in disturbed:
                yield (name, i, *cluster_trial(rng, CLUSTER[name], client, *calm))


if __name__ == "__main__":
    sys.exit(processes.main(__doc__, (*CLUSTER, *DISK), run, [SAME, REFUSED], 20))
