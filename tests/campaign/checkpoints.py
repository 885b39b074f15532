"""Damage checkpoints in hundreds of ways and see what resuming from them does.

From the folder `tests`:

    python -m campaign.checkpoints --seed 0 --count 600

A fit that finds a damaged checkpoint must either go on and end with finite predictions, or raise a
`CheckpointError` that names the file and the way out. Any other exception, a number that is not finite,
and more than `SECONDS` or `MEGABYTES` are failures.
"""

import json
import random
import resource
import sys
import tempfile
import warnings
import zipfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import cavity
from campaign import mutations
from campaign.mutations import ARRAYS, array_mutation, npy, packed
from campaign.runner import TooSlowError, at_most, main, unexpected
from cavity.engines.local import LocalEngine
from support import PINNED, make, table

SECONDS = 20
"""Longest time that one fit may take."""
MEGABYTES = 300.0
"""Most memory by which the process may grow."""
ENDED, REFUSED = "ended", "refused"
"""What may come out."""

X, LABELS = table(60)
THREE = (X[:, 0] > 0.5).astype(int) + (X[:, 1] > 0)
X_STAR = table(20, seed=9)[0]
MINIBATCHES = {"batch_size": 20, "max_epochs": 5}
FITS = {
    "all rows": (cavity.SEPClassifier, LABELS, {"batch_size": None, "max_epochs": 14, "tol": 0.0}),
    "minibatches": (cavity.SEPClassifier, LABELS, MINIBATCHES),
    "early stopping": (
        cavity.SEPClassifier,
        LABELS,
        {**MINIBATCHES, **PINNED, "early_stopping": "validation"},
    ),
    "factors": (cavity.SEPClassifier, LABELS, {**MINIBATCHES, "site_storage": "factors"}),
    "gradients": (cavity.SVIClassifier, LABELS, {**MINIBATCHES, "posterior_update": "gradient"}),
    "three classes": (cavity.SEPClassifier, THREE, MINIBATCHES),
    "quantiles": (cavity.SEPClassifier, LABELS, {**MINIBATCHES, "scaling": "quantile"}),
    "whitened, fixed points": (
        cavity.SEPClassifier,
        LABELS,
        {**MINIBATCHES, "scaling": "whiten", "learn_inducing": False},
    ),
}
"""Kinds of fits: estimator, labels and options."""


class PowerCutError(Exception):
    """Ends a fit as a crash would."""


@contextmanager
def cut_off_at(number):
    """Let a pass of the fits inside fail."""
    run, count = LocalEngine.run, 0

    def failing(*args, **kwargs):
        nonlocal count
        count += 1
        if count == number:
            raise PowerCutError
        return run(*args, **kwargs)

    LocalEngine.run = failing
    try:
        yield
    finally:
        LocalEngine.run = run


def fit(name, path):
    """Fit one of the kinds, with a checkpoint after every step."""
    kind, labels, options = FITS[name]
    options = {"n_inducing": 5, "random_state": 0, "n_jobs": 1, **options}
    return make(kind, checkpoint=path, checkpoint_interval=0.0, **options).fit(X, labels)


def honest_checkpoints(folder):
    """The members of the checkpoints of fits that were cut off, by the names of the fits."""
    found = {}
    for name in FITS:
        path = Path(folder) / "honest.ckpt"
        try:
            with cut_off_at(11):
                fit(name, path)
        except PowerCutError:
            with zipfile.ZipFile(path) as archive:
                found[name] = {member: archive.read(member) for member in archive.namelist()}
            path.unlink()
    assert found.keys() == FITS.keys()
    return found


ABOUT = "about.npy"
VALUES = [
    None, True, 0, -1, 1, 7, 10**30, -(10**30), 10**400, 0.5, 1e-320, 1e300, float("nan"), float("inf"),
    "", "1", "x" * 5_000, [], {}, [[]], {"a": 1},
]  # fmt: skip
"""Values that are put in the place of one of the description."""


def described(parts, about):
    """The archive with another description."""
    text = about if isinstance(about, bytes) else json.dumps(about).encode()
    return packed({**parts, ABOUT: npy(np.frombuffer(text, dtype=np.uint8))})


def description(parts):
    """The description of a checkpoint."""
    return json.loads(parts[ABOUT][parts[ABOUT].index(b"\n") + 1 :])


def about_mutation(where, values=VALUES):
    """Set an entry of the description, given by its keys, to one of some values."""

    def mutate(rng, parts):
        about = description(parts)
        inner = about
        for key in where[:-1]:
            inner = inner[key]
        inner[where[-1]] = rng.choice(values)
        return described(parts, about)

    return mutate


def any_entry(rng, parts):
    """Change or remove any entry of the description."""
    about = description(parts)
    places, waiting = [], [about]
    while waiting:
        inner = waiting.pop()
        places += [(inner, key) for key in inner]
        waiting += [value for value in inner.values() if isinstance(value, dict)]
    inner, key = rng.choice(places)
    if rng.random() < 0.3:
        del inner[key]
    else:
        inner[key] = rng.choice(VALUES)
    return described(parts, about)


