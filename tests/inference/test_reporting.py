"""Watching a fit from outside: what a reporter hears, and when."""

import threading

import numpy as np
import pytest
from sklearn.datasets import make_moons

from cavity import SEPClassifier
from cavity.inference.history import current_reporter, reporting
from support import make

X, Y = make_moons(120, noise=0.2, random_state=0)


class Heard:
    def __init__(self):
        self.entries, self.shares = [], []

    def update(self, iteration, share):
        self.entries.append(iteration)
        self.shares.append(share)


def fitted(**options):
    callback = Heard()
    with reporting(callback):
        model = make(SEPClassifier, n_inducing=5, random_state=0, **options).fit(X, Y)
    return model, callback


@pytest.mark.parametrize("options", [{"tol": 1e-2}, {"batch_size": 20, "max_epochs": 5}])
def test_a_reporter_hears_of_every_iteration_and_of_the_budget(options):
    model, callback = fitted(**options)
    assert callback.entries == model.history_
    assert 0.0 < callback.shares[0] < 0.1  # what is used up when it is told
    assert (np.diff(callback.shares) > 0).all()
    assert callback.shares[-1] == 1.0


def test_without_a_budget_there_is_no_share():
    _, callback = fitted(optimizer=None)
    assert set(callback.shares) == {None}


def test_a_stream_is_reported_too():
    callback = Heard()
    with reporting(callback):
        model = SEPClassifier(n_inducing=5, random_state=0).partial_fit(X, Y)
    assert callback.entries == model.history_


def test_the_innermost_reporter_hears_and_only_inside_its_block():
    outer, inner = Heard(), Heard()
    assert current_reporter() is None
    with reporting(outer):
        with reporting(inner):
            assert current_reporter() is inner
        assert current_reporter() is outer
    assert current_reporter() is None


def test_a_failure_inside_the_block_ends_the_reporting():
    with pytest.raises(ZeroDivisionError), reporting(Heard()):
        _ = 1 / 0
    assert current_reporter() is None


def test_fits_in_other_threads_are_not_reported():
    found = []
    with reporting(Heard()):
        thread = threading.Thread(target=lambda: found.append(current_reporter()))
        thread.start()
        thread.join()
    assert found == [None]
