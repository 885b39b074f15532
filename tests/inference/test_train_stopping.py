"""Ctrl-C in the middle of training: what is kept, and how long it takes."""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from cavity import SEPClassifier
from cavity.engines.local import LocalEngine
from cavity.engines.threads import compute_context
from cavity.inference import train
from cavity.inference.schedule import Monitor
from cavity.inference.trainer import Trainer
from cavity.inference.updates import NaturalUpdate
from support import replace_sweep, table


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("batch_size", [50, None])
def test_ctrl_c_keeps_the_best_parameters(monkeypatch, batch_size):
    X, labels = table(400)
    states, step = [], Trainer.step

    def interrupted(self, state, *args, **kwargs):
        states.append(state)
        if len(states) == 20:
            raise KeyboardInterrupt
        return step(self, state, *args, **kwargs)

    monkeypatch.setattr(Trainer, "step", interrupted)
    monkeypatch.setattr(Monitor, "best_or", lambda *_: states[7])
    model = SEPClassifier(
        n_inducing=5,
        batch_size=batch_size,
        max_epochs=30,
        random_state=0,
        n_jobs=1,
        config={"early_stopping": "loo"},
    ).fit(X, labels)
    assert_allclose(model.kernel_.theta, states[7].x[: len(model.kernel_.theta)], rtol=1e-12)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("seconds", [0.5, 100.0])
def test_ctrl_c_ends_soon(monkeypatch, seconds):
    """What makes q exact may take a moment, but not as long as the rows please."""
    X, labels = table(400)
    now, sweeps, sweep = 0.0, [], LocalEngine.run

    def slow(self, row_pass, batch=None, *sampler):
        nonlocal now
        now += seconds * (1.0 if batch is None else 0.125)
        sweeps.append(batch)
        if len(sweeps) == 20:
            raise KeyboardInterrupt
        return sweep(self, row_pass, batch, *sampler)

    replace_sweep(monkeypatch, slow)
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    model = SEPClassifier(
        n_inducing=5,
        batch_size=50,
        max_epochs=30,
        random_state=0,
        n_jobs=1,
    ).fit(X, labels)
    exact = len(sweeps) - 20
    assert exact == 0 if seconds == 100.0 else 1 < exact <= 4
    assert np.isfinite(model.predict_log_proba(X)).all()


def interrupted_once(function, number):
    """The function, which the user interrupts when it is called for that time."""
    calls = []

    def interrupted(*args):
        calls.append(args)
        if len(calls) == number:
            raise KeyboardInterrupt
        return function(*args)

    return interrupted


@pytest.mark.parametrize("batch_size", [50, None])
def test_ctrl_c_between_training_and_the_sweeps_loses_nothing(monkeypatch, batch_size):
    X, labels = table(400)
    budget = {"batch_size": batch_size, "max_epochs": batch_size and 20}
    model = SEPClassifier(n_inducing=5, **budget, random_state=0, n_jobs=1, config={"tol": 1e-2})
    expected = clone(model).fit(X, labels).kernel_.theta
    monkeypatch.setattr(NaturalUpdate, "posterior", interrupted_once(NaturalUpdate.posterior, 1))
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        model.fit(X, labels)
    assert_allclose(model.kernel_.theta, expected, rtol=1e-12)


@pytest.mark.parametrize("number", [1, 2])
def test_ctrl_c_while_memory_is_returned_loses_nothing(monkeypatch, number):
    X, labels = table(400)
    model = SEPClassifier(n_inducing=5, batch_size=50, max_epochs=3, random_state=0, n_jobs=1)
    expected = clone(model).fit(X, labels).kernel_.theta
    once = interrupted_once(train.return_freed_memory, number)
    monkeypatch.setattr(train, "return_freed_memory", once)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        model.fit(X, labels)
    assert_allclose(model.kernel_.theta, expected, rtol=1e-12)


def _interrupted(_):
    raise KeyboardInterrupt


def test_ctrl_c_while_the_threads_end_loses_nothing(monkeypatch):
    """They are not waited for, unless they are still at work."""
    shutdown, waits = ThreadPoolExecutor.shutdown, []

    def noted(self, wait=True, **options):
        waits.append(wait)
        shutdown(self, wait, **options)

    monkeypatch.setattr(ThreadPoolExecutor, "shutdown", noted)
    with compute_context(2) as threads:
        assert list(threads.map(abs, [1, 2])) == [1, 2]
    with pytest.raises(KeyboardInterrupt), compute_context(2) as threads:
        list(threads.map(_interrupted, [1, 2]))
    assert waits == [False, True]
