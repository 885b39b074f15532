"""Fits that end like a process whose power is cut, and the checkpoints that they leave behind."""

import pytest

from cavity import SEPClassifier
from cavity.engines.local import LocalEngine
from support import make, replace_sweep, table

X, LABELS = table(120)


class PowerCutError(Exception):
    """What ends a run without any warning."""


def crash_at(monkeypatch, number):
    count = 0
    sweep = LocalEngine.run

    def crashing(*args, **kwargs):
        nonlocal count
        count += 1
        if count == number:
            raise PowerCutError
        return sweep(*args, **kwargs)

    replace_sweep(monkeypatch, crashing)


def classifier(path=None, kind=SEPClassifier, **options):
    options = {"n_inducing": 6, "batch_size": 20, "max_epochs": 5, "random_state": 0, **options}
    return make(kind, checkpoint=path, **{"checkpoint_interval": 0.0, "n_jobs": 1, **options})


def break_off(monkeypatch, model):
    """A fit to X, LABELS that ends after nine steps."""
    with monkeypatch.context() as patch:
        crash_at(patch, 10)
        with pytest.raises(PowerCutError):
            model.fit(X, LABELS)


def left_behind(path, monkeypatch):
    """The checkpoint of a `classifier()` that was broken off."""
    break_off(monkeypatch, classifier(path))
    assert path.exists()
    return path
