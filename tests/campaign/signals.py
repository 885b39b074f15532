"""Send signals to fits at random moments, and see how they end and what they leave.

From the folder `tests`:

    python -m campaign.signals --seed 0 --count 100

SIGINT (Ctrl-C), SIGTERM (`kill`) and SIGHUP (a terminal that closes) go to the command `cavity fit` and
to a Python program that fits and saves. Each must end, with its result or with the status of the signal.
The command says what it leaves. Started again, both must end with exactly the model of a fit that was
left alone. Tracebacks, damaged files, temporary files, wrong words and endless runs are failures.
"""

import os
import random
import signal
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np

import cavity
from campaign import processes
from campaign.processes import SECONDS, Child
from cavity.cli import fit, main
from flights_table import flights
from support import make, table

ENDED, STOPPED = "ended before", "stopped, then the same model"
"""What may come out."""
MODEL, CHECKPOINT, DATA = "m.cavity", "m.cavity.checkpoint", "flights.csv"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
X, LABELS = table(600)
FRAME = flights(600)
ROWS = {"command": FRAME[:100], "program": X[:100]}
"""Rows to predict with the models."""


def command(connection, folder):
    """`cavity fit`, with a checkpoint after every step."""
    _listen(connection, folder, signal.SIG_DFL)
    fit.CHECKPOINT_SECONDS = 0.0
    options = ["--inducing", "8", "--budget", "40i", "--jobs", "2", "--resume", "-q"]
    sys.argv = ["cavity", "fit", f"../{DATA}", "--target", "delayed", "-o", MODEL, *options]
    main()


def program(connection, folder):
    """A program that fits and saves, and ends when it is interrupted."""
    _listen(connection, folder, signal.SIG_IGN)
    status = 0
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        warnings.simplefilter("ignore")
        options = {"n_inducing": 8, "batch_size": 100, "max_epochs": 6, "random_state": 0, "n_jobs": 2}
        options |= {"checkpoint": CHECKPOINT, "checkpoint_interval": 0.0}
        cavity.save(make(cavity.SEPClassifier, **options).fit(X, LABELS), MODEL)
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
    os._exit(status)


def _listen(connection, folder, on_interrupt):
    """Go to the folder, write what is said to a file, and tell the campaign that work begins."""
    os.chdir(folder)
    for stream in (1, 2):
        os.dup2(os.open("said", os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    signal.signal(signal.SIGINT, on_interrupt)
    Path("begun").touch()
    connection.send("begins")


PROGRAMS = {"command": command, "program": program}
KINDS = {f"{name}, {number.name}": (name, number) for name in PROGRAMS for number in SIGNALS}
"""What is sent to whom."""


def ended(name, folder, number=None, moment=None):
    """Exit code of a run that may get a signal after some seconds; None if it does not end."""
    child = Child(PROGRAMS[name], folder)
    assert child.answer() == "begins"
    if number is not None:
        child.process.join(moment)
        if child.process.exitcode is None:
            os.kill(child.process.pid, number)
    by_itself, code = child.end(SECONDS)
    return code if by_itself else None


def predictions(name, folder):
    """Those of the model in the folder."""
    return cavity.load(folder / MODEL).predict_proba(ROWS[name])


def wrong_words(code, said, files):
    """Whether the words of the command do not tell the truth about what is left."""
    truth = "nothing was written"
    if {MODEL, CHECKPOINT} <= files:
        truth = "the same command with --resume goes on"
    elif MODEL in files:
        truth = "the model was written"
    elif CHECKPOINT in files:
        truth = f"--resume continues from {CHECKPOINT}"
    return code > 0 and truth not in said


def trial(rng, name, number, folder, proba, seconds):
    """What comes of a fit that gets a signal, in a word, and more words."""
    code = ended(name, folder, number, rng.uniform(0.0, 1.2 * seconds))
    said = (folder / "said").read_text()
    files = {path.name for path in folder.iterdir()} - {"said", "begun"}
    if code is None:
        return "endless", said
    if code not in (0, -number, 128 + number):
        return f"status {code}", said
    if "Traceback" in said or "Error" in said:
        return "a traceback", said
    by_itself = name == "command" or number == signal.SIGINT
    if by_itself and not files <= {MODEL, CHECKPOINT}:
        return "temporary files", ", ".join(files)
    if name == "command" and wrong_words(code, said, files):
        return f"wrong words with {sorted(files)}", said
    if MODEL in files and not np.isfinite(predictions(name, folder)).all():
        return "a damaged model", ""
    if MODEL in files and CHECKPOINT not in files:
        same = np.array_equal(predictions(name, folder), proba)
        return (ENDED, "") if same else ("another model", said)
    again = ended(name, folder)
    said = (folder / "said").read_text()
    files = {path.name for path in folder.iterdir()} - {"said", "begun"}
    if again != 0 or files != {MODEL}:
        return f"resumed: status {again}", f"{said} {files}"
    return (STOPPED, "") if np.array_equal(predictions(name, folder), proba) else ("another model", said)


def run(seed, count, *, names=tuple(KINDS)):
    """Try `count` fits; yields (whom and what, number, outcome, words)."""
    with tempfile.TemporaryDirectory() as place:
        FRAME.to_csv(Path(place) / DATA, index=False)
        alone = {}
        for i in range(count):
            kind = names[i % len(names)]
            name, number = KINDS[kind]
            if name not in alone:
                folder = Path(place) / name
                folder.mkdir()
                assert ended(name, folder) == 0, (folder / "said").read_text()
                begun, ending = ((folder / file).stat().st_mtime for file in ("begun", MODEL))
                alone[name] = predictions(name, folder), ending - begun
            folder = Path(place) / str(i)
            folder.mkdir()
            rng = random.Random(f"{seed} {i}")
            yield (kind, i, *trial(rng, name, number, folder, *alone[name]))


if __name__ == "__main__":
    sys.exit(processes.main(__doc__, KINDS, run, [ENDED, STOPPED], 100))
