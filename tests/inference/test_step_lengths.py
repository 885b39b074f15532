"""Runs of few steps take longer ones."""

import time

import pytest
from numpy.testing import assert_allclose

from cavity import SEPClassifier
from cavity.inference.history import StepInfo
from cavity.inference.optimizers import Adam
from cavity.inference.trainer import Trainer
from support import table


def rates_of_idle_steps(monkeypatch):
    """From now on steps do nothing, and the factor on each one's length is in this list."""
    rates = []

    def step(self, state, batch, *, gain, rate):
        rates.append(rate)
        return state, StepInfo(0.0, 0.0, 0.0, 0.0)

    monkeypatch.setattr(Trainer, "step", step)
    return rates


@pytest.mark.parametrize("learning_rate", [None, 0.02])
@pytest.mark.parametrize(("epochs", "factor"), [(600, 1.0), (300, 1.0), (75, 2.0), (3, 2.5)])
def test_a_run_of_few_steps_takes_longer_ones_unless_the_rate_was_given(
    monkeypatch, learning_rate, epochs, factor
):
    """3,000 steps go at the rate itself; a quarter of them twice as far each, but none too far."""
    rates = rates_of_idle_steps(monkeypatch)
    X, labels = table(100)
    model = SEPClassifier(
        n_inducing=3,
        batch_size=10,
        max_epochs=epochs,
        optimizer=Adam(learning_rate),
        config={"calibration": None},
    )
    model.fit(X, labels)
    assert len(rates) == 10 * epochs
    cooling = 5 * epochs
    assert_allclose(rates[:cooling], factor if learning_rate is None else 1.0)
    assert rates[-1] < 0.1 * rates[1]


@pytest.mark.parametrize(("seconds", "factor"), [(40.0, 1.0), (10.0, 2.0)])
def test_seconds_before_the_first_step_are_no_sign_of_slow_ones(monkeypatch, seconds, factor):
    """Ten milliseconds a step, after a quarter of the seconds has gone: 3,000 steps, or 750."""
    rates, before, begin = rates_of_idle_steps(monkeypatch), 0.0, Trainer.start

    def start(self):
        nonlocal before
        before = 0.25 * seconds
        return begin(self)

    monkeypatch.setattr(Trainer, "start", start)
    monkeypatch.setattr(time, "perf_counter", lambda: before + 0.01 * len(rates))
    X, labels = table(100)
    SEPClassifier(n_inducing=3, batch_size=10, max_seconds=seconds, config={"calibration": None}).fit(
        X, labels
    )
    assert rates[0] == 2.5  # nobody knows yet whether there will be another
    assert_allclose(rates[len(rates) // 8], factor, rtol=0.05)
    assert rates[-1] < 0.2 * factor


def test_an_early_end_does_not_lengthen_the_steps(monkeypatch):
    rates = rates_of_idle_steps(monkeypatch)
    X, labels = table(100)
    model = SEPClassifier(
        n_inducing=3,
        batch_size=10,
        max_epochs=600,
        config={"early_stopping": "loo", "calibration": None},
    )
    model.fit(X, labels)
    assert len(rates) < 3_000
    assert max(rates) == 1.0