def other_description(rng, parts):
    """Replace the whole description."""
    texts = [b"", b"null", b"[]", b"{}", b"{", b"[" * 100_000, b"\xff\xfe", b" " * 100_000, b"1" * 9_999]
    return described(parts, rng.choice(texts))


def extra_member(rng, parts):
    """Add an array that no fit has."""
    name = rng.choice(["more", "state.y", "state.optimizer.more", "best.q.more", "sites.directions"])
    return packed({**parts, f"{name}.npy": npy(np.zeros(rng.choice([0, 3, 100])))})


def no_best_state(rng, parts):
    """Leave out the best state, or the scores."""
    gone = rng.choice(["best.", "scores"])
    kept = {name: content for name, content in parts.items() if not name.startswith(gone)}
    if gone == "scores":
        kept |= {"scores.npy": npy(np.zeros(0)), "scores.window.npy": npy(np.zeros(0))}
    return packed(kept)


def long_history(rng, parts):
    """Give the history, or the scores, many entries."""
    name = rng.choice(["history.npy", "history.pending.npy", "scores.npy", "scores.window.npy"])
    columns = {"history.npy": (6,), "history.pending.npy": (5,)}.get(name, ())
    return packed({**parts, name: npy(np.ones((1_000_000, *columns)))})


MUTATIONS = {
    **{f"array: {name}": array_mutation(name) for name in ARRAYS},
    "about: ending": about_mutation(("position", "ending")),
    "about: ending is -1": about_mutation(("position", "ending"), [-1, -1.0, -1e-300]),
    "about: epoch": about_mutation(("position", "epoch")),
    "about: batch": about_mutation(("position", "batch")),
    "about: step": about_mutation(("position", "step")),
    "about: position": about_mutation(("position",)),
    "about: seconds": about_mutation(("seconds",)),
    "about: seconds is -1": about_mutation(("seconds",), [-1, -1.0, float("nan"), float("-inf")]),
    "about: format": about_mutation(("format",)),
    "about: run": about_mutation(("run",)),
    "about: fingerprint": about_mutation(("fingerprint",)),
    "about: parameters": about_mutation(("fingerprint", "parameters")),
    "about: any entry": any_entry,
    "about: something else": other_description,
    "archive: a member more": extra_member,
    "archive: no best state": no_best_state,
    "archive: a long history": long_history,
    "archive: a member is gone": mutations.remove_member,
    "archive: a member is renamed": mutations.rename_member,
    "archive: two members are exchanged": mutations.swap_members,
    "archive: a member twice": mutations.duplicate_member,
    "archive: a member is cut": mutations.empty_member,
    "archive: compressed": mutations.compress_members,
    "archive: truncated": mutations.truncate,
    "archive: bytes flipped": mutations.flip_bytes,
    "archive: bytes of the directory flipped": mutations.flip_directory,
    "archive: bytes of a member flipped": mutations.flip_inside,
    "archive: junk around it": mutations.surround,
    "bomb: many members": mutations.many_members,
    "bomb: compressed zeros": mutations.compressed_zeros,
    "bomb: overlapping members": mutations.overlapping,
}
"""Every kind of damage, by name."""
KINDS = sorted(MUTATIONS)


def outcome(name, path):
    """What a fit with a damaged checkpoint does, in a word, and the words of an error."""
    content = path.read_bytes()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        with at_most(SECONDS):
            model = fit(name, path)
            proba = model.predict_proba(X_STAR)
    except cavity.CheckpointError as error:
        words = str(error)
        if str(path) not in words or "delete" not in words:
            return "no way out", words
        if "was resumed" not in words and path.read_bytes() != content:
            return "refused, and changed", words
        result = REFUSED, words
    except TooSlowError:
        return "too slow", ""
    except Exception as error:
        return unexpected(error)
    else:
        if not np.isfinite(proba).all():
            return "predictions are not finite", ""
        result = ENDED, ""
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return ("too much memory", f"{grown:.0f} MB") if grown > MEGABYTES else result


def run(seed, numbers):
    """Try damaged checkpoints; yields (kind of damage, kind of fit, number, outcome, words)."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        honest = honest_checkpoints(folder)
        path = Path(folder) / "damaged.ckpt"
        for name, parts in honest.items():
            path.write_bytes(packed(parts))
            assert outcome(name, path) == (ENDED, "")
        for number in numbers:
            rng = random.Random(f"{seed} {number}")
            name, kind = KINDS[number % len(KINDS)], rng.choice(sorted(honest))
            path.write_bytes(MUTATIONS[name](rng, dict(honest[kind])))
            yield (name, kind, number, *outcome(kind, path))


if __name__ == "__main__":
    sys.exit(main(__doc__, KINDS, run, allowed=(ENDED, REFUSED), count=600))
