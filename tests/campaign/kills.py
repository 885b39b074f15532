"""Kill fits that write checkpoints at random moments, and see whether they resume to the same model.

From the folder `tests`:

    python -m campaign.kills --seed 0 --count 100

Every fit is killed several times and resumed each time. The last run must end with exactly the model of
a fit that was left alone, and leave no file. A checkpoint that is refused, another model, files that
stay and a run that hangs are failures.
"""

import random
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

import cavity
from campaign import processes
from campaign.processes import SECONDS, Child
from support import make, table

SAME = "same model"
"""What may come out."""

X, LABELS = table(600)
THREE = (X[:, 0] > 0.5).astype(int) + (X[:, 1] > 0)
MINIBATCHES = {"batch_size": 100, "max_epochs": 6}
FITS = {
    "all rows": (cavity.SEPClassifier, LABELS, {"batch_size": None, "max_epochs": 30, "tol": 0.0}),
    "minibatches": (cavity.SEPClassifier, LABELS, MINIBATCHES),
    "early stopping": (cavity.SEPClassifier, LABELS, {**MINIBATCHES, "early_stopping": "validation"}),
    "factors": (cavity.SEPClassifier, LABELS, {**MINIBATCHES, "site_storage": "factors"}),
    "gradients": (cavity.SVIClassifier, LABELS, {**MINIBATCHES, "posterior_update": "gradient"}),
    "natural gradients": (cavity.SVIClassifier, LABELS, MINIBATCHES),
    "three classes": (cavity.SEPClassifier, THREE, MINIBATCHES),
    "a file": (cavity.SEPClassifier, LABELS, MINIBATCHES),
}
"""Kinds of fits: estimator, labels and options."""


def fit(connection, name, folder):
    """Fit one of the kinds, with a checkpoint after every step; send when it begins, and predictions."""
    kind, labels, options = FITS[name]
    warnings.simplefilter("ignore")
    options = {"n_inducing": 10, "random_state": 0, "n_jobs": 1, **options}
    model = make(kind, checkpoint=folder / "fit.ckpt", checkpoint_interval=0.0, **options)
    rows = folder.parent / "X.npy" if name == "a file" else X
    connection.send("begins")
    try:
        model.fit(rows, labels)
    except Exception as error:
        connection.send(f"{type(error).__name__}: {error}")
    else:
        connection.send(model.predict_proba(X[:100]))


def begun(name, folder):
    """A child that begins to fit."""
    child = Child(fit, name, folder)
    assert child.answer() == "begins"
    return child


def resumed(name, folder):
    """Predictions or words of a run that is left alone; None if it hangs or crashes. And its seconds."""
    child = begun(name, folder)
    start = time.monotonic()
    answer = child.answer()
    child.end(SECONDS)
    return answer, time.monotonic() - start


def trial(rng, name, folder, proba, seconds):
    """What comes of a fit that is killed a few times, in a word, and more words."""
    left = seconds
    for _ in range(rng.randint(1, 4)):
        child, moment = begun(name, folder), rng.uniform(0.0, left)
        answer = child.answer(moment)
        child.end()
        if isinstance(answer, str):
            return "an error", answer
        left = max(left - moment, 0.1 * seconds)
    answer, _ = resumed(name, folder)
    if answer is None:
        return "hangs or crashes", ""
    if isinstance(answer, str):
        return "an error", answer
    if not np.array_equal(answer, proba):
        return "another model", f"{np.abs(answer - proba).max():.3g}"
    files = [path.name for path in folder.iterdir()]
    return ("files are left", ", ".join(files)) if files else (SAME, "")


def run(seed, count, *, names=tuple(FITS)):
    """Try `count` fits; yields (kind of fit, number, outcome, words)."""
    with tempfile.TemporaryDirectory() as place:
        np.save(Path(place) / "X.npy", X)
        alone = {}
        for number in range(count):
            rng, name = random.Random(f"{seed} {number}"), names[number % len(names)]
            folder = Path(place) / str(number)
            folder.mkdir()
            if name not in alone:
                alone[name] = resumed(name, folder)
                assert isinstance(alone[name][0], np.ndarray), alone[name]
            yield (name, number, *trial(rng, name, folder, *alone[name]))


if __name__ == "__main__":
    sys.exit(processes.main(__doc__, FITS, run, [SAME], 100))
